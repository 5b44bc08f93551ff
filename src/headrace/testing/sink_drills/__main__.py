"""Sink drills: Spark's exactly-once sink with drivers, tasks, executors and brokers that die, and a count."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.testing.process import BrokerProcess, ServerProcess
from headrace.testing.process_cluster import ProcessCluster
from headrace.testing.sink_drills.driver import PER_BATCH
from headrace.testing.sink_drills.dying import MUTANTS
from headrace.testing.sink_drills.matrix import DRILLS, SinkDrillResult, Stage
from headrace.testing.sink_drills.scene import ROWS, Scene

SETTINGS = {"offsets.topic.num.partitions": "4", "default.replication.factor": "1"}
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""Every driver lives for seconds: to compile thoroughly would take half of its time."""


@contextmanager
def started(count: int) -> Iterator[tuple[str, list[ServerProcess]]]:
    if count == 1:
        with BrokerProcess(SETTINGS) as broker:
            yield broker.bootstrap, [broker]
        return
    with ProcessCluster(count, {**SETTINGS, "min.insync.replicas": "2"}) as cluster:
        yield cluster.bootstrap, list(cluster.brokers.values())


def run_drill(name: str, count: int, mutant: str | None = None, *, short: bool = False) -> SinkDrillResult:
    began = time.monotonic()
    problems: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="sink-drill-", ignore_cleanup_errors=True) as folder,
        started(count) as (bootstrap, brokers),
    ):
        rows = DRILLS[name].batches * PER_BATCH if short else ROWS
        scene = Scene(bootstrap, Path(folder), replicas=count, rows=rows)
        try:
            DRILLS[name].play(Stage(scene, brokers, mutant))
            problems += scene.problems()
        except AssertionError as error:
            problems.append(str(error))
        finally:
            scene.close()
    return SinkDrillResult(name, count, time.monotonic() - began, problems)


def main() -> int:
    lines = [f"  {name:20}{drill.about}" for name, drill in DRILLS.items()]
    defects = [f"  {name:20}{act.__doc__}" for name, act in MUTANTS.items()]
    proofs = [f"  {name} --mutant {drill.mutant}" for name, drill in DRILLS.items() if drill.mutant is not None]
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.sink_drills",
        description=__doc__,
        epilog="\n".join(["drills:", *lines, "", "defects:", *defects, "", "must fail:", *proofs]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="DRILL", help="all by default")
    parser.add_argument("--brokers", type=int, action="append", choices=(1, 3), help="1 and 3 by default")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="plant a defect: the drill must fail")
    parser.add_argument("--short", action="store_true", help="no more batches than a drill needs")
    arguments = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    unknown = sorted(set(arguments.names) - set(DRILLS))
    if unknown:
        print(f"unknown drills: {', '.join(unknown)} (see --help)", file=sys.stderr)
        return 2
    failed = 0
    for name in arguments.names or DRILLS:
        for count in arguments.brokers or DRILLS[name].brokers:
            outcome = run_drill(name, count, arguments.mutant, short=arguments.short)
            failed += bool(outcome.problems)
            verdict = "FAILED" if outcome.problems else "every row once, nothing open"
            where = "one broker" if count == 1 else f"{count} brokers"
            print(
                f"{name} ({where}): {verdict}, {outcome.seconds:.0f} s",
                *outcome.problems,
                sep="\n    ",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
