"""W22: one machine with as many workers as cores, and ordinary clients."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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

TOPIC = "shared"
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
    A topic of 8 partitions, one replica. Two librdkafka clients at once, each in a process of its own, produce
    records of 1 KB (5 ms of linger, batches of up to 1 MB), and then each consumes all of them: a client that
    stops earlier throws away what it has fetched ahead, more from a faster broker. MB/s of both together, and the
    CPU of the brokers and of the clients."""
    system = run.system
    if system.name == "headrace":
        system = System(system.name, Workers(system.server.overrides, system.server.root))
    try:
        system.start()
        yield from measure(run, system)
    finally:
        system.server.kill()


def measure(run: Run, system: System) -> Iterator[Measurement]:
    client = admin_client(system.bootstrap)
    for future in client.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result()
    each = run.choose(800_000, 150_000)
    together(system, "produce", each // 4)
    run.reservoir.ready(quiet=False)
    before = stored(system)
    produced = together(system, "produce", each)
    after = stored(system)
    missing = max(0, CLIENTS * each - (after - before))
    yield measurement("produce 1KB", produced, missing)
    yield measurement("consume 1KB", together(system, "consume", after), 0)


def together(system: System, mode: str, records: int) -> tuple[list[ClientResult], float]:
    """The results of clients that run at the same time, and the CPU seconds of the broker."""
    before = probes.cpu_seconds(system.pids)

    def one(_: int) -> ClientResult:
        return librdkafka(mode, system.bootstrap, TOPIC, records=records, size=KB, partitions=PARTITIONS)

    with ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(one, range(CLIENTS)))
    return results, probes.cpu_seconds(system.pids) - before


def measurement(case: str, done: tuple[list[ClientResult], float], missing: int) -> Measurement:
    results, cpu = done
    records = sum(result.records for result in results)
    seconds = max(result.seconds for result in results)
    figures = rates(seconds=seconds, cpu_seconds=cpu, records=records, size=records * KB)
    spent = [result.cpu_seconds for result in results if result.cpu_seconds is not None]
    figures["client_cpu_ms_per_gb"] = sum(spent) * 1e3 / (records * KB / 1e9)
    shares = [result.busiest_thread for result in results if result.busiest_thread is not None]
    if shares:
        figures["client_thread_share"] = max(shares)
    return Measurement(case, figures, sum(result.errors for result in results) + missing)


def stored(system: System) -> int:
    return sum(end_offset(system.bootstrap, TOPIC, number) for number in range(PARTITIONS))
