"""Quotas of requests' time, of changes and of new connections, as `bench.quotas` shows them.

Each greedy client does as much as it can in the time. What it got is counted by the client itself, but for the
time of the loop, which is the broker's own count (`headrace_request_busy_seconds_total`) beside its CPU time.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress

from bench import probes
from headrace.client.address import Address, parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection, ClientSettings, open_connection
from headrace.client.quotas import alter_quotas
from headrace.env.real import real_env
from headrace.model.errors import ErrorCode
from headrace.security.quota import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from headrace.testing import Broker
from headrace.testing.in_process import Client
from headrace.testing.process import free_port
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse

GREEDY = "greedy"
PERCENT, CHANGES_PER_S, CONNECTIONS_PER_S = 10.0, 5.0, 20.0
ASKING, CONNECTING = 2, 30
"""The number of connections that send requests at the same time, and the number of those that are opened at the
same time. Each of the former waits for one window at most (`docs/quotas.md`): with many of them, or slow requests,
that alone is more than the quota."""
SHOWN_PARTITIONS = 50
"""The number of partitions of the topic that clients ask about, so that a request takes some time."""
CREATE_VERSION, DELETE_VERSION = 7, 6
GREEDY_ADDRESS = "127.0.0.2"
_BUSY = re.compile(r'^headrace_request_busy_seconds_total\{[^}]*api="Metadata"[^}]*\} (\S+)$', re.MULTILINE)


def show(what: str, got: float, allowed: float, unit: str, more: str = "") -> None:
    off = (got / allowed - 1) * 100
    print(f"{what}: {got:.2f} {unit}, allowed {allowed:g}; off by {off:+.2f} %{more}", flush=True)


async def set_quota(bootstrap: str, entity: QuotaEntity, quota: str, rate: float) -> None:
    async with Cluster(real_env(), parse_bootstrap(bootstrap)) as cluster:
        error = await alter_quotas(cluster, entity, {quota: rate})
        assert error is None, error


# -- the time of the loop


def run_requests(seconds: float) -> None:
    admin_port = free_port()
    with Broker({"headrace.admin.port": str(admin_port)}) as broker:
        asyncio.run(ask_greedily(broker, 0.0))
        asyncio.run(set_quota(broker.bootstrap_servers, ((CLIENT_ID, GREEDY),), REQUEST_PERCENTAGE, PERCENT))
        before, cpu_before = busy_seconds(admin_port), probes.cpu_seconds([broker.pid])
        asyncio.run(ask_greedily(broker, seconds))
        busy = (busy_seconds(admin_port) - before) / seconds * 100
        cpu = (probes.cpu_seconds([broker.pid]) - cpu_before) / seconds * 100
    show("request time", busy, PERCENT, "% of the loop", f" ({cpu:.1f} % of a core in all)")


def busy_seconds(admin_port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=30) as page:
        return sum(map(float, _BUSY.findall(page.read().decode())))


async def ask_greedily(broker: Broker, seconds: float) -> None:
    """Sends Metadata requests for `seconds`. With 0 seconds it creates the topic and sends a single request."""
    (address,) = parse_bootstrap(broker.bootstrap_servers)
    settings = ClientSettings(client_id=GREEDY)
    if not seconds:
        connection = await open_connection(address, settings)
        topic = CreatableTopic(name="shown", num_partitions=SHOWN_PARTITIONS, replication_factor=1)
        await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        await connection.request(MetadataRequest(topics=None), MetadataResponse)
        connection.close()
        return
    end = time.monotonic() + seconds
    connections = [await open_connection(address, settings) for _ in range(ASKING)]
    await asyncio.gather(*(ask_until(connection, end) for connection in connections))
    for connection in connections:
        connection.close()


async def ask_until(connection: ClientConnection, end: float) -> None:
    while (left := end - time.monotonic()) > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await connection.request(MetadataRequest(topics=None), MetadataResponse)


# -- changes of topics


async def change_greedily(bootstrap: str, seconds: float) -> float:
    """Returns changes per second, counted once the saved-up allowance is used."""
    await set_quota(bootstrap, ((CLIENT_ID, GREEDY),), CONTROLLER_MUTATION_RATE, CHANGES_PER_S)
    (address,) = parse_bootstrap(bootstrap)
    connection = await open_connection(address, ClientSettings(client_id=GREEDY))
    made = 0
    while await create(connection, made):
        made += 1
    done, number, end = 0, made, time.monotonic() + seconds
    while time.monotonic() < end:
        if await create(connection, number):
            number += 1
            done += 1
        if await delete(connection, number - 1):
            done += 1
    connection.close()
    return done / seconds


async def create(connection: ClientConnection, number: int) -> bool:
    topic = CreatableTopic(name=f"made-{number}", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    answer = await connection.request(request, CreateTopicsResponse, highest=CREATE_VERSION)
    return await done_or_waited(answer.topics[0].error_code, answer.throttle_time_ms)


async def delete(connection: ClientConnection, number: int) -> bool:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"made-{number}")], timeout_ms=30_000)
    answer = await connection.request(request, DeleteTopicsResponse, highest=DELETE_VERSION)
    return await done_or_waited(answer.responses[0].error_code, answer.throttle_time_ms)


async def done_or_waited(code: int, throttle_ms: int) -> bool:
    if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        await asyncio.sleep(throttle_ms / 1000)
    return code == ErrorCode.NONE


# -- connections


async def connect_greedily(bootstrap: str, seconds: float, own_address: str = "127.0.0.1") -> float:
    """Returns how many connections were served per second."""
    (address,) = parse_bootstrap(bootstrap)
    end = time.monotonic() + seconds
    counts = await asyncio.gather(*(connect_until(address, own_address, end) for _ in range(CONNECTING)))
    return sum(counts) / seconds


async def connect_until(address: Address, own_address: str, end: float) -> int:
    served = 0
    while (left := end - time.monotonic()) > 0:
        with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(left):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, local_addr=(own_address, 0)
                )
                try:
                    await Client(reader, writer).ask(ApiVersionsRequest(), ApiVersionsResponse, 2)
                    served += 1
                finally:
                    writer.close()
    return served


async def of_an_address(bootstrap: str, seconds: float) -> float:
    await set_quota(bootstrap, ((IP, GREEDY_ADDRESS),), CONNECTION_CREATION_RATE, CONNECTIONS_PER_S)
    return await connect_greedily(bootstrap, seconds, GREEDY_ADDRESS)


# -- the kinds that can be measured at the same time


def run_changes_and_connections(seconds: float) -> None:
    """Measures both on four brokers at the same time: none of them has much to do."""
    rate = f"{CONNECTIONS_PER_S:g}"
    settings: Sequence[Mapping[str, str]] = (
        {},
        {},
        {"listener.name.plaintext.max.connection.creation.rate": rate},
        {"max.connection.creation.rate": rate},
    )
    brokers = [Broker(one) for one in settings]
    try:
        for broker in brokers:
            broker.start()
        addresses = [broker.bootstrap_servers for broker in brokers]
        found = asyncio.run(all_of_them(addresses, seconds))
    finally:
        for broker in brokers:
            broker.close()
    show("changes of topics", found[0], CHANGES_PER_S, "per second")
    for what, got in zip(("an address", "a listener", "a broker"), found[1:], strict=True):
        show(f"connections of {what}", got, CONNECTIONS_PER_S, "per second")


async def all_of_them(bootstraps: Sequence[str], seconds: float) -> list[float]:
    changed, address, listener, broker = bootstraps
    found = await asyncio.gather(
        change_greedily(changed, seconds),
        of_an_address(address, seconds),
        connect_greedily(listener, seconds),
        connect_greedily(broker, seconds),
    )
    return list(found)
