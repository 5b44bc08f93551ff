"""A Produce that waits until its batches count as written: see `replication.flushing`."""

from __future__ import annotations

from headrace.handlers.reply import Pending
from headrace.model.errors import ErrorCode
from headrace.replication.partition import Partition
from headrace.wire.produce import encode_failure, encode_one_result, encode_produce_response


class Unacknowledged:
    """A batch in the log of a partition, and the place of its answer, which says that all went well."""

    __slots__ = ("_answers", "_end_offset", "_index", "_leader_epoch", "_place", "partition")

    def __init__(self, partition: Partition, end_offset: int, index: int, answers: list[bytes]) -> None:
        self.partition = partition
        self._end_offset = end_offset
        self._leader_epoch = partition.leader_epoch
        self._index = index
        self._answers = answers
        self._place = len(answers) - 1

    @property
    def is_written(self) -> bool:
        return self.partition.high_watermark >= self._end_offset

    @property
    def answer(self) -> bytes:
        return self._answers[self._place]

    def is_decided(self, version: int) -> bool:
        """Written, or failed, which its answer then says."""
        if self.partition.high_watermark >= self._end_offset:
            return True
        partition = self.partition
        failure = partition.log.failure
        if failure is not None:
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failure)
        elif not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            code, message = ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader changed before the batch was written"
        else:
            return False
        self._answers[self._place] = encode_failure(version, self._index, code, message)
        return True


class ParkedBatch(Pending):
    """What `ParkedProduce` is for one batch: where every batch is synced, nearly all that wait are this."""

    __slots__ = ("_batch", "_echo", "_version")

    def __init__(self, version: int, echo: bytes, batch: Unacknowledged) -> None:
        super().__init__()
        self._version = version
        self._echo = echo
        self._batch = batch
        batch.partition.waiters[self] = None

    def wake(self) -> None:
        batch = self._batch
        if not self.done and batch.is_decided(self._version):
            batch.partition.waiters.pop(self, None)
            self.complete(encode_one_result(self._echo, batch.answer))

    def cancel(self) -> None:
        """The connection is gone; what was appended stays."""
        self._batch.partition.waiters.pop(self, None)
        super().cancel()


class ParkedProduce(Pending):
    __slots__ = ("_results", "_version", "_waiting")

    def __init__(
        self, version: int, results: list[tuple[bytes, list[bytes]]], waiting: list[Unacknowledged]
    ) -> None:
        super().__init__()
        self._version = version
        self._results = results
        self._waiting = waiting
        for batch in waiting:
            batch.partition.waiters[self] = None

    def wake(self) -> None:
        if self.done:
            return
        self._waiting = [batch for batch in self._waiting if not self._let_go_if_decided(batch)]
        if not self._waiting:
            self.complete(encode_produce_response(self._version, self._results))

    def _let_go_if_decided(self, batch: Unacknowledged) -> bool:
        if not batch.is_decided(self._version):
            return False
        batch.partition.waiters.pop(self, None)
        return True

    def cancel(self) -> None:
        """The connection is gone; what was appended stays."""
        for batch in self._waiting:
            batch.partition.waiters.pop(self, None)
        super().cancel()
