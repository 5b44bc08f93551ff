"""A Produce that waits until its batches are where its `acks` promises, or its time is up.

A leader that is about to stop says with a success who leads next (`departing`).

A leader that was cut off from everybody does not learn that it was replaced. So a request that has waited for a
second is looked at again: without a lease, and without followers, it is answered with NOT_LEADER_OR_FOLLOWER, and
its client asks others who leads.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from headrace.env import Env, Timer
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.services.departing import NamesSuccessors
from headrace.services.leader_hints import HintingBroker, leader_elsewhere
from headrace.services.reply import Pending
from headrace.wire.leader_hints import LeaderHint
from headrace.wire.produce import (
    FLEXIBLE,
    LEADER_HINTS,
    encode_failure,
    encode_one_result,
    encode_produce_response,
    with_leader,
)

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0

Results = list[tuple[bytes, list[bytes]]]
"""For each topic as it was written: the answers of its partitions."""


class ProducingBroker(HintingBroker, Protocol):
    @property
    def env(self) -> Env: ...
    @property
    def departing(self) -> NamesSuccessors: ...


class ProducingClient(Protocol):
    """The connection that waits."""

    @property
    def broker(self) -> ProducingBroker: ...
    @property
    def listener(self) -> str: ...


class Unacknowledged:
    """A batch in the log of a partition, and the place of its result, which is set to success."""

    __slots__ = ("_acks", "_answers", "_end_offset", "_index", "_leader_epoch", "_place", "hint", "partition")

    def __init__(self, partition: Partition, acks: int, index: int, answers: list[bytes]) -> None:
        self.partition = partition
        self._acks = acks
        # A duplicate too is acknowledged no earlier than what it repeats.
        self._end_offset = partition.end_offset
        self._leader_epoch = partition.leader_epoch
        self._index = index
        self._answers = answers
        self._place = len(answers) - 1
        self.hint: LeaderHint | None = None
        """Who leads now, once that has failed it, or who leads next."""

    def is_decided(self, client: ProducingClient, version: int, doubtful: bool = False) -> bool:
        """Acknowledged, or failed, which its answer then says. `doubtful`: after a wait, look at the lease too."""
        try:
            acknowledged = self.partition.acknowledged(self._end_offset, self._acks, self._leader_epoch)
            if acknowledged:
                if client.broker.departing.names_successors and version >= LEADER_HINTS:
                    self._name_successor(client)
            elif doubtful:
                self.partition.check_lease()
            return acknowledged
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= LEADER_HINTS:
                topic_id, index = self.partition.topic_id, self._index
                self.hint = leader_elsewhere(client.broker, client.listener, topic_id, index, by_id=True)
            self.fail(version, error.code, error.message)
            return True

    def _name_successor(self, client: ProducingClient) -> None:
        self.hint = client.broker.departing.successor(client.listener, self.partition.topic_id, self._index)
        if self.hint is not None:
            self._answers[self._place] = with_leader(self._answers[self._place], self.hint)

    def fail(self, version: int, code: ErrorCode, message: str | None) -> None:
        self._answers[self._place] = encode_failure(version, self._index, code, message, (), self.hint)


class DelayedProduce(Pending):
    __slots__ = ("_client", "_hints", "_left", "_results", "_timer", "_version", "_waiting")

    def __init__(
        self,
        client: ProducingClient,
        version: int,
        timeout_ms: int,
        results: Results,
        waiting: list[Unacknowledged],
        hints: list[LeaderHint],
    ) -> None:
        super().__init__()
        self._client = client
        self._version = version
        self._results = results
        self._hints = hints
        self._waiting = waiting
        for batch in waiting:
            batch.partition.waiters[self] = None
        seconds = max(timeout_ms, 0) / 1000
        self._left = seconds - LOOK_SECONDS
        self._timer: Timer = client.broker.env.clock.call_later(min(seconds, LOOK_SECONDS), self._look)

    def wake(self) -> None:
        if not self.done:
            self._decide(doubtful=False)

    def _decide(self, doubtful: bool) -> None:
        waiting = self._waiting
        if len(waiting) == 1:
            if not self._is_decided(waiting[0], doubtful):
                return
        else:
            undecided = [batch for batch in waiting if not self._is_decided(batch, doubtful)]
            self._let_go(undecided)
            if undecided:
                return
        self._finish()

    def _is_decided(self, batch: Unacknowledged, doubtful: bool = True) -> bool:
        decided = batch.is_decided(self._client, self._version, doubtful)
        if batch.hint is not None:
            self._hints.append(batch.hint)
        return decided

    def _look(self) -> None:
        """Its time is up, or it has waited for a long time."""
        if self._left <= 0:
            self._expire()
            return
        self._timer = self._client.broker.env.clock.call_later(min(self._left, LOOK_SECONDS), self._look)
        self._left -= LOOK_SECONDS
        try:
            self._decide(doubtful=True)
        except Exception as error:
            logger.exception("A Produce failed while it waited")
            self.failed(error)

    def _expire(self) -> None:
        """The batches stay in the log; whether they will ever be replicated is unknown."""
        try:
            for batch in self._waiting:
                if not self._is_decided(batch):
                    message = "The request timed out before enough replicas had the batch"
                    batch.fail(self._version, ErrorCode.REQUEST_TIMED_OUT, message)
            self._finish()
        except Exception as error:
            logger.exception("A Produce failed when its time was up")
            self.failed(error)

    def _finish(self) -> None:
        self._timer.cancel()
        self._let_go([])
        self.complete(encode_results(self._version, self._results, self._hints))

    def _let_go(self, undecided: list[Unacknowledged]) -> None:
        """Wait on the partitions of the undecided batches only."""
        for batch in self._waiting:
            batch.partition.waiters.pop(self, None)
        self._waiting = undecided
        for batch in undecided:
            batch.partition.waiters[self] = None

    def failed(self, error: Exception) -> None:
        self._timer.cancel()
        self._let_go([])
        self.hang_up()

    def cancel(self) -> None:
        """The connection is closed; what was appended stays."""
        self._timer.cancel()
        self._let_go([])
        super().cancel()


def encode_results(version: int, results: Results, hints: Sequence[LeaderHint]) -> bytes:
    if version >= FLEXIBLE and len(results) == 1 and not hints:
        echo, answers = results[0]
        if len(answers) == 1:
            return encode_one_result(echo, answers[0])
    return encode_produce_response(version, results, hints)
