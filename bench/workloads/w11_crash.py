"""W11: kill -9 under load, then start again."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.admin import end_offset
from bench.asking import first_ack
from bench.loadgen import Load, finish_load, start_load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import batch, produce, random_values
from bench.run import Run
from bench.shapes import MB, PARTITIONS, fill, produce_file

LOAD_BEFORE_KILL_S = 2.0


@workload("W11", "kill -9 under load, restart, first ack", own_system=True)
def crash_and_restart(run: Run) -> Iterator[Measurement]:
    """A broker with a log of large batches is killed (-9) while single records arrive on 16 connections, and
    started again: the time to the first acknowledged record. Errors: acknowledged records that are gone."""
    run.system.start()
    old = run.topic(1)
    batches, _, _ = fill(run, old, run.choose(2000, 300) * MB)
    topic = run.topic(PARTITIONS)
    file = produce_file(run, topic, record_size=100)
    background = start_load(run.system.port, Load(file, connections=16, inflight=4, seconds=60))
    time.sleep(run.choose(LOAD_BEFORE_KILL_S, LOAD_BEFORE_KILL_S / 2))
    run.system.server.kill()
    result = finish_load(background)
    started = time.monotonic()
    run.system.server.launch()
    seconds = first_ack(run.system.port, produce(topic, 0, batch(random_values(1, 100))), started)
    stored = sum(end_offset(run.system.bootstrap, topic, partition) for partition in range(PARTITIONS)) - 1
    lost = max(0, result.records_acked - stored)
    figures = {"first_ack_s": seconds, "start_cpu_s": run.cpu_seconds(), **run.memory()}
    notes = {"acknowledged": result.records_acked, "stored": stored, "old_batches": batches}
    yield Measurement("kill -9", figures, lost, notes)
