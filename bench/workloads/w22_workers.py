"""W22: one machine with as many workers as cores, and ordinary clients."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka.cimpl import NewTopic

from bench import probes
from bench.admin import admin_client, end_offset
from bench.clients import ClientResult, librdkafka
from bench.measure import Measurement, rates
from bench.registry import workload
from bench.run import Run
from bench.shapes import KB
from bench.systems import System
from headrace.testing.process import BrokerProcess

SHARED, FRESH = "shared", "fresh"
PARTITIONS = 8
CLIENTS = 2
READY = re.compile(r"Headrace brokers? .* (?:is|are) ready at (\S+),")


class Workers(BrokerProcess):
    """`headrace start --workers N`, on ports that the kernel gives."""

    def command(self) -> list[str]:
        command = super().command()
        listeners = next(place for place, part in enumerate(command) if part.startswith("listeners="))
        command[listeners] = "listeners=PLAINTEXT://127.0.0.1:0"
        return [*command, "--workers", str(os.cpu_count())]

    @property
    def bootstrap(self) -> str:
        found = READY.search(self.log_text())
        return found[1] if found else ""

    def _serves(self) -> bool:
        return bool(self.bootstrap)


@workload("W22", "One machine, as many workers as cores", own_system=True)
def workers(run: Run) -> Iterator[Measurement]:
    """One machine: Kafka's single broker, and `headrace start --workers` with as many workers as there are cores.
    Topics of 8 partitions, one replica. Two librdkafka clients at once, each in a process of its own, produce
    records of 1 KB (5 ms of linger, batches of up to 1 MB), and then each consumes all of them: a client that
    stops earlier throws away what it has fetched ahead, more from a faster broker. Then one produces what the
    other consumes meanwhile. MB/s of both together, and the CPU of the brokers, divided into user code and kernel,
    and of the clients."""
    system = run.system
    if system.name == "headrace":
        system = System(system.name, Workers(system.server.overrides, system.server.root))
    try:
        system.start()
        yield from measure(run, system)
    finally:
        system.server.kill()


def measure(run: Run, system: System) -> Iterator[Measurement]:
    for topic in (SHARED, FRESH):
        create(system, topic)
    each = run.choose(800_000, 150_000)
    together(system, SHARED, [("produce", each // 4)] * CLIENTS)
    run.reservoir.ready(quiet=False)
    before = stored(system, SHARED)
    produced = together(system, SHARED, [("produce", each)] * CLIENTS)
    after = stored(system, SHARED)
    yield measurement("produce 1KB", produced, CLIENTS * each, missing=max(0, CLIENTS * each - (after - before)))
    consumed = together(system, SHARED, [("consume", after)] * CLIENTS)
    yield measurement("consume 1KB", consumed, CLIENTS * after)
    run.reservoir.ready(quiet=False)
    both = together(system, FRESH, [("produce", each), ("consume", each)])
    yield measurement("produce and consume 1KB", both, each)


def create(system: System, topic: str) -> None:
    client = admin_client(system.bootstrap)
    for future in client.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()


@dataclass(frozen=True, slots=True)
class Together:
    """What clients did that ran at the same time, and what it cost the brokers."""

    clients: list[ClientResult]
    user_seconds: float
    kernel_seconds: float


def together(system: System, topic: str, clients: Sequence[tuple[str, int]]) -> Together:
    """Runs a client for each mode and number of records, all at the same time."""
    user, kernel = probes.split_cpu_seconds(system.pids)

    def one(mode: str, records: int) -> ClientResult:
        return librdkafka(mode, system.bootstrap, topic, records=records, size=KB, partitions=PARTITIONS)

    with ThreadPoolExecutor(len(clients)) as pool:
        results = list(pool.map(one, *zip(*clients, strict=True)))
    user_after, kernel_after = probes.split_cpu_seconds(system.pids)
    return Together(results, user_after - user, kernel_after - kernel)


def measurement(case: str, done: Together, records: int, missing: int = 0) -> Measurement:
    """The figures for so many records; one that a client writes and another reads is counted once."""
    size = records * KB
    figures = rates(
        seconds=max(client.seconds for client in done.clients),
        cpu_seconds=done.user_seconds + done.kernel_seconds,
        records=records,
        size=size,
    )
    figures["broker_user_ms_per_gb"] = done.user_seconds * 1e3 / (size / 1e9)
    figures["broker_kernel_ms_per_gb"] = done.kernel_seconds * 1e3 / (size / 1e9)
    spent = [client.cpu_seconds for client in done.clients if client.cpu_seconds is not None]
    figures["client_cpu_ms_per_gb"] = sum(spent) * 1e3 / (size / 1e9)
    shares = [client.busiest_thread for client in done.clients if client.busiest_thread is not None]
    if shares:
        figures["client_thread_share"] = max(shares)
    return Measurement(case, figures, sum(client.errors for client in done.clients) + missing)


def stored(system: System, topic: str) -> int:
    return sum(end_offset(system.bootstrap, topic, number) for number in range(PARTITIONS))
