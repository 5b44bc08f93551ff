"""W9: from the start of the process to the first acknowledged record."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.admin import create_topics
from bench.asking import first_ack
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import Request, batch, produce, random_values
from bench.run import Run

MANY = 10_000
QUICK_MANY = 500
PER_TOPIC = 500


@workload("W9", "Start to first acknowledged record", own_system=True, max_rounds=2)
def start_to_first_ack(run: Run) -> Iterator[Measurement]:
    """The time from starting the process, after a clean stop, to the first acknowledged record: with one topic
    of one partition, and with 10,000 partitions."""
    request = produce("first", 0, batch(random_values(1, 100)))
    run.system.start()
    create_topics(run.system.bootstrap, {"first": 1})
    yield restart_case(run, "empty", request)
    many = run.choose(MANY, QUICK_MANY)
    create_topics(run.system.bootstrap, {f"wide-{number}": PER_TOPIC for number in range(many // PER_TOPIC)})
    yield restart_case(run, f"{many} partitions", request)


def restart_case(run: Run, case: str, request: Request) -> Measurement:
    stop_started = time.monotonic()
    run.system.stop()
    stopped = time.monotonic()
    run.system.server.launch()
    seconds = first_ack(run.system.port, request, stopped)
    figures = {"first_ack_s": seconds, "stop_s": stopped - stop_started, "start_cpu_s": run.cpu_seconds()}
    return Measurement(case, {**figures, **run.memory()})
