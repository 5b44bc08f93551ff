"""Reading a partition of a coordinator's topic from its start: bytes in a thread, events to the caller in slices.

The loop is never kept for long: it decodes and hands over a slice at a time and lets others have their turn. A
thread that decoded would be no gain: both would take turns at one interpreter, in longer pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from headrace.env import Env
from headrace.groups.events import Event
from headrace.records.batch import parse_header
from headrace.replication.partition import Partition
from headrace.services.groups.records import decode_batch
from headrace.storage.files import FileRange
from headrace.storage.scan import split_batches

T = TypeVar("T")
DecodeBatch = Callable[[memoryview], Iterator[T]]
"""What a batch of the log says, one thing after the other."""

SLICE_EVENTS = 200
"""About three milliseconds of work."""


def load_events(env: Env, partition: Partition, buffer_bytes: int) -> AsyncIterator[list[Event]]:
    """Every event of a partition of `__consumer_offsets`."""
    return load_log(env, partition, buffer_bytes, decode_batch)


async def load_log(
    env: Env, partition: Partition, buffer_bytes: int, decode: DecodeBatch[T]
) -> AsyncIterator[list[T]]:
    """Every event of the log as it is now, in order. KafkaError or ProtocolError if it cannot be read.

    To its end, not to the high watermark: what a leader has in its log it will never lose again, so all of it will
    count. It counts from when the in-sync replicas have it: the last step is to wait for that.
    """
    end_offset = partition.log.end_offset
    offset = partition.log.start_offset
    while offset < end_offset:
        found = partition.log.read(offset, buffer_bytes, end_offset, at_least_one=True)
        assert found is not None, "there is something before the end"
        data = memoryview(await env.run_blocking(partial(_read, env, found)))
        events = _events(data, decode)
        while slice_of_events := list(islice(events, SLICE_EVENTS)):
            yield slice_of_events
            await env.clock.sleep(0)
        offset = _next_offset(data)
    await _replicated(partition, end_offset)


class _Arrival:
    """Waits on a partition until its high watermark is where it should be."""

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self._offset = offset
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if self._partition.high_watermark >= self._offset and not self.arrived.done():
            self.arrived.set_result(None)

    def failed(self, error: Exception) -> None:
        if not self.arrived.done():
            self.arrived.set_exception(error)


async def _replicated(partition: Partition, offset: int) -> None:
    arrival = _Arrival(partition, offset)
    partition.waiters[arrival] = None
    try:
        arrival.wake()
        await arrival.arrived
    finally:
        partition.waiters.pop(arrival, None)


def _read(env: Env, found: FileRange) -> bytes:
    """Blocking."""
    return env.disk.pread(found.file.fd, found.size, found.position)


def _events(data: memoryview, decode: DecodeBatch[T]) -> Iterator[T]:
    for position, size in split_batches(data):
        yield from decode(data[position : position + size])


def _next_offset(data: memoryview) -> int:
    """The offset after the last whole batch."""
    *_, (position, size) = split_batches(data)
    return parse_header(data[position : position + size]).next_offset
