"""R-OPS-3: the admin port of a running broker."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import ConfigError
from headrace.env.real import RealClock, real_env
from headrace.failures import StartError
from headrace.metadata.image import MetadataImage
from headrace.metadata.user_decisions import UserAlteration
from headrace.node import Node
from headrace.security.acl import Acl, Operation, Pattern, Permission, Resource
from headrace.security.scram import MECHANISMS, MIN_ITERATIONS, ScramCredential, new_credential
from headrace.server import admin_login
from headrace.server.admin import MAX_CONNECTIONS, AdminServer, Page, json_page
from headrace.testing.in_process import running_node


async def get(port: int, request: bytes) -> tuple[str, str]:
    """The status line and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await asyncio.wait_for(reader.read(), 60)).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.split("\r\n")[0], body


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /page HTTP/1.1", "HTTP/1.1 200 OK", "hello\n"),
        (b"GET /page?x=1 HTTP/1.1", "HTTP/1.1 200 OK", "hello\n"),
        (b"HEAD /page HTTP/1.1", "HTTP/1.1 200 OK", ""),
        (b"GET /json HTTP/1.1", "HTTP/1.1 200 OK", '{\n "a": 1\n}\n'),
        (b"GET /down HTTP/1.1", "HTTP/1.1 503 Service Unavailable", "no\n"),
        (b"GET /other HTTP/1.1", "HTTP/1.1 404 Not Found", "there are: /down /json /page\n"),
        (b"POST /page HTTP/1.1", "HTTP/1.1 405 Method Not Allowed", "only GET is served here\n"),
        (b"nonsense", "HTTP/1.1 400 Bad Request", "not an HTTP request\n"),
    ],
)
async def test_pages(request_line: bytes, status: str, body: str) -> None:
    server = AdminServer(
        {
            "/page": lambda: Page("hello\n"),
            "/json": lambda: json_page({"a": 1}),
            "/down": lambda: Page("no\n", status=503),
        }
    )
    await server.open("127.0.0.1", 0)
    try:
        assert await get(server.port, request_line + b"\r\nHost: x\r\n\r\n") == (status, body)
    finally:
        server.close()


async def test_what_is_not_http_is_hung_up_on() -> None:
    server = AdminServer({})
    await server.open("127.0.0.1", 0)
    try:
        assert await get(server.port, b"x" * 100_000) == ("", "")
    finally:
        server.close()


async def test_a_broker_shows_metrics_and_health(tmp_path: Path, unused_tcp_port: int) -> None:
    async with running_node(tmp_path, headrace_admin_port=str(unused_tcp_port)):
        assert (await get(unused_tcp_port, b"GET /healthz HTTP/1.1\r\n\r\n"))[1] == "ok\n"
        assert (await get(unused_tcp_port, b"GET /readyz HTTP/1.1\r\n\r\n"))[1] == "ready\n"
        metrics = (await get(unused_tcp_port, b"GET /metrics HTTP/1.1\r\n\r\n"))[1]
        assert "kafka_brokers 1\n" in metrics
        assert 'headrace_requests_total{api="Produce"} 0\n' in metrics
        with pytest.raises(StartError, match="Cannot serve metrics on"):
            async with running_node(tmp_path / "other", headrace_admin_port=str(unused_tcp_port)):
                pass


