"""What a poll costs in a fetch session over many idle partitions: `python -m bench.idle_session [--kafka]`.

CPU of the broker per empty incremental Fetch; with `--kafka` Apache Kafka's beside it, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from statistics import median

from bench import probes
from headrace.testing.apache_kafka import ApacheKafka
from headrace.testing.in_process import Client, connect
from headrace.testing.process import BrokerProcess, ServerProcess
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC = "idle"
VERSION = 12
ROUNDS = 5
WARM_UP_POLLS = 500


async def create(client: Client, partitions: int) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0, answer
    while True:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        found = (await client.ask(asked, MetadataResponse, 9)).topics[0].partitions
        if len(found) == partitions and all(part.error_code == 0 for part in found):
            return
        await asyncio.sleep(0.2)


async def polls(client: Client, session_id: int, epoch: int, count: int) -> int:
    """Sends `count` empty polls; returns the next epoch."""
    for _ in range(count):
        request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch, max_bytes=1 << 20)
        answer = await client.ask(request, FetchResponse, VERSION)
        assert answer.error_code == 0, answer
        epoch += 1
    return epoch


async def measure(server: ServerProcess, partitions: int, count: int) -> list[float]:
    """CPU microseconds per poll, of each round."""
    client = await connect(server.bootstrap)
    await create(client, partitions)
    parts = [FetchPartition(partition=n, partition_max_bytes=1 << 20) for n in range(partitions)]
    first = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic=TOPIC, partitions=parts)])
    session_id = (await client.ask(first, FetchResponse, VERSION)).session_id
    epoch = await polls(client, session_id, 1, WARM_UP_POLLS)
    rounds = []
    for _ in range(ROUNDS):
        before = probes.cpu_seconds([server.pid])
        epoch = await polls(client, session_id, epoch, count)
        rounds.append((probes.cpu_seconds([server.pid]) - before) * 1e6 / count)
    return rounds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.idle_session", description=__doc__)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--polls", type=int, default=500)
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args(arguments)
    makers: dict[str, Callable[[], ServerProcess]] = {"headrace": BrokerProcess}
    if options.kafka:
        makers["kafka"] = ApacheKafka
    for name, make in makers.items():
        with make() as server:
            rounds = asyncio.run(measure(server, options.partitions, options.polls))
        spread = f"{min(rounds):.1f} to {max(rounds):.1f}"
        print(f"{name:9} {options.partitions} idle partitions: {median(rounds):.1f} us CPU per poll ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
