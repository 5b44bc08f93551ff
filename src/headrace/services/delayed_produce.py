"""A Produce that waits until its batches are where its `acks` promises, or its time is up."""

from __future__ import annotations

import logging

from headrace.env import Clock, Timer
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.services.reply import Pending
from headrace.wire.produce import FLEXIBLE, encode_failure, encode_one_result, encode_produce_response

logger = logging.getLogger(__name__)

Results = list[tuple[bytes, list[bytes]]]
"""For each topic as it was written: the answers of its partitions."""


class Unacknowledged:
    """A batch in the log of a partition, and the place of its answer, which says that all went well."""

    __slots__ = ("_acks", "_answers", "_end_offset", "_index", "_leader_epoch", "_place", "partition")

    def __init__(self, partition: Partition, acks: int, index: int, answers: list[bytes]) -> None:
        self.partition = partition
        self._acks = acks
        # A duplicate too is acknowledged no earlier than what it repeats.
        self._end_offset = partition.end_offset
        self._leader_epoch = partition.leader_epoch
        self._index = index
        self._answers = answers
        self._place = len(answers) - 1

    def is_decided(self, version: int) -> bool:
        """Acknowledged, or failed, which its answer then says."""
        try:
            return self.partition.acknowledged(self._end_offset, self._acks, self._leader_epoch)
        except KafkaError as error:
            self.fail(version, error.code, error.message)
            return True

    def fail(self, version: int, code: ErrorCode, message: str | None) -> None:
        self._answers[self._place] = encode_failure(version, self._index, code, message)


class DelayedProduce(Pending):
    __slots__ = ("_results", "_timer", "_version", "_waiting")

    def __init__(
        self, clock: Clock, version: int, timeout_ms: int, results: Results, waiting: list[Unacknowledged]
    ) -> None:
        super().__init__()
        self._version = version
        self._results = results
        self._waiting = waiting
        for batch in waiting:
            batch.partition.waiters[self] = None
        self._timer: Timer = clock.call_later(max(timeout_ms, 0) / 1000, self._expire)

    def wake(self) -> None:
        if self.done:
            return
        version = self._version
        waiting = self._waiting
        if len(waiting) == 1:
            if not waiting[0].is_decided(version):
                return
        else:
            undecided = [batch for batch in waiting if not batch.is_decided(version)]
            self._let_go(undecided)
            if undecided:
                return
        self._finish()

    def _expire(self) -> None:
        """The batches stay in the log; whether they will be acknowledged, nobody can tell any more."""
        try:
            for batch in self._waiting:
                if not batch.is_decided(self._version):
                    message = "The request timed out before enough replicas had the batch"
                    batch.fail(self._version, ErrorCode.REQUEST_TIMED_OUT, message)
            self._finish()
        except Exception as error:
            logger.exception("A Produce failed when its time was up")
            self.failed(error)

    def _finish(self) -> None:
        self._timer.cancel()
        self._let_go([])
        self.complete(encode_results(self._version, self._results))

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
        """The connection is gone; what was appended stays."""
        self._timer.cancel()
        self._let_go([])
        super().cancel()


def encode_results(version: int, results: Results) -> bytes:
    if version >= FLEXIBLE and len(results) == 1:
        echo, answers = results[0]
        if len(answers) == 1:
            return encode_one_result(echo, answers[0])
    return encode_produce_response(version, results)
