"""reliability.md, section 5, against a broker of its own: the cases that need size, memory or time.

Framing, headers, bodies and batches one by one are in tests/compat/test_wire_input.py and test_wire_batches.py.
Here a good client works beside each case and must see no error, and afterwards the memory is where it was.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from headrace.env.certificates import make_authority, make_certificate
from headrace.model.errors import ErrorCode
from headrace.testing.fuzz_broker import GoodClient, create_good_topic, resident_bytes
from headrace.testing.process import HOST, BrokerProcess, free_port
from headrace.testing.raw_client import (
    BatchShape,
    ConnectionClosed,
    RawClient,
    build_batch,
    frame,
    request_header,
    text,
)
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.schema import Request, Response

pytestmark = pytest.mark.headrace_only
MEGABYTE = 1024 * 1024
ALLOWED_GROWTH = 96 * MEGABYTE
ZSTD, GZIP, SNAPPY, LZ4 = 4, 1, 2, 3
METADATA, PRODUCE, FETCH = 3, 0, 1
TIMEOUT_S = 60.0


MAX_CONNECTIONS = 300


class HostileBroker(BrokerProcess):
    """With a plain listener, and one with TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        authority = make_authority("hostile")
        self.authority = authority.pem
        (folder / "broker.pem").write_text(make_certificate(authority, "broker", (HOST,)).store)
        self.tls_port = free_port()
        self.overrides |= {
            "listeners": f"PLAINTEXT://{HOST}:{self.port},SSL://{HOST}:{self.tls_port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "max.connections": str(MAX_CONNECTIONS),
            "queued.max.request.bytes": str(64 * MEGABYTE),
        }

    def secured(self) -> RawClient:
        client = RawClient(f"{HOST}:{self.tls_port}", TIMEOUT_S)
        context = ssl.create_default_context(cadata=self.authority)
        client.socket = context.wrap_socket(client.socket, server_hostname=HOST)
        return client


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileBroker]:
    with HostileBroker(tmp_path_factory.mktemp("hostile")) as running:
        create_good_topic(running.bootstrap)
        yield running


@pytest.fixture(autouse=True)
def unharmed(broker: BrokerProcess) -> Iterator[None]:
    """What must hold whatever a test does."""
    good = GoodClient(broker.bootstrap)
    good.start()
    while not good.done and not good.failures:
        time.sleep(0.01)
    before = resident_bytes(broker.pid)
    yield
    done = good.done
    while good.done < done + 2 and not good.failures:
        time.sleep(0.01)
    good.stop()
    assert broker.exit_code() is None
    assert good.failures == []
    assert "internal error" not in broker.log_text()
    assert resident_bytes(broker.pid) < before + ALLOWED_GROWTH


def ask(client: RawClient, request: Request, response: type[Any], version: int) -> Any:
    flexible = version >= request.flexible_since
    answer = client.request(request.api_key, version, (b"\0" if flexible else b"") + request.encode(version))
    kind: type[Response] = response
    return kind.decode(answer, version, 1 if flexible else 0)


def create(client: RawClient, name: str, **configs: str) -> int:
    pairs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=pairs)
    answer = ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse, 4)
    return int(answer.topics[0].error_code)


def bomb(codec: int, size: int = 512 * MEGABYTE) -> bytes:
    """A batch whose records are `size` zeros when unfolded: 16 KB of zstd stand for 512 MB."""
    if codec == ZSTD:
        packed = bytes(cramjam.zstd.compress(bytes(size)))
    elif codec == GZIP:
        packed = bytes(cramjam.gzip.compress(bytes(size), 9))
    else:
        packed = bytes(cramjam.lz4.compress(bytes(size), 1))
    plain = build_batch([b""], BatchShape(attributes=codec, timestamp=int(time.time() * 1000)))
    after_crc = plain[21:61] + packed
    return struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, crc32c(after_crc)) + after_crc


