"""A Produce for a partition that this broker is about to lead, because its leader is stopping (`departing`).

It waits for the election and blocks its connection meanwhile, so that no later request overtakes it. Then it is
handled as if it had just arrived; if another broker was elected, or none, it is refused as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.handlers.context import Channel
from headrace.handlers.later_produce import LaterProduce
from headrace.replication.partition import Partition
from headrace.services.reply import Reply
from headrace.wire.produce import TOPIC_IDS, parse_produce

LONGEST_SECONDS = 0.5
MAX_HELD_BYTES = 64 * 1024 * 1024
"""The memory of all requests that wait; further ones are refused at once."""

AppendRequest = Callable[[Channel, int, memoryview, int], Reply]


def until_led(
    channel: Channel, version: int, frame: memoryview, position: int, append: AppendRequest
) -> EarlyProduce | None:
    """None if the request need not wait, or if its client expects no response."""
    _, acks, _, topics = parse_produce(frame, position, version)
    if acks == 0:
        return None
    replicas = channel.broker.replicas
    index_of_topics = replicas.by_id if version >= TOPIC_IDS else replicas.by_name
    held = (index_of_topics.get(key, {}).get(index) for _, key, partitions in topics for index, _ in partitions)
    awaited = [partition for partition in held if partition is not None and _is_awaited(channel, partition)]
    if not awaited or channel.broker.departing.held_bytes + len(frame) > MAX_HELD_BYTES:
        return None
    # The frame is used for the next request as soon as we return.
    return EarlyProduce(channel, version, memoryview(bytes(frame)), position, awaited, append)


def _is_awaited(channel: Channel, partition: Partition) -> bool:
    return not partition.is_leader and channel.broker.departing.may_lead_next(partition)


class EarlyProduce(LaterProduce):
    __slots__ = ("_append", "_awaited", "_frame", "_position", "_timer")

    exclusive = True

    def __init__(
        self,
        channel: Channel,
        version: int,
        frame: memoryview,
        position: int,
        awaited: list[Partition],
        append: AppendRequest,
    ) -> None:
        super().__init__(channel, version)
        self._frame = frame
        self._position = position
        self._append = append
        self._awaited = awaited
        channel.broker.departing.held_bytes += len(frame)
        for partition in awaited:
            partition.waiters[self] = None
        self._timer = channel.broker.env.clock.call_later(LONGEST_SECONDS, self._proceed)

    def wake(self) -> None:
        """May come once more after it has continued, from a partition that several requests wait for."""
        if self._awaited and not any(_is_awaited(self._channel, partition) for partition in self._awaited):
            self._proceed()

    def _proceed(self) -> None:
        self._let_go()
        self._answer_with(partial(self._append, self._channel, self._version, self._frame, self._position))

    def failed(self, error: Exception) -> None:
        self._let_go()
        self.hang_up()

    def cancel(self) -> None:
        self._let_go()
        super().cancel()

    def _let_go(self) -> None:
        """Stop waiting, if it still does."""
        if not self._awaited:
            return
        self._timer.cancel()
        self._channel.broker.departing.held_bytes -= len(self._frame)
        for partition in self._awaited:
            partition.waiters.pop(self, None)
        self._awaited = []
