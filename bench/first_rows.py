"""How long `headrace pipeline run --once` takes, step by step: `python -m bench.first_rows [--rounds 3]`.

Two pipelines over a thousand records for each topic, which are processed in an instant: what is left is the start
of Java, Spark and Python. One copies a topic; the other joins two topics and counts one of them, with three sinks
and the dead letters of two sources, which were five queries when each had one of its own. Both run without a class
archive, with the one that a first run has made (`running/class_archive`), and with that while Java compiles as
much as it does by itself (`COMPILE_LATER` in `running/session`). For the steps see `run_steps`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from bench.run_steps import STEPS, Cost, Steps, run_in_steps
from headrace.testing.process import BrokerProcess

RECORDS = 1000
ONE_TOPIC = """\
name: one-topic
sources:
  raw: {topic: input, format: raw}
sinks:
  copy: {from: raw, topic: output, format: raw}
"""
JOIN = """\
name: join
sources:
  orders:
    topic: orders
    format: json
    schema: "id bigint, at timestamp, amount int"
    watermark: {column: at, delay: 1 minute}
  payments:
    topic: payments
    format: json
    schema: "order_id bigint, paid_at timestamp"
    watermark: {column: paid_at, delay: 1 minute}
steps:
  - name: paid
    sql: |
      SELECT o.id, o.amount, p.paid_at FROM orders o JOIN payments p
      ON o.id = p.order_id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL 10 MINUTES
  - name: minutes
    sql: SELECT window.start AS minute, sum(amount) AS amount FROM orders GROUP BY window(at, '1 minute')
  - {name: large, from: orders, filter: amount > 900}
sinks:
  paid: {from: paid, topic: paid, key: id, create: {partitions: 1}}
  minutes: {from: minutes, topic: minutes, create: {partitions: 1}}
  large: {from: large, topic: large, key: id, create: {partitions: 1}}
"""
PIPELINES = {"one-topic": ONE_TOPIC, "join": JOIN}
NO_ARCHIVE = {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}
"""Whoever gives Java options about archives is left alone: it runs with Java's own."""
ALL_COMPILED = {
    "SPARK_SUBMIT_OPTS": (
        "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 "
        "-XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000"
    )
}
"""Java's own: what a user gives wins."""
KINDS = WITHOUT, MAKING, EAGER, WITH = "no archive", "making one", "compiling more", "as it is"


def headrace(broker: BrokerProcess, *arguments: str, text: str | None = None) -> None:
    command = [sys.executable, "-m", "headrace", *arguments, "-b", broker.bootstrap]
    subprocess.run(command, check=True, input=text, text=True, stdout=subprocess.DEVNULL)


def fill(broker: BrokerProcess) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [(start + timedelta(seconds=number)).isoformat() for number in range(RECORDS)]
    lines = {
        "input": [f"record {number}" for number in range(RECORDS)],
        "orders": [json.dumps({"id": number, "at": at, "amount": number}) for number, at in enumerate(times)],
        "payments": [json.dumps({"order_id": number, "paid_at": at}) for number, at in enumerate(times)],
    }
    for topic in (*lines, "output"):
        headrace(broker, "topic", "create", topic, "--partitions", "1")
    for topic, records in lines.items():
        headrace(broker, "topic", "produce", topic, text="".join(f"{line}\n" for line in records))


def run_once(broker: BrokerProcess, folder: Path, name: str, environment: dict[str, str]) -> Steps:
    """With a checkpoint of its own, so that it processes everything."""
    checkpoint = tempfile.mkdtemp(dir=folder)
    command = [sys.executable, "-m", "headrace", "pipeline", "run", str(folder / f"{name}.yml"), "--once"]
    command += ["--checkpoint", checkpoint, "-b", broker.bootstrap]
    given = {**os.environ, **environment, "HEADRACE_STATE_DIR": f"{checkpoint}/state"}
    return run_in_steps(command, given, Path(checkpoint))


def rounds(
    broker: BrokerProcess, folder: Path, names: Sequence[str], count: int
) -> Iterator[tuple[str, str, Steps]]:
    """The archive is made once, by the run that uses the most of Spark."""
    cache = {"HEADRACE_CACHE_DIR": str(folder / "cache")}
    yield names[-1], MAKING, run_once(broker, folder, names[-1], cache)
    assert list((folder / "cache").glob("*.jsa")), "the run left no archive behind"
    for _ in range(count):
        for name in names:
            yield name, WITHOUT, run_once(broker, folder, name, NO_ARCHIVE)
            yield name, EAGER, run_once(broker, folder, name, cache | ALL_COMPILED)
            yield name, WITH, run_once(broker, folder, name, cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PIPELINES, help="one of the two pipelines")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(PIPELINES)
    found: dict[tuple[str, str], list[Steps]] = {}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess({}, None) as broker:
        folder = Path(directory)
        for name in names:
            (folder / f"{name}.yml").write_text(PIPELINES[name])
        fill(broker)
        for name, kind, steps in rounds(broker, folder, names, arguments.rounds):
            found.setdefault((name, kind), []).append(steps)
            print(f"{name}, {kind}: {shown(steps.total)}, load {os.getloadavg()[0]:.1f}", flush=True)
    for name in names:
        print(f"\n{table(name, {kind: found[name, kind] for kind in KINDS if (name, kind) in found})}")


def table(name: str, runs: dict[str, list[Steps]]) -> str:
    """Medians: seconds, and seconds of CPU in brackets."""
    rows = [f"{name:24}" + "".join(f"{kind:>22}" for kind in runs)]
    for step in STEPS:
        medians = [shown(_median([one.costs[step] for one in all_of])) for all_of in runs.values()]
        rows.append(f"{step:24}" + "".join(f"{text:>22}" for text in medians))
    totals = [shown(_median([one.total for one in all_of])) for all_of in runs.values()]
    rows.append(f"{'together':24}" + "".join(f"{text:>22}" for text in totals))
    counts = [str(round(median(one.pythons for one in all_of))) for all_of in runs.values()]
    rows.append(f"{'Python starts':24}" + "".join(f"{text:>22}" for text in counts))
    return "\n".join(rows)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(median(one.wall_s for one in costs), median(one.cpu_s for one in costs))


def shown(cost: Cost) -> str:
    return f"{cost.wall_s:.1f} s ({cost.cpu_s:.1f} CPU)"


if __name__ == "__main__":
    main()
