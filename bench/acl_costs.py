"""What access rules cost a Produce: `python -m bench.acl_costs --rounds 7`.

Two brokers, one with an authorizer and rules for the topic that is written, one without. The raw load generator
sends Produce of one record of 100 B to each in turn, with 8 connections and 4 requests in flight on each. CPU time
of the broker per request; the medians of the rounds, and of the differences within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench import probes
from bench.loadgen import Load, RequestFiles, run_load
from bench.requests import batch, produce, random_values
from headrace.client.acls import AclBinding, create_acls
from headrace.client.address import parse_bootstrap
from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.env.real import real_env
from headrace.testing.process import BrokerProcess

TOPIC = "orders"
PARTITIONS = 8
CONNECTIONS, IN_FLIGHT = 8, 4
OTHERS = 200
"""Rules that do not apply, as a cluster with many users has them."""
TOPIC_RESOURCE, LITERAL, PREFIXED, WRITE, DENY, ALLOW = 2, 3, 4, 4, 2, 3
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""The last one is for the user who creates the rules; the topic has some, and then only they count."""


async def prepare(bootstrap: str, *, with_rules: bool) -> None:
    async with Cluster(real_env(), parse_bootstrap(bootstrap), ClientSettings()) as cluster:
        await create_topics(cluster, [NewTopic(TOPIC, PARTITIONS, 1)])
        if with_rules:
            rules = [
                AclBinding(TOPIC_RESOURCE, "ord", PREFIXED, "User:ANONYMOUS", "*", WRITE, ALLOW),
                AclBinding(TOPIC_RESOURCE, TOPIC, LITERAL, "User:mallory", "*", WRITE, DENY),
                *(
                    AclBinding(TOPIC_RESOURCE, f"topic-{number}", LITERAL, f"User:u{number}", "*", WRITE, ALLOW)
                    for number in range(OTHERS)
                ),
            ]
            assert not any(await create_acls(cluster, rules))


def cpu_us_per_request(broker: BrokerProcess, requests: Path, seconds: float) -> float:
    load = Load(requests, CONNECTIONS, IN_FLIGHT, seconds=seconds)
    found = run_load(broker.port, load, probes.process_tree(broker.pid))
    assert not found.errors, found.error_codes
    return found.server_cpu_seconds * 1e6 / found.requests


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.acl_costs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    common = {"headrace.admin.port": "0"}
    with (
        BrokerProcess(common) as free,
        BrokerProcess(common | RULES) as ruled,
        tempfile.TemporaryDirectory() as directory,
    ):
        asyncio.run(prepare(free.bootstrap, with_rules=False))
        asyncio.run(prepare(ruled.bootstrap, with_rules=True))
        body = batch(random_values(1, 100))
        requests = RequestFiles(Path(directory)).write(
            produce(TOPIC, partition, body) for partition in range(PARTITIONS)
        )
        for broker in (free, ruled):
            cpu_us_per_request(broker, requests, min(options.seconds, 2.0))
        rounds = []
        for number in range(options.rounds):
            turn = (free, ruled) if number % 2 else (ruled, free)
            costs = {broker: cpu_us_per_request(broker, requests, options.seconds) for broker in turn}
            rounds.append((costs[free], costs[ruled]))
            print(
                f"round {number + 1}: {costs[free]:.2f} µs without rules, {costs[ruled]:.2f} µs with", flush=True
            )
    without, with_rules = (median(column) for column in zip(*rounds, strict=True))
    more = median(after / before - 1 for before, after in rounds) * 100
    print(f"median: {without:.2f} µs without rules, {with_rules:.2f} µs with; {more:+.2f} % within a round")


if __name__ == "__main__":
    main()
