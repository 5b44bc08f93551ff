"""Why a batch may be missing that its producer sent before the present one: this broker refused it a moment ago.

It was refused because too few replicas were in sync, for want of space, or because this broker did not lead yet.
Then the producer sends it again, and what was in flight behind it too. Until then nothing may take its place:

- A gap in a known sequence is not called one. librdkafka begins a new epoch after a gap, and what it has under way
  in other partitions, and was stored there without its knowledge, it stores once more.
- A producer that the partition does not know may not begin behind its first batch. Otherwise that one comes again
  behind what is stored: librdkafka takes it for stored too, and reports a lost record as delivered.

Of a refusal only its words are kept: an exception holds the frames that it came through, and these the request.
"""

from __future__ import annotations

from headrace.env import Clock
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.storage.log import Log

EXCUSED_SECONDS = 2.0
"""How long after an election or a refusal a missing batch is excused."""
LONG_AGO = float("-inf")

_FOR_THE_MOMENT = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)
"""Refusals after which a producer sends the same batch again."""


class Refusals:
    """The recent refusals of one partition."""

    __slots__ = ("_clock", "_words", "began_at", "lately", "refused_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_at = self.refused_at = LONG_AGO
        """When this broker became the leader, and when it last refused a batch temporarily."""
        self._words: tuple[ErrorCode, str | None] | None = None
        self.lately = False
        """Whether either may be recent: only then is the clock read."""

    def begin(self) -> None:
        """Note that this broker leads from now on."""
        self.began_at = self._clock.monotonic()
        self.lately = True

    def note(self, error: KafkaError) -> None:
        """Note that a batch was refused with this error."""
        if error.code in _FOR_THE_MOMENT:
            self._words = error.code, error.message
            self.refused_at = self._clock.monotonic()
            self.lately = True

    def check_beginning(self, log: Log, batch: memoryview) -> None:
        """Refuse a batch with which an unknown producer cannot have begun, if an earlier batch may be missing."""
        if max(self.began_at, self.refused_at) <= self._clock.monotonic() - EXCUSED_SECONDS:
            self.lately = False
        elif len(batch) >= HEADER_SIZE:
            header = parse_header(batch)
            if header.base_sequence > 0 and not log.knows_producer(header.producer_id):
                self.excuse_gap(after_election=True)

    def excuse_gap(self, after_election: bool) -> None:
        """Raise why the batch before may be missing, if this broker may be the cause."""
        lately = self._clock.monotonic() - EXCUSED_SECONDS
        if after_election and self.began_at > lately:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker has just begun to lead")
        if self._words is not None and self.refused_at > lately:
            code, message = self._words
            raise KafkaError(code, f"A batch before this one was refused: {message}")
