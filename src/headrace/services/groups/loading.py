"""Reading a partition of `__consumer_offsets` from its start: files in a thread, events to the caller in slices.

The loop is never kept for long: bytes are read and decoded in a thread, and what they mean is handed over a slice
at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from headrace.env import Env
from headrace.groups.events import Event
from headrace.records.batch import parse_header
from headrace.replication.partition import Partition
from headrace.services.groups.records import decode_batch
from headrace.storage.files import FileRange
from headrace.storage.scan import split_batches

SLICE_EVENTS = 500


async def load_events(env: Env, partition: Partition, buffer_bytes: int) -> AsyncIterator[list[Event]]:
    """Every event below the high watermark of now, in order. KafkaError or ProtocolError if it cannot be read."""
    end_offset = partition.high_watermark
    offset = partition.log.start_offset
    while offset < end_offset:
        found = partition.log.read(offset, buffer_bytes, end_offset, at_least_one=True)
        if found is None:
            return
        events, offset = await env.run_blocking(partial(_decode_range, env, found, offset))
        for start in range(0, len(events), SLICE_EVENTS):
            yield events[start : start + SLICE_EVENTS]
            await env.clock.sleep(0)


def _decode_range(env: Env, found: FileRange, offset: int) -> tuple[list[Event], int]:
    """Blocking. The events of the whole batches in a range, and the offset after them."""
    data = memoryview(env.disk.pread(found.file.fd, found.size, found.position))
    events: list[Event] = []
    next_offset = offset
    for position, size in split_batches(data):
        batch = data[position : position + size]
        events += decode_batch(batch)
        next_offset = parse_header(batch).next_offset
    assert next_offset > offset, "a range holds at least one whole batch"
    return events, next_offset
