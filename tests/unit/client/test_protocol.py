"""The protocol without a socket: frames out, frames in, in whatever pieces they come."""

from __future__ import annotations

import struct

import pytest

from headrace.client.address import Address
from headrace.client.framing import NO_READ_AHEAD, RECEIVE_BUFFER_BYTES, FrameReader
from headrace.client.protocol import AnswerFrame, ClientProtocol, next_step
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.wire.header import parse_request_header, response_header
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.schema import Response

ADDRESS = Address("broker", 9092)
TIMEOUT_S = 3.0
READ_AHEAD = [NO_READ_AHEAD, 64, RECEIVE_BUFFER_BYTES]


def protocol(read_ahead: int = RECEIVE_BUFFER_BYTES, versions: dict[int, range] | None = None) -> ClientProtocol:
    made = ClientProtocol(ADDRESS, "test", FrameReader(read_ahead))
    made.versions = {3: range(13)} if versions is None else versions
    return made


def frame(key: int, version: int, correlation_id: int, message: Response) -> bytes:
    body = response_header(key, version, correlation_id) + message.encode(version)
    return struct.pack(">i", len(body)) + body


def feed(made: ClientProtocol, data: bytes, step: int = 1 << 30) -> list[AnswerFrame]:
    found: list[AnswerFrame] = []
    while data:
        room = made.writable()
        count = min(len(room), len(data), step)
        room[:count] = data[:count]
        found += made.received(count)
        data = data[count:]
    return found


@pytest.mark.parametrize("read_ahead", READ_AHEAD)
@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_answers_find_their_requests(read_ahead: int, step: int) -> None:
    made = protocol(read_ahead)
    tickets = [made.request(MetadataRequest(topics=[]), version, TIMEOUT_S)[0] for version in (5, 12, 9)]
    assert (made.outstanding, made.is_next(tickets[0])) == (3, True)
    data = b"".join(
        frame(
            3,
            ticket.version,
            ticket.correlation_id,
            MetadataResponse(controller_id=ticket.version, cluster_id="x" * 100),
        )
        for ticket in tickets
    )
    answers = feed(made, data, step)
    assert [answer.ticket for answer in answers] == tickets
    decoded = [made.decode(*answer, MetadataResponse).controller_id for answer in answers]
    assert decoded == [5, 12, 9]
    assert made.outstanding == 0


def test_a_request_is_a_whole_frame() -> None:
    made = protocol()
    posted = made.post(MetadataRequest(topics=[]), 4)
    ticket, out = made.request(MetadataRequest(topics=[]), 12, TIMEOUT_S)
    for data, correlation_id, version in ((posted, 1, 4), (out, 2, 12)):
        assert struct.unpack_from(">i", data) == (len(data) - 4,)
        header = parse_request_header(data[4:])
        assert (header.api_key, header.api_version, header.client_id) == (3, version, "test")
        assert header.correlation_id == correlation_id
    assert (made.outstanding, ticket.correlation_id) == (1, 2), "what is posted has no answer"


@pytest.mark.parametrize("correlation_id", [1, 3])
def test_an_answer_out_of_order_is_an_error(correlation_id: int) -> None:
    made = protocol()
    made.post(MetadataRequest(topics=[]), 4)
    made.request(MetadataRequest(topics=[]), 4, TIMEOUT_S)
    made.request(MetadataRequest(topics=[]), 4, TIMEOUT_S)
    with pytest.raises(ProtocolError, match=f"broker:9092 answered request {correlation_id}, not 2"):
        feed(made, frame(3, 4, correlation_id, MetadataResponse()))


@pytest.mark.parametrize("data", [struct.pack(">i", 0), struct.pack(">ih", 2, 0), struct.pack(">ii", 4, 1)])
def test_an_answer_that_nobody_asked_for_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not none"):
        feed(protocol(), data)


def test_the_highest_version_of_both() -> None:
    assert protocol(versions={3: range(2, 6)}).version_for(MetadataRequest) == 5
    assert protocol(versions={3: range(99)}).version_for(MetadataRequest) == MetadataRequest.versions.stop - 1
    assert protocol(versions={3: range(99)}).version_for(MetadataRequest, 4) == 4
    for versions in ({}, {3: range(90, 91)}):
        with pytest.raises(KafkaError, match="broker:9092 has no version of Metadata"):
            protocol(versions=versions).version_for(MetadataRequest)


def test_the_handshake() -> None:
    made = protocol(versions={})
    handshake = made.handshake(TIMEOUT_S)
    step = next_step(handshake)
    assert step is not None
    (ticket, _) = step
    keys = [ApiVersion(api_key=3, min_version=1, max_version=5)]
    ((_, answer),) = feed(made, frame(18, ticket.version, 1, ApiVersionsResponse(api_keys=keys)))
    assert next_step(handshake, answer) is None
    assert made.versions == {3: range(1, 6)}


def test_the_handshake_with_an_old_broker() -> None:
    """KIP-511: it refuses in v0 what it does not know."""
    made = protocol(versions={})
    handshake = made.handshake(TIMEOUT_S)
    assert next_step(handshake) is not None
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    ((_, answer),) = feed(made, frame(18, 0, 1, refused))
    step = next_step(handshake, answer)
    assert step is not None
    assert step[0].version == 0
    keys = [ApiVersion(api_key=3, min_version=0, max_version=2)]
    ((_, answer),) = feed(made, frame(18, 0, 2, ApiVersionsResponse(api_keys=keys)))
    assert next_step(handshake, answer) is None
    assert made.versions == {3: range(3)}


def test_a_broker_that_refuses_the_handshake() -> None:
    made = protocol(versions={})
    handshake = made.handshake(TIMEOUT_S)
    assert next_step(handshake) is not None
    refused = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    ((ticket, answer),) = feed(made, frame(18, 4, 1, refused))
    assert ticket.version == 4
    with pytest.raises(KafkaError, match="refused ApiVersions"):
        next_step(handshake, answer)


def test_what_went_wrong_names_what_was_waited_for() -> None:
    made = protocol()
    ticket, _ = made.request(MetadataRequest(topics=[]), 4, TIMEOUT_S)
    assert str(made.timed_out(ticket)) == "broker:9092 did not answer Metadata in 3 s"
    assert str(made.lost()) == "the connection to broker:9092 was lost"
