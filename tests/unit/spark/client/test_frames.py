"""A frame's pieces are the bytes that a plain bytearray would hold."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.client import frames
from headrace.spark.client.frames import APART_FROM_BYTES, Frame
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@given(st.binary(max_size=5), st.lists(st.binary(max_size=12)))
def test_pieces_are_the_bytes_in_order(start: bytes, values: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "APART_FROM_BYTES", 6)
        frame = Frame(start)
        for value in values:
            frame += value
    expected = start + b"".join(values)
    assert b"".join(frame.pieces()) == expected
    assert frame.size == len(expected)


@pytest.mark.parametrize("version", ProduceRequest.versions[:10])
def test_large_records_are_sent_from_where_they_are(version: int) -> None:
    """In every version that names topics: small records beside large ones, a null, and what follows them."""
    records = [bytearray(b"a" * APART_FROM_BYTES), bytearray(b"b"), None, bytearray(b"c" * 2 * APART_FROM_BYTES)]
    partitions = [
        PartitionProduceData(index=index, records=cast("bytes", data)) for index, data in enumerate(records)
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)]
    )
    frame = Frame()
    request.encode_into(frame, version)
    pieces = list(frame.pieces())
    assert b"".join(pieces) == request.encode(version)
    assert [piece.obj for piece in pieces if piece.obj is not frame] == [records[0], records[3]]
    assert len(frame) < APART_FROM_BYTES
