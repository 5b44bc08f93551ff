"""Bad input on the wire: framing, headers, versions, bodies (reliability.md section 5).

Broken framing, header or body: the connection is closed without an answer. Well-formed but wrong: the right error
code. In every case a well-behaved client beside it sees no error, which `neighbour` watches.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from headrace.testing.raw_client import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    ConnectionClosed,
    FetchLimits,
    RawClient,
    build_batch,
    fetch_body,
    frame,
    produce_body,
    request_header,
    text,
)
from tests.compat.conftest import MakeTopic

UNSUPPORTED_VERSION = 35
TIMEOUT_S = 60.0
LIST_OFFSETS, CREATE_TOPICS = 2, 19
IMPOSSIBLE_NAMES = ("..", ".", "a/b", "../../etc/passwd", "x" * 250, "nul\0", "line\nfeed", "", "ü")


@pytest.fixture
def neighbour(bootstrap: str, make_topic: MakeTopic) -> Iterator[str]:
    """A client that writes and reads all the while; the test fails if it ever sees an error."""
    name = make_topic()
    stop = threading.Event()
    done: list[int] = []
    failures: list[BaseException] = []

    def behave() -> None:
        try:
            with RawClient(bootstrap) as client:
                while not stop.is_set():
                    answer = client.produce(name, 0, build_batch([b"well-behaved"]))
                    assert (answer.error, answer.base_offset) == (0, len(done))
                    assert client.fetch(name, 0, len(done)).high_watermark == len(done) + 1
                    done.append(1)
                    time.sleep(0.005)
        except BaseException as failure:
            failures.append(failure)
            raise

    thread = threading.Thread(target=behave)
    thread.start()
    yield name
    enough = len(done) + 2
    deadline = time.monotonic() + TIMEOUT_S
    while len(done) < enough and not failures and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    thread.join()
    assert failures == []
    assert len(done) >= enough


def raw(bootstrap: str) -> RawClient:
    return RawClient(bootstrap, timeout_s=TIMEOUT_S)


def assert_closed(bootstrap: str, data: bytes) -> None:
    """The broker closes the connection on these bytes, and has not answered anything."""
    with raw(bootstrap) as client:
        with contextlib.suppress(ConnectionClosed):
            client.send(data)
        assert client.is_closed_by_peer()


@pytest.mark.usefixtures("neighbour")
class TestFraming:
    @pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1])
    def test_length_out_of_range(self, bootstrap: str, length: int) -> None:
        """Negative, or above socket.request.max.bytes: closed before anything is read or allocated."""
        assert_closed(bootstrap, struct.pack(">i", length) + b"x" * 100)

    def test_length_zero(self, bootstrap: str) -> None:
        """A frame with nothing in it has no header."""
        assert_closed(bootstrap, struct.pack(">i", 0))

    @pytest.mark.parametrize("size", range(1, 8))
    def test_header_cut_off(self, bootstrap: str, size: int) -> None:
        assert_closed(bootstrap, frame(request_header(API_VERSIONS, 0, 1, None)[:size]))

    def test_client_id_longer_than_the_frame(self, bootstrap: str) -> None:
        assert_closed(bootstrap, frame(struct.pack(">hhih", METADATA, 4, 1, 500) + b"short"))

    def test_http(self, bootstrap: str) -> None:
        """`GET ` is a length of 1.2 billion."""
        assert_closed(bootstrap, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def test_tls_hello(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain, pytest.raises(OSError):
            context.wrap_socket(plain)

    def test_nothing_at_all(self, bootstrap: str) -> None:
        """Connect and close, a hundred times: port scanners and health checks do."""
        for _ in range(100):
            raw(bootstrap).close()

    def test_reset_in_the_middle_of_a_frame(self, bootstrap: str) -> None:
        for size in (1, 3, 4, 10, 1000):
            with raw(bootstrap) as client:
                client.send((struct.pack(">i", 100_000) + b"z" * 2_000)[:size])
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def test_slow_sender(self, bootstrap: str) -> None:
        """One byte at a time is slow, not wrong."""
        request = frame(request_header(API_VERSIONS, 0, 77))
        with raw(bootstrap) as client:
            for position in range(len(request)):
                client.send(request[position : position + 1])
                time.sleep(0.005)
            assert struct.unpack_from(">ih", client.receive_frame()) == (77, 0)

    def test_many_half_sent_requests(self, bootstrap: str) -> None:
        """Half-open senders hold nothing but their own connection."""
        half = [raw(bootstrap) for _ in range(200)]
        for client in half:
            client.send(struct.pack(">i", 1_000_000) + b"half")
        with raw(bootstrap) as other:
            assert other.api_versions()
        for client in half:
            client.close()


@pytest.mark.usefixtures("neighbour")
class TestHeaders:
    @pytest.mark.parametrize("api_key", [-1, 999, 32767])
    def test_unknown_api(self, bootstrap: str, api_key: int) -> None:
        assert_closed(bootstrap, frame(request_header(api_key, 0, 1)))

    @pytest.mark.parametrize(
        ("api_key", "version"),
        [
            (METADATA, 100),
            (METADATA, -1),
            (FETCH, 99),
            (FETCH, 3),
            (PRODUCE, 99),
            (LIST_OFFSETS, 0),
            (CREATE_TOPICS, 1),
        ],
    )
    def test_unsupported_version(self, bootstrap: str, api_key: int, version: int) -> None:
        assert_closed(bootstrap, frame(request_header(api_key, version, 1) + bytes(20)))

    @pytest.mark.parametrize("version", [5, 99, 32767])
    def test_api_versions_of_the_future(self, bootstrap: str, version: int) -> None:
        """KIP-511: answered as v0 with error 35 and the versions there are, so that the client can try again."""
        with raw(bootstrap) as client:
            client.send(frame(request_header(API_VERSIONS, version, 9) + b"\0\2x\2y\0"))
            answer = client.receive_frame()
            correlation_id, error, count = struct.unpack_from(">ihi", answer)
            assert (correlation_id, error) == (9, UNSUPPORTED_VERSION)
            rows = list(struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count]))
            assert API_VERSIONS in [key for key, _, _ in rows]
            assert client.api_versions()

    def test_produce_is_advertised_from_zero(self, bootstrap: str) -> None:
        """Otherwise librdkafka up to 2.11 silently drops compression."""
        with raw(bootstrap) as client:
            lowest, highest = client.api_versions()[PRODUCE]
        assert lowest == 0
        assert highest >= 11

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_produce_below_three_is_refused(self, bootstrap: str, topic: str, version: int) -> None:
        """Advertised, but its message formats are gone: refused without harm."""
        body = struct.pack(">hii", 1, 1000, 1) + text(topic) + struct.pack(">iii", 1, 0, 0)
        with raw(bootstrap) as client:
            client.send(frame(request_header(PRODUCE, version, 1) + body))
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                client.receive_frame()
        with raw(bootstrap) as client:
            assert client.fetch(topic, 0, 0).high_watermark == 0

    def test_client_id_may_be_null_or_long(self, bootstrap: str) -> None:
        for client_id in (None, "", "x" * 1_000, "имя"):
            with raw(bootstrap) as client:
                client.send(frame(request_header(API_VERSIONS, 0, 5, client_id)))
                assert struct.unpack_from(">ih", client.receive_frame()) == (5, 0)

    def test_unknown_tagged_fields_are_skipped(self, bootstrap: str) -> None:
        """A newer client may say more than we know: in the header and in the body."""
        header = request_header(API_VERSIONS, 3, 6) + b"\2\x63\3abc\x64\0"
        with raw(bootstrap) as client:
            client.send(frame(header + b"\5test\0041.0\1\x63\2xy"))
            assert struct.unpack_from(">ih", client.receive_frame()) == (6, 0)


def metadata_request(body: bytes) -> bytes:
    return frame(request_header(METADATA, 4, 1) + body)


@pytest.mark.usefixtures("neighbour")
class TestBodies:
    @pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 50])
    def test_count_larger_than_the_frame(self, bootstrap: str, count: int) -> None:
        assert_closed(bootstrap, metadata_request(struct.pack(">i", count) + text("a") + b"\0"))

    def test_string_longer_than_the_frame(self, bootstrap: str) -> None:
        assert_closed(bootstrap, metadata_request(struct.pack(">ih", 1, 32767) + b"abc"))

    def test_body_cut_off_everywhere(self, bootstrap: str, topic: str) -> None:
        whole = produce_body(topic, 0, build_batch([b"v"]))
        head = request_header(PRODUCE, 8, 1)
        for size in range(0, len(whole) - 1, 7):
            assert_closed(bootstrap, frame(head + whole[:size]))
        with raw(bootstrap) as client:
            assert client.fetch(topic, 0, 0).high_watermark == 0

    def test_fetch_cut_off_everywhere(self, bootstrap: str, topic: str) -> None:
        whole = fetch_body(topic, 0, 0)
        for size in range(0, len(whole) - 1, 7):
            assert_closed(bootstrap, frame(request_header(FETCH, 11, 1) + whole[:size]))

    def test_trailing_bytes_are_ignored(self, bootstrap: str) -> None:
        """librdkafka sends three of them with its Metadata request for all topics."""
        with raw(bootstrap) as client:
            client.send(metadata_request(struct.pack(">i", 0) + b"\0" + b"more"))
            assert struct.unpack_from(">i", client.receive_frame())[0] == 1
            assert client.api_versions()

    def test_invalid_utf8(self, bootstrap: str) -> None:
        assert_closed(bootstrap, metadata_request(struct.pack(">ih", 1, 2) + b"\xff\xfe" + b"\0"))

    def test_null_where_none_may_be(self, bootstrap: str) -> None:
        """A null topic name in Metadata v4."""
        assert_closed(bootstrap, metadata_request(struct.pack(">ih", 1, -1) + b"\0"))

    def test_overlong_varint(self, bootstrap: str) -> None:
        """A compact string whose length never ends."""
        header = request_header(API_VERSIONS, 3, 1) + b"\0"
        assert_closed(bootstrap, frame(header + b"\xff" * 12))

    def test_compact_count_larger_than_the_frame(self, bootstrap: str) -> None:
        """Metadata v9 is flexible: the array's count is a varint."""
        header = request_header(METADATA, 9, 1) + b"\0"
        assert_closed(bootstrap, frame(header + b"\xff\xff\xff\xff\x07" + b"\0\0\0\0"))

    @pytest.mark.parametrize(
        "name", ["..", ".", "a/b", "../../etc/passwd", "x" * 250, "nul\0", "line\nfeed", "", "ü"]
    )
    def test_names_that_no_topic_can_have(self, bootstrap: str, name: str) -> None:
        """Well-formed, so there is an answer: no such topic, wherever the name turns up."""
        with raw(bootstrap) as client:
            assert client.topic_error(name, allow_auto_creation=True) in (3, 17)
            assert client.produce(name, 0, build_batch([b"v"])).error in (3, 17)
            assert client.fetch(name, 0, 0).error in (3, 17)

    def test_name_of_300_characters(self, bootstrap: str) -> None:
        with raw(bootstrap) as client:
            assert client.topic_error("y" * 300, allow_auto_creation=True) in (3, 17)