@pytest.mark.parametrize("codec", [ZSTD, GZIP, LZ4])
def test_compression_bombs(broker: BrokerProcess, codec: int) -> None:
    """Key check, recompression, lookup by time: all unfold within a limit, and say so or make do."""
    charge = bomb(codec, 200 * MEGABYTE)
    assert len(charge) < MEGABYTE
    name = f"bomb-{codec}"
    with RawClient(broker.bootstrap) as client:
        for topic, configs in (
            (f"{name}-keys", {"cleanup_policy": "compact"}),
            (f"{name}-recompressed", {"compression_type": "snappy"}),
        ):
            assert create(client, topic, **configs) == 0
            assert client.produce(topic, 0, charge).error == ErrorCode.RECORD_LIST_TOO_LARGE
        assert create(client, name) == 0
        assert client.produce(name, 0, charge).error == 0, "where nobody looks inside, it is only bytes"
        for timestamp in (0, -3):
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
            found = ask(client, request, ListOffsetsResponse, 7).topics[0].partitions[0]
            assert (found.error_code, found.offset) == (0, 0)


def test_more_records_than_a_compacted_topic_looks_at(broker: BrokerProcess) -> None:
    """A million tiny records in one batch of a compacted topic would hold up everybody."""
    with RawClient(broker.bootstrap) as client:
        assert create(client, "many", cleanup_policy="compact", max_message_bytes="50000000") == 0
        batch = build_batch([b""] * 50_000, key=b"k")
        assert client.produce("many", 0, batch).error == ErrorCode.MESSAGE_TOO_LARGE


def huge_metadata() -> bytes:
    return frame(request_header(METADATA, 4, 1) + struct.pack(">i", 1_000_000) + text("") * 1_000_000 + b"\0")


def huge_produce() -> bytes:
    head = text(None) + struct.pack(">hii", 1, 1000, 1) + text("t")
    parts = b"".join(struct.pack(">ii", index, -1) for index in range(1_000_000))
    return frame(request_header(PRODUCE, 8, 1) + head + struct.pack(">i", 1_000_000) + parts)


def huge_fetch() -> bytes:
    head = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, 0) + struct.pack(">i", 1) + text("t")
    parts = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, 1) for index in range(1_000_000))
    tail = struct.pack(">i", 0) + text("")
    return frame(request_header(FETCH, 11, 1) + head + struct.pack(">i", 1_000_000) + parts + tail)


@pytest.mark.parametrize("make", [huge_metadata, huge_produce, huge_fetch])
def test_a_million_partitions_in_one_request(broker: BrokerProcess, make: Callable[[], bytes]) -> None:
    """Well-formed, but more than one request may ask for: closed before it becomes a million objects."""
    with RawClient(broker.bootstrap, timeout_s=60) as client:
        with contextlib.suppress(ConnectionClosed):
            client.send(make())
        assert client.is_closed_by_peer()


def test_large_requests_that_never_end(broker: BrokerProcess) -> None:
    """A hundred senders that announce 90 MB and send a part: the memory for all of them has a limit."""
    before = resident_bytes(broker.pid)
    half = [RawClient(broker.bootstrap) for _ in range(100)]
    for client in half:
        client.socket.settimeout(0.05)
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            client.send(struct.pack(">i", 90 * MEGABYTE) + bytes(4 * MEGABYTE))
    assert resident_bytes(broker.pid) < before + ALLOWED_GROWTH
    for client in half:
        client.close()


def test_small_requests_that_never_end(broker: BrokerProcess) -> None:
    """Each announces 255 KB and sends five bytes: what is held for it is what it sent."""
    before = resident_bytes(broker.pid)
    half = [RawClient(broker.bootstrap) for _ in range(200)]
    for client in half:
        client.send(struct.pack(">i", 255 * 1024) + b"x")
    with RawClient(broker.bootstrap) as client:
        assert client.api_versions(), "what came before has been read"
    assert resident_bytes(broker.pid) < before + 16 * MEGABYTE
    for client in half:
        client.close()


