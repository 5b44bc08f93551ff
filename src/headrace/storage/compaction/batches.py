"""What happens to one batch: it is kept, rewritten with fewer records, emptied, or removed.

Rules (Kafka's):
- A record goes if the map has a later one with its key, if it has no key, or if its transaction was aborted.
- A tombstone (no value) stays until the batch's delete horizon: the first cleaning that meets it sets the horizon,
  `delete.retention.ms` from then. It stands where the base timestamp was, and attribute bit 6 says so (KIP-534).
- A batch that loses records keeps its offsets, sequence numbers, epoch, codec and kind of timestamp.
- An emptied batch stays as a header alone where it holds a producer's last sequence number, so that idempotence
  survives, or where it is the last of its segment, so that the segment's end is known from its bytes.
- What cannot be read as records, though its CRC is right, stays: nothing is lost that is not understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.model.errors import KafkaError
from headrace.model.varint import read_uvarint, write_uvarint, write_varint
from headrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
)
from headrace.records.builder import assemble
from headrace.records.compression import compress
from headrace.records.reader import records_data
from headrace.storage.compaction.layout import MalformedRecords, record_layout
from headrace.storage.compaction.offset_map import OffsetMap
from headrace.storage.compaction.transactions import TransactionView

Places = list[tuple[bytes | None, int, int, bool, int]]
NO_DATA_OFFSET = -1


class ProducerEnd(NamedTuple):
    """A producer that is still known: its epoch, and the last offset of its last batch (-1: only markers)."""

    epoch: int
    last_offset: int


class Counts:
    """What a cleaning met and did."""

    __slots__ = ("batches_rebuilt", "batches_unread", "records_in", "records_out", "tombstones_dropped")

    def __init__(self) -> None:
        self.records_in = self.records_out = self.tombstones_dropped = 0
        self.batches_rebuilt = 0
        self.batches_unread = 0
        """Kept because they could not be read as records."""


class BatchFilter:
    """Applies the rules to the batches of a log, one after the other in order."""

    __slots__ = ("_horizon_ms", "_limit_bytes", "_map", "_now_ms", "_producers", "_transactions", "counts")

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: TransactionView,
        producers: Mapping[int, ProducerEnd],
        now_ms: int,
        delete_retention_ms: int,
        limit_bytes: int,
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._limit_bytes = limit_bytes
        """What a batch may unfold to; one that is larger is not looked into."""
        self.counts = Counts()

    def apply(self, header: BatchHeader, batch: memoryview, is_last: bool) -> memoryview | bytearray | None:
        """What to write for a batch: itself (the same object), another, or nothing."""
        self.counts.records_in += header.record_count
        result = self._control(header, batch) if header.attributes & CONTROL else self._data(header, batch)
        if result is None and (is_last or self._ends_producer(header)):
            result = batch if not header.record_count else _emptied(header)
        if result is not None and result is not batch:
            self.counts.batches_rebuilt += 1
        return result

    def _ends_producer(self, header: BatchHeader) -> bool:
        known = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        if known.last_offset != NO_DATA_OFFSET:
            return header.last_offset == known.last_offset
        return bool(header.attributes & CONTROL) and header.producer_epoch == known.epoch

    def _control(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        spent = self._transactions.is_spent(header, batch)
        if not header.record_count:
            return None
        if spent and header.attributes & DELETE_HORIZON and header.base_timestamp <= self._now_ms:
            return None
        self.counts.records_out += header.record_count
        if not spent or header.attributes & DELETE_HORIZON:
            return batch
        places, data = self._read(header, batch)
        return batch if places is None else _rebuilt(header, data, places, self._horizon_ms)

    def _data(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        if self._transactions.is_aborted(header) or not header.record_count:
            return None
        if header.base_offset > self._map.latest_offset:  # the map ends where a batch does
            self.counts.records_out += header.record_count
            return batch
        places, data = self._read(header, batch)
        if places is None:
            self.counts.batches_unread += 1
            self.counts.records_out += header.record_count
            return batch
        kept, has_tombstones = self._judge(header, places)
        self.counts.records_out += len(kept)
        if not kept:
            return None
        horizon_ms = None
        if has_tombstones and not header.attributes & DELETE_HORIZON:
            horizon_ms = self._horizon_ms
        elif len(kept) == len(places):
            return batch
        return _rebuilt(header, data, places, horizon_ms, kept)

    def _read(self, header: BatchHeader, batch: memoryview) -> tuple[Places | None, bytes]:
        try:
            data = bytes(records_data(header, batch, self._limit_bytes))
            return record_layout(data, header.record_count, header.last_offset_delta), data
        except (KafkaError, MalformedRecords):
            return None, b""

    def _judge(self, header: BatchHeader, places: Places) -> tuple[list[int], bool]:
        """The numbers of the records that stay, and whether there are tombstones among them."""
        get, base = self._map.get, header.base_offset
        is_expired = bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self._now_ms
        kept: list[int] = []
        has_tombstones = False
        for number, (key, delta, _, has_value, _) in enumerate(places):
            if key is None or base + delta < get(key):
                continue
            if is_expired and not has_value:
                self.counts.tombstones_dropped += 1
                continue
            has_tombstones = has_tombstones or not has_value
            kept.append(number)
        return kept, has_tombstones


def _emptied(header: BatchHeader) -> bytearray:
    """The header alone: offsets, sequence and producer stay."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _rebuilt(
    header: BatchHeader, data: bytes, places: Places, horizon_ms: int | None, kept: list[int] | None = None
) -> bytearray:
    """The batch with the records that stay, as their bytes are; with a new horizon they are dated from that."""
    numbers = range(len(places)) if kept is None else kept
    spans = [((places[number - 1][2] if number else 0), places[number][2]) for number in numbers]
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME:
        deltas = (places[number][4] for number in numbers)
        max_timestamp = header.base_timestamp + max((raw >> 1) ^ -(raw & 1) for raw in deltas)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is None:
        records = b"".join([data[start:end] for start, end in spans])
    else:
        records = b"".join([_redated(data[start:end], base_timestamp - horizon_ms) for start, end in spans])
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon_ms
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(spans),
    )
    return assemble(changed, compress(header.codec, records))


def _redated(record: bytes, shift_ms: int) -> bytes:
    """One record whose timestamp delta counts from another base."""
    _, start = read_uvarint(record, 0)
    raw, rest = read_uvarint(record, start + 1)
    body = bytearray(record[start : start + 1])
    write_varint(body, ((raw >> 1) ^ -(raw & 1)) + shift_ms)
    body += record[rest:]
    out = bytearray()
    write_uvarint(out, len(body) << 1)
    return bytes(out + body)