@pytest.mark.usefixtures("neighbour")
class TestPipelining:
    def test_answers_keep_their_order(self, bootstrap: str, topic: str) -> None:
        """Fast and slow requests mixed; the answers come in the order of the requests."""
        kinds = [
            (API_VERSIONS, 0, b""),
            (METADATA, 4, struct.pack(">i", 0) + b"\0"),
            (PRODUCE, 8, produce_body(topic, 0, build_batch([b"v"]))),
            (FETCH, 11, fetch_body(topic, 0, 0, FetchLimits(max_wait_ms=20, min_bytes=10_000_000))),
        ]
        with raw(bootstrap) as client:
            requests = b""
            for number in range(100):
                api_key, version, body = kinds[number % len(kinds)]
                requests += frame(request_header(api_key, version, number) + body)
            client.send(requests)
            got = [struct.unpack_from(">i", client.receive_frame())[0] for _ in range(100)]
        assert got == list(range(100))

    def test_never_reading(self, bootstrap: str, topic: str) -> None:
        """A client that asks and asks and never reads is held up by its own socket, and harms nobody."""
        with raw(bootstrap) as filler:
            for _ in range(4):
                assert filler.produce(topic, 0, build_batch([b"z" * 900_000])).error == 0
        request = frame(request_header(FETCH, 11, 1) + fetch_body(topic, 0, 0))
        with raw(bootstrap) as greedy:
            greedy.socket.settimeout(0.5)
            with contextlib.suppress(TimeoutError, ConnectionClosed):
                for _ in range(3_000):
                    greedy.send(request)
            with raw(bootstrap) as other:
                began = time.monotonic()
                assert other.api_versions()
                assert time.monotonic() - began < TIMEOUT_S

    def test_hundreds_of_connections(self, bootstrap: str) -> None:
        clients = [raw(bootstrap) for _ in range(300)]
        for client in clients:
            assert client.api_versions()
        for client in clients:
            client.close()
