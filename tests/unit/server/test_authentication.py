"""The gate of SASL listeners: what a connection may say before, during and after its login."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk, real_env
from headrace.metadata.offline_users import store_user
from headrace.metadata.stores import open_store
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.node import Node
from headrace.security.sasl import plain_message
from headrace.security.scram import ScramClient, new_credential
from headrace.testing.in_process import Client, connect, env_with
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.fetch import FetchRequest, FetchResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.cli.command_line import headrace

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{PLAIN} required username="admin" password="a" user_admin="a" user_alice="secret" user_bob="secret";'
SCRAM_JAAS = f'{SCRAM} required username="admin" password="a";'
MECHANISM = "SCRAM-SHA-256"


def settings(data: Path, node: int = 1, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data),
        "node.id": str(node),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@asynccontextmanager
async def started(file: dict[str, str]) -> AsyncIterator[tuple[Node, str]]:
    node = Node(env_with(RealDisk()), BrokerConfig.build(file=file))
    try:
        yield node, await node.start()
    finally:
        await node.stop()


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with started(settings(tmp_path)) as (_, address):
        yield address


async def handshake(client: Client, mechanism: str = "PLAIN") -> SaslHandshakeResponse:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)


async def say(client: Client, message: bytes) -> SaslAuthenticateResponse:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, 2)


async def logged_in(address: str, user: str = "alice") -> Client:
    client = await connect(address)
    assert (await handshake(client)).error_code == 0
    assert (await say(client, plain_message(user, "secret"))).error_code == 0
    return client


async def see(client: Client) -> MetadataResponse:
    return await client.ask(MetadataRequest(topics=None), MetadataResponse, 9)


async def test_versions_may_be_asked_for_before(address: str) -> None:
    client = await connect(address)
    answer = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert answer.error_code == 0


@pytest.mark.parametrize("begin", [False, True], ids=["at once", "in the middle of the login"])
async def test_nothing_else_may(address: str, begin: bool) -> None:
    for ask in (see, lambda client: client.ask(FetchRequest(max_bytes=1), FetchResponse, 12)):
        client = await connect(address)
        if begin:
            await handshake(client)
        with pytest.raises(asyncio.IncompleteReadError):
            await ask(client)


def frame_of(size: int) -> bytes:
    """The beginning of a request that would be so long."""
    return struct.pack(">ihhi", size, 18, 0, 7)


@pytest.mark.parametrize("together", [True, False], ids=["length and more", "length alone"])
async def test_a_client_is_not_heard_out_before_its_login(tmp_path: Path, together: bool) -> None:
    """A length alone must not make the broker hold a hundred megabytes."""
    async with started(settings(tmp_path, sasl_server_max_receive_size="1000")) as (_, address):
        for size, is_closed in ((1000, False), (1001, True)):
            reader, writer = await asyncio.open_connection(*address.split(":"))
            begun = frame_of(size)
            writer.write(begun[:2])
            await writer.drain()
            writer.write(begun[2:] if together else begun[2:4])
            if is_closed:
                assert await asyncio.wait_for(reader.read(), 60) == b""
            else:
                writer.write((begun + bytes(size))[12 if together else 4 : 4 + size])
                assert len(await asyncio.wait_for(reader.readexactly(8), 60)) == 8, "answered"
            writer.close()
        client = await logged_in(address)
        names = [MetadataRequestTopic(name=f"{number:0200}") for number in range(10)]
        seen = await client.ask(
            MetadataRequest(topics=names, allow_auto_topic_creation=False), MetadataResponse, 9
        )
        assert len(seen.topics) == len(names), "after it, requests may be longer"


async def test_after_the_login_everything_is_as_usual(address: str) -> None:
    client = await logged_in(address)
    assert (await see(client)).cluster_id


async def test_the_mechanisms_are_told(address: str) -> None:
    client = await connect(address)
    answer = await handshake(client, "GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert (await handshake(client)).error_code == 0, "and another may be tried"


async def test_a_command_with_another_mechanism_is_told_which_there_are(address: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\nsasl.username=u\nsasl.password=p\n"
    )
    done = await asyncio.to_thread(headrace, "topic", "list", "-b", address, "--client-config", str(file))
    assert done.returncode == 5, done
    assert f"The broker does not offer {MECHANISM}, only PLAIN" in done.stderr
    assert "Set sasl.mechanism" in done.stderr


async def test_a_listener_at_which_nobody_can_log_in_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        found = [line.getMessage() for line in caplog.records if "Nobody can log in" in line.getMessage()]
        caplog.clear()
        return found

    file = settings(tmp_path, sasl_enabled_mechanisms=MECHANISM)
    own = {"sasl.mechanism.inter.broker.protocol": MECHANISM}
    file = {**file, **own, f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": SCRAM_JAAS}
    async with started(file):
        (line,) = told()
        assert "listener SASL_PLAINTEXT: it offers only SCRAM-SHA-256" in line
        assert f"`headrace user add NAME --mechanism {MECHANISM} --offline FILE`" in line
    store = await open_store(real_env(), BrokerConfig.build(file=file))
    await store_user(real_env(), store, "u", "SCRAM-SHA-512", new_credential("SCRAM-SHA-512", "p", b"salt", 4096))
    async with started(file):
        assert len(told()) == 1, "that is a password for another mechanism"
    await store_user(real_env(), store, "u", MECHANISM, new_credential(MECHANISM, "p", b"salt", 4096))
    await store.close()
    async with started(file):
        assert told() == []
    async with started({**file, "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}", "log.dirs": str(tmp_path / "o")}):
        assert told() == [], "users of PLAIN are in the settings"


async def test_steps_out_of_order(address: str) -> None:
    client = await connect(address)
    assert (await say(client, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    await handshake(client)
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("message", [plain_message("alice", "wrong"), plain_message("eve", "secret"), b""])
async def test_a_failed_login_ends_the_connection(address: str, message: bytes) -> None:
    client = await connect(address)
    await handshake(client)
    answer = await say(client, message)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "alice" not in (answer.error_message or "")
    with pytest.raises(asyncio.IncompleteReadError):
        await see(client)


async def test_logging_in_again_as_the_same_user(address: str) -> None:
    client = await logged_in(address)
    assert (await handshake(client)).error_code == 0
    assert (await say(client, plain_message("alice", "secret"))).error_code == 0
    assert (await see(client)).cluster_id


async def test_nobody_becomes_another_user(address: str) -> None:
    client = await logged_in(address)
    await handshake(client)
    answer = await say(client, plain_message("bob", "secret"))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(asyncio.IncompleteReadError):
        await see(client)


async def test_a_session_ends(tmp_path: Path) -> None:
    """With a clock that the test moves: after the time that was told, only a login is heard."""
    now = [1000.0]
    async with started(settings(tmp_path, connections_max_reauth_ms="60000")) as (node, address):
        guard = node.front.dispatcher._guard
        guard.now = lambda: now[0]  # type: ignore[union-attr]
        client = await connect(address)
        await handshake(client)
        answer = await say(client, plain_message("alice", "secret"))
        assert answer.session_lifetime_ms == 60_000
        await see(client)
        now[0] += 50
        assert (await handshake(client)).error_code == 0
        await say(client, plain_message("alice", "secret"))
        now[0] += 50
        await see(client)
        now[0] += 11
        with pytest.raises(asyncio.IncompleteReadError):
            await see(client)


async def add_user(config: BrokerConfig, user: str, password: str) -> None:
    env = real_env()
    for directory in config.log_dirs:
        env.disk.make_directory(directory)
    store = await open_store(env, config)
    await store_user(env, store, user, MECHANISM, new_credential(MECHANISM, password, b"s" * 24))
    await store.close()


async def test_brokers_log_in_at_each_other(tmp_path: Path) -> None:
    """From nothing: the brokers' user is in the store before the first of them starts; then they copy."""
    own = f'{SCRAM} required username="broker" password="between us";'
    scram = {
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": own,
        "authorizer.class.name": "headrace",
        "super.users": "User:broker",
    }
    files = [settings(tmp_path, number) | scram for number in (1, 2)]
    await add_user(BrokerConfig.build(file=files[0]), "broker", "between us")
    async with started(files[0]) as (first, address), started(files[1]) as (second, _):
        controller = next(node._controller for node in (first, second) if node._controller.active)  # type: ignore[union-attr]
        await controller.create_topics([TopicCreation("t", 1, 2)])  # type: ignore[union-attr]
        await until(lambda: _in_sync(first) == {1, 2})
        client = await connect(address)
        await handshake(client, MECHANISM)
        scram_client = ScramClient(MECHANISM, "broker", "between us", b"n" * 24)
        final = scram_client.final((await say(client, scram_client.first())).auth_bytes)
        scram_client.check((await say(client, final)).auth_bytes)
        assert [topic.name for topic in (await see(client)).topics] == ["t"]


def _in_sync(node: Node) -> set[int]:
    partition = node.image.partition(TopicPartition("t", 0))
    return set() if partition is None else set(partition.isr)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)