def test_a_flood_of_connections(broker: BrokerProcess) -> None:
    """Above max.connections they are refused; those there before are served, and after the flood new ones."""
    flood: list[socket.socket] = []
    host, port = broker.bootstrap.rsplit(":", 1)
    for _ in range(600):
        with contextlib.suppress(OSError):
            flood.append(socket.create_connection((host, int(port)), timeout=1))
    for connection in flood:
        connection.close()
    deadline = time.monotonic() + 60
    while True:
        try:
            with RawClient(broker.bootstrap) as client:
                assert client.api_versions()
            return
        except (ConnectionClosed, OSError):
            assert time.monotonic() < deadline


def test_half_open_handshakes_up_to_the_limit(broker: HostileBroker) -> None:
    """Each has its answer from the broker and goes on with nothing. Who is there is served, and who comes."""
    incoming, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    talking = ssl.create_default_context().wrap_bio(incoming, hello, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        talking.do_handshake()
    first = hello.read()
    after: list[int] = []
    with broker.secured() as before:
        for _ in range(3):
            half: list[socket.socket] = []
            for _ in range(MAX_CONNECTIONS):
                one = socket.create_connection((HOST, broker.tls_port), TIMEOUT_S)
                half.append(one)
                with contextlib.suppress(OSError):  # the oldest ones make way
                    one.sendall(first)
                    one.recv(1)
            assert before.api_versions()
            with broker.secured() as late:
                assert late.api_versions()
            for one in half:
                one.close()
            with broker.secured() as late:
                assert late.api_versions(), "all that came before has been seen"
            after.append(resident_bytes(broker.pid))
    assert after[-1] < after[0] + 8 * MEGABYTE, after


def test_join_group_with_megabytes_of_metadata(broker: BrokerProcess) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(20 * MEGABYTE))
    request = JoinGroupRequest(
        group_id="heavy",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    for _ in range(2):
        with RawClient(broker.bootstrap, timeout_s=60) as client, contextlib.suppress(ConnectionClosed):
            answer = ask(client, request, JoinGroupResponse, 5)
            assert answer.error_code in set(ErrorCode)


NESTED = "(((a{1,100}){1,100}){1,100}){1,100}"


@pytest.mark.parametrize("pattern", ["(a+)+$", NESTED, "(" * 5000, "[", "a{1,99999}"])
def test_regular_expressions_that_explode(broker: BrokerProcess, pattern: str) -> None:
    """KIP-848 lets a client send one. Matched in linear time, or refused."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="regex",
        member_id="m-1",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[],
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    with RawClient(broker.bootstrap) as client:
        answer = ask(client, request, ConsumerGroupHeartbeatResponse, 1)
        assert answer.error_code in set(ErrorCode)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc/passwd", "x" * 250, "nul\0", "line\nfeed", "", "ü"])
def test_names_that_no_topic_can_have(broker: BrokerProcess, name: str) -> None:
    with RawClient(broker.bootstrap) as client:
        assert create(client, name) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("ahead_ms", [2 * 3_600_000, None])
def test_timestamps_out_of_range(broker: BrokerProcess, ahead_ms: int | None) -> None:
    with RawClient(broker.bootstrap) as client:
        timestamp = 2**63 - 1 if ahead_ms is None else int(time.time() * 1000) + ahead_ms
        answer = client.produce("good", 0, build_batch([b"v"], BatchShape(timestamp=timestamp)))
        assert answer.error == ErrorCode.INVALID_TIMESTAMP


def test_producer_ids_without_end(broker: BrokerProcess) -> None:
    """Each costs memory for a day: a partition remembers a bounded number."""
    with RawClient(broker.bootstrap) as client:
        assert create(client, "ids") == 0
        for start in range(0, 20_000, 500):
            for producer_id in range(start, start + 500):
                shape = BatchShape(producer_id=producer_id, producer_epoch=0, base_sequence=0)
                client.send(
                    frame(
                        request_header(PRODUCE, 8, 1)
                        + text(None)
                        + struct.pack(">hii", 1, 1000, 1)
                        + text("ids")
                        + struct.pack(">ii", 1, 0)
                        + sized(build_batch([b""], shape))
                    )
                )
            for _ in range(500):
                client.receive_frame()


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
