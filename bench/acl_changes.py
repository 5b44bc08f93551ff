"""How soon a change of access rules is in force on three brokers: `python -m bench.acl_changes --rounds 50`.

A topic has a leader on each broker, and each is written to without a pause over one connection that stays open.
In each round a rule is added that forbids it, and removed again; the brokers are asked for that in turn.
Milliseconds from sending the change until the last broker acts on it, and until the change was answered, with the
embedded store and with ZooKeeper.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median, quantiles

from bench.requests import batch, random_values
from headrace.client.acls import AclBinding, AclQuery, create_acls, delete_acls
from headrace.client.address import Address, parse_bootstrap
from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection, ClientSettings, open_connection
from headrace.env.real import real_env
from headrace.model.errors import ErrorCode
from headrace.testing.process_cluster import ProcessCluster
from headrace.testing.zookeeper import ZooKeeperServer
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = "orders"
BROKERS = 3
PRODUCE_VERSION = 9
PATIENCE_S = 60.0
TOPIC_RESOURCE, LITERAL, WRITE, DENY = 2, 3, 4, 2
SETTINGS: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
FORBIDDEN = AclBinding(TOPIC_RESOURCE, TOPIC, LITERAL, "User:ANONYMOUS", "*", WRITE, DENY)


class Writer:
    """Writes to the partition that a broker leads, over one connection, and knows what the last answer was."""

    def __init__(self, partition: int, connection: ClientConnection) -> None:
        self._connection = connection
        data = PartitionProduceData(index=partition, records=batch(random_values(1, 100)))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        self._request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic])

    async def until(self, code: int) -> float:
        """When the first answer with that code came."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._connection.request(self._request, ProduceResponse, highest=PRODUCE_VERSION)
                if answer.responses[0].partition_responses[0].error_code == code:
                    return time.monotonic()


async def change(writers: Sequence[Writer], asked: Cluster, *, forbid: bool) -> tuple[float, float]:
    """Seconds until all brokers act on it, and until it is answered."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if forbid else ErrorCode.NONE
    waiting = [asyncio.ensure_future(writer.until(code)) for writer in writers]
    await asyncio.sleep(0)
    began = time.monotonic()
    if forbid:
        assert not any(await create_acls(asked, [FORBIDDEN]))
    else:
        assert len(await delete_acls(asked, AclQuery(resource_type=TOPIC_RESOURCE, resource_name=TOPIC))) == 1
    answered = time.monotonic() - began
    return max(await asyncio.gather(*waiting)) - began, answered


async def prepare(bootstrap: str) -> None:
    """A partition for each broker to lead, as soon as all of them are known."""
    assignment = [[broker] for broker in range(1, BROKERS + 1)]
    async with asyncio.timeout(PATIENCE_S), Cluster(real_env(), parse_bootstrap(bootstrap)) as cluster:
        while len((await cluster.metadata([])).brokers) < BROKERS:
            await asyncio.sleep(0.05)
        assert not any((await create_topics(cluster, [NewTopic(TOPIC, assignment=assignment)])).values())


async def measure(addresses: Sequence[Address], rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds until all acted on a change, and until it was answered."""
    async with AsyncExitStack() as stack:
        asked = [
            await stack.enter_async_context(Cluster(real_env(), (address,), ClientSettings()))
            for address in addresses
        ]
        writers = []
        for partition, address in enumerate(addresses):
            connection = await open_connection(address, ClientSettings())
            stack.callback(connection.close)
            writers.append(Writer(partition, connection))
        await asyncio.gather(*(writer.until(ErrorCode.NONE) for writer in writers))
        found = [
            await change(writers, asked[number % BROKERS], forbid=forbid)
            for number in range(rounds)
            for forbid in (True, False)
        ]
    return [seen * 1000 for seen, _ in found], [answered * 1000 for _, answered in found]


def show(store: str, zookeeper: str | None, rounds: int) -> None:
    with ProcessCluster(BROKERS, SETTINGS, zookeeper) as cluster:
        asyncio.run(prepare(cluster.bootstrap))
        addresses = parse_bootstrap(cluster.bootstrap)
        everywhere, answered = asyncio.run(measure(addresses, rounds))
    p99 = quantiles(everywhere, n=100, method="inclusive")[98]
    print(
        f"{store}: {len(everywhere)} changes, answered after {median(answered):.1f} ms, in force on all {BROKERS} "
        f"brokers after {median(everywhere):.1f} ms (p99 {p99:.1f} ms, longest {max(everywhere):.1f} ms)",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.acl_changes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args(arguments)
    show("embedded store", None, options.rounds)
    with ZooKeeperServer() as server:
        show("ZooKeeper", f"{server.connect}/acl-changes", options.rounds)


if __name__ == "__main__":
    main()
