"""DeleteRecords waits until everybody who may lead has let go of the records, so that none comes back."""

from __future__ import annotations

import asyncio

from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition


class _Trim:
    """Waits on a partition until no replica that may lead has a record below an offset."""

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self._offset = offset
        self._leader_epoch = partition.leader_epoch
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        partition = self._partition
        if self.done.done():
            return
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            self.failed(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif partition.low_watermark >= self._offset:
            self.done.set_result(None)

    def failed(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def trimmed(env: Env, partition: Partition, offset: int, deadline: float) -> int:
    """The low watermark, once it is not below `offset`. REQUEST_TIMED_OUT if that takes too long: the leader has
    let go of the records, and a new one might bring them back."""
    trim = _Trim(partition, offset)
    trim.wake()
    if not trim.done.done():
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        timer = env.clock.call_later(max(deadline - env.clock.monotonic(), 0.0), lambda: trim.failed(late))
        partition.waiters[trim] = None
        try:
            await trim.done
        finally:
            timer.cancel()
            partition.waiters.pop(trim, None)
    else:
        trim.done.result()
    return partition.low_watermark
