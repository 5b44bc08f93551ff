"""The keys that a topic holds now: those to delete when the table behind it was truncated.

The whole topic is read, up to its end, with the open transaction of the producer that asks. What others have not
committed does not count.
"""

from __future__ import annotations

from headrace.client.cluster import Cluster
from headrace.client.fetching import Fetched, FetchLimits, RecordReader
from headrace.client.offsets import offset_ranges
from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, TRANSACTIONAL, checked_header
from headrace.records.markers import COMMIT, read_marker
from headrace.records.reader import read_records

Changes = list[tuple[bytes, bool]]
"""Keys, and whether they have a value."""


async def live_keys(cluster: Cluster, partition: TopicPartition, own_producer_id: int) -> list[bytes]:
    """The keys that have a value now, if our open transaction counts as committed."""
    first, end = (await offset_ranges(cluster, [partition]))[partition]
    reader = RecordReader(cluster, {partition: first}, FetchLimits())
    scan = KeyScan()
    while reader.positions[partition] < end:
        before = reader.positions[partition]
        for fetched in await reader.poll():
            scan.take(fetched)
        if reader.positions[partition] == before:
            break  # the rest has been compacted away
    return scan.keys(own_producer_id)


class KeyScan:
    def __init__(self) -> None:
        self._live: dict[bytes, None] = {}
        self._open: dict[int, Changes] = {}

    def take(self, fetched: Fetched) -> None:
        for header, batch in fetched.batches:
            checked_header(batch)
            if header.attributes & CONTROL:
                changes = self._open.pop(header.producer_id, [])
                if read_marker(batch)[0] == COMMIT:
                    self._apply(changes)
                continue
            changes = [(one.key, one.value is not None) for one in read_records(batch) if one.key is not None]
            if header.attributes & TRANSACTIONAL:
                self._open.setdefault(header.producer_id, []).extend(changes)
            else:
                self._apply(changes)

    def keys(self, own_producer_id: int) -> list[bytes]:
        self._apply(self._open.pop(own_producer_id, []))
        return list(self._live)

    def _apply(self, changes: Changes) -> None:
        for key, has_value in changes:
            if has_value:
                self._live[key] = None
            else:
                self._live.pop(key, None)
