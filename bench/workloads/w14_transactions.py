"""W14: transactions, and what exactly-once costs beside the plain ways."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from functools import partial

from bench import probes
from bench.clients import librdkafka
from bench.group_members import Link
from bench.measure import Measurement, latencies, rates
from bench.registry import workload
from bench.requests import random_values
from bench.run import Run
from bench.shapes import KB, PARTITIONS
from bench.transactors import Transactions, Transactor
from bench.workloads.w13_groups import round_trips

PRODUCERS = 16
CASES = {"1 record": 1, "100 records": 100}
RECORD_SIZE = 100

_numbers = itertools.count(1)


@workload("W14", "Transactions")
def transactions(run: Run) -> Iterator[Measurement]:
    """Sixteen producers with transactions version 2, each with its own transactional id and a connection with one
    request in flight: 1 or 100 records of 100 B to one partition, commit, again. A request in these rows is a
    whole transaction. Then librdkafka, one producer, one record a transaction (version 1); librdkafka producing
    1 KB records plain and idempotent; and reading a topic of committed transactions in both isolation levels. The
    broker's CPU per transaction is the figure to look at."""
    for case, count in CASES.items():
        yield asyncio.run(many_producers(run, case, count))
    yield one_librdkafka_producer(run)
    yield from idempotence(run)
    yield from isolation(run)


async def many_producers(run: Run, case: str, count: int) -> Measurement:
    topic, pids = run.topic(PARTITIONS), run.system.pids
    links = await asyncio.gather(*(Link.open(run.system.port) for _ in range(PRODUCERS)))
    values = random_values(count, RECORD_SIZE)
    producers = [
        Transactor(link, f"bench-{next(_numbers)}", topic, [number % PARTITIONS], values)
        for number, link in enumerate(links)
    ]
    try:
        await asyncio.gather(*(producer.begin() for producer in producers))
        await _all(producers, run.choose(3.0, 0.7))
        watch = run.watch()
        before, started = probes.cpu_seconds(pids), time.perf_counter()
        found = await _all(producers, run.choose(5.0, 1.0))
        seconds, cpu = time.perf_counter() - started, probes.cpu_seconds(pids) - before
    finally:
        for link in links:
            link.close()
    taken = [one for each in found for one in each.seconds]
    figures = rates(seconds=seconds, cpu_seconds=cpu, requests=len(taken), records=len(taken) * count)
    notes = {**watch.notes(0), "asked_again": sum(each.repeated for each in found)}
    return Measurement(case, {**figures, **round_trips(taken), **run.memory()}, 0, notes)


async def _all(producers: list[Transactor], seconds: float) -> list[Transactions]:
    end = time.perf_counter() + seconds
    return await asyncio.gather(*(producer.repeat(end) for producer in producers))


def one_librdkafka_producer(run: Run) -> Measurement:
    topic = run.topic(PARTITIONS)
    watch, before = run.watch(), run.cpu_seconds()
    options: dict[str, int | str] = {"records": run.choose(3_000, 300), "size": RECORD_SIZE, "batch": 1}
    done = librdkafka("transactions", run.system.bootstrap, topic, name=f"bench-{next(_numbers)}", **options)
    cpu = run.cpu_seconds() - before
    figures = rates(seconds=done.seconds, cpu_seconds=cpu, requests=done.records)
    figures |= latencies(done.latency)
    return Measurement("librdkafka 1 record", {**figures, **run.memory()}, done.errors, watch.notes(0))


def idempotence(run: Run) -> Iterator[Measurement]:
    for case, idempotent in (("plain produce", 0), ("idempotent produce", 1)):
        target = (run.system.bootstrap, run.topic(PARTITIONS))
        produce = partial(librdkafka, "produce", *target, size=KB, idempotent=idempotent)
        produce(records=run.choose(50_000, 10_000))
        yield run.measure_client(case, KB, partial(produce, records=run.choose(400_000, 50_000)))


def isolation(run: Run) -> Iterator[Measurement]:
    topic, bootstrap = run.topic(PARTITIONS), run.system.bootstrap
    records = run.choose(400_000, 50_000)
    name = f"bench-{next(_numbers)}"
    librdkafka("transactions", bootstrap, topic, name=name, records=records, size=KB, batch=1_000)
    for level in ("read_uncommitted", "read_committed"):
        consume = partial(librdkafka, "consume", bootstrap, topic, partitions=PARTITIONS, isolation=level)
        yield run.measure_client(level, KB, partial(consume, records=records))
