"""A Fetch answer read in place is the same as one that is copied out."""

from __future__ import annotations

import pytest

from headrace.client.fetch_in_place import FetchInPlace
from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicId
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)


def response(version: int) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=0, high_watermark=9, last_stable_offset=8, records=b"some records"),
        PartitionData(partition_index=1, error_code=6, high_watermark=-1, records=None),
        PartitionData(
            partition_index=2,
            aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=2)],
            records=b"",
        ),
    ]
    topic = FetchableTopicResponse(partitions=partitions)
    if version < 13:
        topic.topic = "t"
    else:
        topic.topic_id = TopicId(b"0123456789abcdef")
    made = FetchResponse(throttle_time_ms=3, responses=[topic])
    if version >= 7:
        made.session_id = 5
    if version >= 16:
        made.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=2)]
    return made


@pytest.mark.parametrize("version", FetchResponse.versions)
def test_it_says_the_same_and_copies_nothing(version: int) -> None:
    assert FetchInPlace.versions == FetchResponse.versions
    frame = memoryview(bytearray(response(version).encode(version)))
    copied, in_place = FetchResponse.decode(frame, version), FetchInPlace.decode(frame, version)
    assert in_place.encode(version) == copied.encode(version) == bytes(frame)
    records = in_place.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"some records"
    at = bytes(frame).index(b"some records")
    frame[at : at + 4] = b"SOME"
    assert bytes(records) == b"SOME records", "it is a view of the frame"
    assert copied.responses[0].partitions[0].records == b"some records"


@pytest.mark.parametrize("version", [11, 12])
def test_records_that_are_cut_off(version: int) -> None:
    whole = response(version).encode(version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            FetchInPlace.decode(memoryview(whole[:size]), version)
