"""The ends of transactions, written where their records are: a marker in each partition, answered once replicated.

In a partition of `__consumer_offsets` the marker also makes the positions of groups count, or drops them: there
the group service writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import CONSUMER_OFFSETS_TOPIC, TopicPartition
from headrace.records.markers import EndMarker
from headrace.replication.partition import ACKS_ALL, Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.groups.service import GroupService

REPLICATION_SECONDS = 5.0
"""That the markers of a request wait for their replicas, all of them together, before the coordinator is told to
send those again that lack any. Less than it waits for the answer: otherwise one partition whose replicas are slow
would hide from it that all others have their markers."""
_SEND_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Told to the coordinator of a transaction as NOT_LEADER_OR_FOLLOWER: it looks for the leader, and asks again."""


T = TypeVar("T")


class Each(Protocol):
    """The items of a long loop, with other requests served in between."""

    def __call__(self, items: Iterable[T]) -> AsyncIterator[T]: ...


class _Replication:
    """Waits on a partition until a marker is on all in-sync replicas."""

    def __init__(self, partition: Partition, end_offset: int) -> None:
        self._partition = partition
        self._end_offset = end_offset
        self._leader_epoch = partition.leader_epoch
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if self.done.done():
            return
        try:
            if self._partition.acknowledged(self._end_offset, ACKS_ALL, self._leader_epoch):
                self.done.set_result(None)
        except KafkaError as error:
            self.done.set_exception(error)

    def failed(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def write_at_once(replicas: ReplicaSet, partition: TopicPartition, marker: EndMarker) -> ErrorCode | None:
    """Write a marker where it is replicated as soon as it is written; None, with nothing done, anywhere else."""
    found = replicas.by_name.get(partition.topic.encode(), {}).get(partition.partition)
    if found is None or not found.is_leader or not found.settled or partition.topic == CONSUMER_OFFSETS_TOPIC:
        return None
    try:
        found.append_marker(marker)
    except KafkaError as error:
        return _told(error.code)
    return ErrorCode.NONE


class TransactionMarkers:
    def __init__(self, env: Env, replicas: ReplicaSet, groups: GroupService) -> None:
        self._env = env
        self._replicas = replicas
        self._groups = groups

    async def write(self, wanted: Sequence[tuple[EndMarker, TopicPartition]], each: Each) -> list[ErrorCode]:
        """One result for each marker: all are appended first, then awaited. `each` serves others in between."""
        begun = [self._begin(partition, marker) async for marker, partition in each(wanted)]
        waiting = [one[0] for one in begun if not isinstance(one, ErrorCode) and not one[0].done()]
        timer = self._env.clock.call_later(REPLICATION_SECONDS, partial(_time_out, waiting)) if waiting else None
        try:
            return [one if isinstance(one, ErrorCode) else await _outcome(*one) async for one in each(begun)]
        finally:
            if timer is not None:
                timer.cancel()

    def _begin(
        self, topic_partition: TopicPartition, marker: EndMarker
    ) -> ErrorCode | tuple[asyncio.Future[None], Partition, _Replication | None]:
        try:
            partition = self._replicas.leader(topic_partition)
            if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
                return self._groups.end_transaction(topic_partition.partition, marker), partition, None
            waiter = _Replication(partition, partition.append_marker(marker))
        except KafkaError as error:
            return _told(error.code)
        waiter.wake()
        if not waiter.done.done():  # one that waits for nothing would be woken by every marker after it
            partition.waiters[waiter] = None
        return waiter.done, partition, waiter


async def _outcome(done: asyncio.Future[None], partition: Partition, waiter: _Replication | None) -> ErrorCode:
    try:
        await done
    except KafkaError as error:
        return _told(error.code)
    finally:
        if waiter is not None:
            partition.waiters.pop(waiter, None)
    return ErrorCode.NONE


def _time_out(waiting: Iterable[asyncio.Future[None]]) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))


def _told(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _SEND_AGAIN else code
