"""`python -m bench`: runs workloads on Apache Kafka and Headrace in turn and writes the results as JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.registry import load_workloads, pick_workloads
from bench.runner import Runner, say
from bench.systems import FACTORIES
from headrace.testing.spreading import spread_subdirectories

RESULTS = Path(__file__).parent / "results"
DEFAULT_ROUNDS = 5


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--workloads", default="", help="such as W1,W4; all by default")
    parser.add_argument("--rounds", type=int, help=f"default {DEFAULT_ROUNDS}, 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="less of everything: minutes instead of an hour")
    parser.add_argument("--systems", default=",".join(FACTORIES), help="kafka,headrace")
    parser.add_argument("--output", type=Path, help="where to write the results")
    parser.add_argument("--list", action="store_true", help="list the workloads and end")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    # Ended from outside, it still ends its clients and removes its files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = parse(arguments)
    if options.list:
        for name, found in load_workloads().items():
            print(f"{name:4} {found.title}")
        return 0
    systems = options.systems.split(",")
    if unknown := [name for name in systems if name not in FACTORIES]:
        say(f"no system {', '.join(unknown)}; there are {', '.join(FACTORIES)}")
        return 2
    output = options.output or RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    output.parent.mkdir(parents=True, exist_ok=True)

    def save(results: dict[str, Any]) -> None:
        output.write_text(json.dumps(results, indent=1))

    try:
        workloads = pick_workloads(options.workloads, quick=options.quick)
    except KeyError as unknown_name:
        say(str(unknown_name.args[0]))
        return 2
    runner = Runner(systems, options.rounds or (1 if options.quick else DEFAULT_ROUNDS), options.quick, save)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        # What one system deletes must not slow the other one's new files down.
        spread_subdirectories(Path(directory))
        tempfile.tempdir = directory
        results = runner.run(workloads)
    save(results)
    say(f"results are in {output}; `python -m bench.report {output}` makes the tables and plots")
    return 1 if results["failures"] or any(run["errors"] for run in results["runs"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