async def ask(port: int, path: str, authorization: str | None = None) -> str:
    """The status."""
    header = "" if authorization is None else f"authorization: {authorization}\r\n"
    line, _ = await get(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
    return line.split(" ")[1]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_tokens_of_a_file(tmp_path: Path, unused_tcp_port: int) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# of Prometheus\nsecret-1\n\n")
    settings: dict[str, Any] = {
        "headrace_admin_port": str(unused_tcp_port),
        "headrace_admin_auth": "token",
        "headrace_admin_token_file": str(tokens),
        "connection_failed_authentication_delay_ms": "0",
    }
    async with running_node(tmp_path / "data", **settings):
        port = unused_tcp_port
        assert [await ask(port, path) for path in ("/healthz", "/readyz")] == ["200", "200"]
        assert await ask(port, "/metrics") == "401"
        assert await ask(port, "/nothing") == "401"
        assert await ask(port, "/metrics", "Bearer secret-1") == "200"
        for wrong in (
            "Bearer secret-2",
            "Bearer",
            "Bearer # of Prometheus",
            "Bearer ",
            basic("a", "secret-1"),
            "x",
        ):
            assert await ask(port, "/metrics", wrong) == "401"
        tokens.write_text("secret-2\n")
        assert await ask(port, "/metrics", "Bearer secret-1") == "401"
        assert await ask(port, "/lag", "bearer secret-2") == "200"
        tokens.unlink()
        assert await ask(port, "/metrics", "Bearer secret-2") == "401"


async def test_users_of_the_cluster(tmp_path: Path, unused_tcp_port: int) -> None:
    """Who has a password and the right to describe the cluster."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{plain} required username="admin" password="a" user_admin="a" user_watcher="w" user_other="o";'
    config = BrokerConfig.build(
        file={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
            "authorizer.class.name": "headrace",
            "super.users": "User:admin",
            "headrace.admin.port": str(unused_tcp_port),
            "headrace.admin.auth": "users",
            "connection.failed.authentication.delay.ms": "0",
        }
    )
    node = Node(real_env(), config)
    await node.start()
    try:
        controller: Any = node._controller
        credential = new_credential("SCRAM-SHA-256", "s", b"salt")
        await controller.alter_users([UserAlteration("scram", "SCRAM-SHA-256", credential)])
        rules = [
            Acl(Resource.CLUSTER, "kafka-cluster", Pattern.LITERAL, f"User:{user}", "*", Operation.DESCRIBE,
                Permission.ALLOW)
            for user in ("watcher", "scram")
        ]  # fmt: skip
        await controller.create_acls(rules)
        port = unused_tcp_port
        for user, password, status in (
            ("admin", "a", "200"),
            ("watcher", "w", "200"),
            ("scram", "s", "200"),
            ("other", "o", "401"),
            ("watcher", "x", "401"),
            ("scram", "x", "401"),
            ("nobody", "x", "401"),
            ("nobody", "", "401"),
            ("", "", "401"),
        ):
            assert await ask(port, "/metrics", basic(user, password)) == status, user
        for nonsense in ("Basic", "Basic !", "Basic " + base64.b64encode(b"\xff").decode(), "Bearer a"):
            assert await ask(port, "/metrics", nonsense) == "401"
    finally:
        await node.stop()


async def test_connections_at_a_time_have_a_limit() -> None:
    server = AdminServer({"/page": lambda: Page("hello\n")})
    await server.open("127.0.0.1", 0)
    request = b"GET /page HTTP/1.1\r\n\r\n"
    silent = []
    try:
        for _ in range(MAX_CONNECTIONS):
            silent.append(await asyncio.open_connection("127.0.0.1", server.port))
        assert await is_refused(server.port)
        for _, writer in silent:
            writer.close()
        while await is_refused(server.port):
            await asyncio.sleep(0.01)
        assert await get(server.port, request) == ("HTTP/1.1 200 OK", "hello\n")
    finally:
        server.close()


async def is_refused(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /page HTTP/1.1\r\n\r\n")
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


async def test_passwords_are_compared_one_after_the_other() -> None:
    """Many wrong ones at once must not take all threads and cores."""
    at_once: list[int] = []
    running = 0

    async def run_blocking(work: Any) -> bool:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0)
        running -= 1
        return False

    env = SimpleNamespace(clock=CountingClock(), run_blocking=run_blocking)
    settings = {"headrace.admin.auth": "users"}
    image = MetadataImage(cluster_id="x")
    broker: Any = SimpleNamespace(
        env=env, config=BrokerConfig.build(flags=settings), metadata=SimpleNamespace(image=image)
    )
    login = admin_login.AdminLogin(broker, None, ("users",))
    await asyncio.gather(*(login.allows(basic("alice", "wrong"), "127.0.0.1") for _ in range(5)))
    assert at_once == [1] * 5


@pytest.mark.parametrize("mechanisms", [(), ("SCRAM-SHA-256",), ("SCRAM-SHA-512",), tuple(MECHANISMS)])
def test_a_wrong_password_is_compared_as_often_whoever_it_is(
    mechanisms: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []

    def noted(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        made.append((mechanism, iterations))
        return new_credential(mechanism, password, salt, iterations)

    monkeypatch.setattr(admin_login, "new_credential", noted)
    known = {mechanism: new_credential(mechanism, "right", b"salt") for mechanism in mechanisms}
    assert not admin_login._matches(known, "wrong", b"secret")
    assert made == [(mechanism, MIN_ITERATIONS) for mechanism in MECHANISMS]


class CountingClock(RealClock):
    """Time passes only when somebody sleeps, and by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        self.passed += 1
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_the_time_of_the_check_is_part_of_the_pause() -> None:
    clock = CountingClock()
    settings = {"headrace.admin.auth": "users", "connection.failed.authentication.delay.ms": "10000"}
    broker: Any = SimpleNamespace(
        env=replace(real_env(), clock=clock),
        config=BrokerConfig.build(flags=settings),
        metadata=SimpleNamespace(image=MetadataImage(cluster_id="x")),
    )
    began = clock.passed + 1
    assert not await admin_login.AdminLogin(broker, None, ("users",)).allows(basic("alice", "wrong"), "127.0.0.1")
    assert clock.slept == [10 - (clock.passed - began)]


def test_an_open_admin_port_needs_a_login() -> None:
    for host in ("0.0.0.0", "", "broker-1"):
        with pytest.raises(ConfigError, match=r"headrace\.admin\.auth"):
            BrokerConfig.build(flags={"headrace.admin.host": host})
        BrokerConfig.build(flags={"headrace.admin.host": host, "headrace.admin.auth": "users"})
        BrokerConfig.build(flags={"headrace.admin.host": host, "headrace.allow.insecure": "true"})
    with pytest.raises(ConfigError, match=r"headrace\.admin\.token\.file"):
        BrokerConfig.build(flags={"headrace.admin.auth": "token"})
