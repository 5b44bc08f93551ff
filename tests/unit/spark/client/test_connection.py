"""One blocking connection: the way in, the order of answers, and errors that say what was waited for."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headrace.client.address import Address
from headrace.client.errors import CannotReach, ConnectionLost, Reason, RequestTimedOut
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.spark.client.connection import BlockingConnection, ClusterSettings
from headrace.testing.process import free_port
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages.api_versions import ApiVersionsResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.messages.offset_commit import OffsetCommitRequest
from tests.unit.spark.client.fake_cluster import FakeCluster

QUICK = ClusterSettings("unused", connect_timeout_s=0.5, request_timeout_s=0.5)
"""For what never answers."""
PATIENT = ClusterSettings("unused", connect_timeout_s=60.0, request_timeout_s=60.0)
Serve = Callable[[Callable[[socket.socket], None]], Address]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that treats each connection as the test says."""
    listeners: list[socket.socket] = []

    def start(conversation: Callable[[socket.socket], None]) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    conversation(client)

        threading.Thread(target=accept, daemon=True).start()
        return Address("127.0.0.1", listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.close()


def reason(address: Address, settings: ClusterSettings = PATIENT) -> Reason:
    with pytest.raises(CannotReach) as caught:
        BlockingConnection.open(address, settings)
    return caught.value.reason


def test_nothing_listens() -> None:
    assert reason(Address("127.0.0.1", free_port())) is Reason.REFUSED


def test_an_unknown_host() -> None:
    assert reason(Address("no-such-host.invalid", 9092)) is Reason.UNKNOWN_HOST


def test_a_web_server_is_recognised(serve: Serve) -> None:
    def web(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert reason(serve(web)) is Reason.HTTP


def test_what_hangs_up_is_not_a_broker(serve: Serve) -> None:
    assert reason(serve(lambda client: None)) is Reason.CLOSED


def test_nonsense_is_not_a_broker(serve: Serve) -> None:
    def nonsense(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(b"\xff" * 40)

    assert reason(serve(nonsense)) is Reason.NOT_KAFKA


def test_a_silent_server(serve: Serve) -> None:
    assert reason(serve(lambda client: time.sleep(3)), QUICK) is Reason.SILENT


def test_an_old_broker_answers_the_version_question_in_its_own_version(serve: Serve) -> None:
    """KIP-511."""
    asked: list[int] = []

    def old(client: socket.socket) -> None:
        while size := client.recv(4):
            frame = client.recv(*struct.unpack(">i", size))
            version, correlation_id = struct.unpack_from(">hi", frame, 2)
            asked.append(version)
            refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            answer = refused if version else ApiVersionsResponse()
            body = struct.pack(">i", correlation_id) + answer.encode(0)
            client.sendall(struct.pack(">i", len(body)) + body)

    BlockingConnection.open(serve(old), PATIENT).close()
    assert asked == [4, 0]


def test_answers_are_read_in_the_order_of_the_requests() -> None:
    with FakeCluster() as cluster:
        cluster.create("a")
        cluster.create("b")
        connection = BlockingConnection.open(cluster.address(1), PATIENT)
        everything = connection.send(MetadataRequest(topics=None))
        nothing = connection.send(MetadataRequest(topics=[]))
        assert connection.outstanding == 2
        assert len(connection.receive(everything, MetadataResponse).topics) == 2
        assert connection.receive(nothing, MetadataResponse).topics == []
        assert connection.outstanding == 0
        connection.close()


def test_a_timeout_names_what_was_waited_for() -> None:
    with FakeCluster() as cluster:
        connection = BlockingConnection.open(cluster.address(1), QUICK)
        cluster.interfere = lambda broker, key: "silence"
        with pytest.raises(RequestTimedOut, match=r"127.0.0.1:\d+ did not answer Metadata in 0.5 s"):
            connection.request(MetadataRequest(topics=None), MetadataResponse)
        assert connection.closed
        with pytest.raises(ConnectionLost):
            connection.request(MetadataRequest(topics=None), MetadataResponse)


def test_the_time_runs_only_while_somebody_waits() -> None:
    """A reader may decode for longer than a request may take."""
    with FakeCluster() as cluster:
        connection = BlockingConnection.open(cluster.address(1), QUICK)
        ticket = connection.send(MetadataRequest(topics=None))
        time.sleep(0.7)
        assert connection.receive(ticket, MetadataResponse).topics == []
        connection.close()


def test_a_lost_connection() -> None:
    with FakeCluster() as cluster:
        connection = BlockingConnection.open(cluster.address(1), PATIENT)
        cluster.interfere = lambda broker, key: "drop"
        with pytest.raises(ConnectionLost):
            connection.request(MetadataRequest(topics=None), MetadataResponse)


def test_an_api_that_the_broker_lacks() -> None:
    with FakeCluster() as cluster:
        connection = BlockingConnection.open(cluster.address(1), PATIENT)
        with pytest.raises(KafkaError, match="has no version of OffsetCommit"):
            connection.version_for(OffsetCommitRequest)
        assert connection.version_for(MetadataRequest, highest=5) == 5
        connection.close()


def test_an_answer_to_another_request_ends_the_connection(serve: Serve) -> None:
    def wrong(client: socket.socket) -> None:
        for added in (0, 7):
            frame = client.recv(1000)
            (correlation_id,) = struct.unpack_from(">i", frame, 8)
            keys = struct.pack(">hi", 0, 1) + struct.pack(">hhh", ApiKey.METADATA, 0, 1)
            if not added:
                frame = client_hello(client, correlation_id)
                (correlation_id,) = struct.unpack_from(">i", frame, 8)
            body = struct.pack(">i", correlation_id + added) + keys
            client.sendall(struct.pack(">i", len(body)) + body)

    def client_hello(client: socket.socket, correlation_id: int) -> bytes:
        body = struct.pack(">i", correlation_id) + struct.pack(">hi", ErrorCode.UNSUPPORTED_VERSION, 0)
        client.sendall(struct.pack(">i", len(body)) + body)
        return client.recv(1000)

    connection = BlockingConnection.open(serve(wrong), QUICK)
    with pytest.raises(ProtocolError, match="answered request"):
        connection.request(MetadataRequest(topics=[]), MetadataResponse)
    assert connection.closed
