"""The records of __transaction_state, as bytes."""

from __future__ import annotations

import pytest

from headrace.model.errors import ProtocolError
from headrace.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue


def value() -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[1, 2])],
        transaction_last_update_timestamp_ms=11,
        transaction_start_timestamp_ms=10,
    )


def test_key() -> None:
    key = TransactionLogKey(transactional_id="orders")
    assert key.to_bytes() == b"\0\0\0\6orders"
    assert TransactionLogKey.from_bytes(b"\0\0\0\6orders") == key
    with pytest.raises(ProtocolError, match="kind 0, not 1"):
        TransactionLogKey.from_bytes(b"\0\1\0\6orders")


def test_value_version_0() -> None:
    raw = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 01"
        "00000001 0001 61 00000002 00000001 00000002"
        "000000000000000b 000000000000000a"
    )
    assert value().to_bytes(0) == raw
    assert TransactionLogValue.from_bytes(raw) == value()


def test_value_version_1() -> None:
    raw = bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "02 02 61 03 00000001 00000002 00"
        "000000000000000b 000000000000000a 00"
    )
    assert value().to_bytes(1) == raw
    assert TransactionLogValue.from_bytes(raw) == value()


def test_tagged_fields_of_version_1() -> None:
    full = value()
    full.previous_producer_id, full.next_producer_id = 5, 9
    full.next_producer_epoch, full.client_transaction_version = 4, 2
    full.transaction_partitions = None
    raw = full.to_bytes(1)
    assert raw.endswith(bytes.fromhex("04 0008 0000000000000005 0108 0000000000000009 0202 0002 0302 0004")), (
        "tags 0, 1, 2 and 3 in their order"
    )
    assert TransactionLogValue.from_bytes(raw) == full
