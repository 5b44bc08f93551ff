"""The record that ends a transaction in a partition: a control batch of one record, in Kafka's format.

    key     version int16 (0) · type int16 (0 abort, 1 commit)
    value   version int16 (0) · coordinator epoch int32

The batch has the id and epoch of the producer whose transaction it ends, no sequence, and the attributes
transactional and control. Readers skip it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.model.errors import KafkaError
from headrace.records.batch import CONTROL, HEADER, LENGTH_OVERHEAD, MAGIC, NO_SEQUENCE, TRANSACTIONAL
from headrace.records.builder import NO_EPOCH, seal
from headrace.records.reader import read_records

ABORT, COMMIT = 0, 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_BATCH = struct.Struct(HEADER.format + "5s hh B hix")
"""A whole marker: the header of the batch, and its record, in which only lengths and the two fields are not 0."""
_BEFORE_KEY, _BEFORE_VALUE = bytes((32, 0, 0, 0, 8)), 12
"""The lengths as varints: of the record (16), the key (4) and the value (6)."""
NO_COORDINATOR_EPOCH = -1


class EndMarker(NamedTuple):
    """What the coordinator of a transaction says to each of its partitions in the end."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """From 2 on the epoch is one above that of the transaction's records (KIP-890, KIP-1228)."""


def build_marker(
    marker: EndMarker, timestamp: int, base_offset: int = 0, leader_epoch: int = NO_EPOCH
) -> bytearray:
    producer_id, producer_epoch, commit, coordinator_epoch, _ = marker
    batch = bytearray(
        _BATCH.pack(
            *(base_offset, _BATCH.size - LENGTH_OVERHEAD, leader_epoch, MAGIC, 0, TRANSACTIONAL | CONTROL, 0),
            *(timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1),
            *(_BEFORE_KEY, _VERSION, COMMIT if commit else ABORT),
            *(_BEFORE_VALUE, _VERSION, coordinator_epoch),
        )
    )
    seal(batch)
    return batch


def read_marker(batch: bytes | bytearray | memoryview) -> tuple[int | None, int]:
    """(type, coordinator epoch) of a control batch; (None, -1) if compaction emptied it or it cannot be read."""
    try:
        record = next(iter(read_records(batch)), None)
    except KafkaError:
        return None, NO_COORDINATOR_EPOCH
    if record is None or record.key is None or len(record.key) < _KEY.size:
        return None, NO_COORDINATOR_EPOCH
    kind: int = _KEY.unpack_from(record.key)[1]
    if record.value is None or len(record.value) < _VALUE.size:
        return kind, NO_COORDINATOR_EPOCH
    return kind, int(_VALUE.unpack_from(record.value)[1])
