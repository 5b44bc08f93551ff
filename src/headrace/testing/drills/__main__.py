"""Drills: three real brokers under load and faults, and a checker that must find nothing wrong."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from headrace.testing.drills.catalogue import DRILLS
from headrace.testing.drills.launcher import MUTANTS
from headrace.testing.drills.page import Ran, write_report
from headrace.testing.drills.report import HEADER, row, table
from headrace.testing.drills.running import run_drill
from headrace.testing.hosts import HostsUnavailable, missing
from headrace.testing.process import ServerFailed

REPORT = Path("build/drills")
MODES = ("sqlite", "zookeeper")


def main() -> int:
    arguments = _parser().parse_args()
    unknown = sorted(set(arguments.names) - set(DRILLS))
    if unknown:
        print(f"unknown drills: {', '.join(unknown)} (see --help)", file=sys.stderr)
        return 2
    rows: list[tuple[str, ...]] = []
    ran: list[Ran] = []
    for name in arguments.names or DRILLS:
        for mode in arguments.modes or MODES:
            if (reason := _why_not(name, mode)) is not None:
                print(f"{name} ({mode}): not run: {reason}", flush=True)
                continue
            one = _run(name, mode, arguments)
            ran.append(one)
            write_report(arguments.report, ran)
            rows.append(_row(one))
            _tell(one, rows[-1][2])
    if not ran:
        print("no drill was run", file=sys.stderr)
        return 1
    print(table(rows))
    print(f"\nThe report, with pictures: {write_report(arguments.report, ran)}")
    return 0 if all(one.passed for one in ran) else 1


def _why_not(name: str, mode: str) -> str | None:
    drill = DRILLS[name]
    if drill.zookeepers is not None and mode == "sqlite":
        return "it needs ZooKeeper"
    return missing() if drill.hosts else None


def _run(name: str, mode: str, arguments: argparse.Namespace) -> Ran:
    """A server that does not start fails its drill, not those that follow."""
    drill = DRILLS[name]
    began = time.monotonic()
    try:
        result = run_drill(
            name,
            seconds=drill.short_s if arguments.short else drill.full_s,
            zookeeper=mode == "zookeeper",
            seed=arguments.seed,
            mutant=arguments.mutant,
            logs=arguments.logs and arguments.logs / f"{name}-{mode}",
        )
    except (AssertionError, HostsUnavailable, ServerFailed) as error:
        return Ran(name, drill.about, mode, time.monotonic() - began, None, str(error))
    return Ran(name, drill.about, mode, time.monotonic() - began, result)


def _row(one: Ran) -> tuple[str, ...]:
    if one.result is None:
        return (one.name, one.store, "FAILED", *[""] * (len(HEADER) - 3))
    return row(one.name, one.store, one.result)


def _tell(one: Ran, outcome: str) -> None:
    if one.result is None:
        print(f"{one.name} ({one.store}): FAILED: {one.failure}", flush=True)
        return
    said = [*one.result.problems, *sorted(set(one.result.failures)), *one.result.notes]
    print(f"{one.name} ({one.store}): {outcome} in {one.seconds:.0f} s", *said, sep="\n    ", flush=True)


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:24}{drill.about}" for name, drill in DRILLS.items()]
    defects = [f"  {name:26}{act.__doc__}" for name, act in MUTANTS.items()]
    proofs = [f"  {name} --mutant {drill.mutant}" for name, drill in DRILLS.items() if drill.mutant is not None]
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.drills",
        description=__doc__,
        epilog="\n".join(["drills:", *lines, "", "defects:", *defects, "", "must fail:", *proofs]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="DRILL", help="all by default")
    parser.add_argument("--short", action="store_true", help="some seconds each, instead of minutes")
    parser.add_argument(
        "--mode", dest="modes", action="append", choices=MODES, help="the coordination store; both by default"
    )
    parser.add_argument("--seed", type=int, default=1, help="for what is chosen at random (1)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the brokers' logs there")
    parser.add_argument(
        "--report", type=Path, metavar="DIR", default=REPORT, help=f"write the report there ({REPORT})"
    )
    parser.add_argument("--mutant", choices=MUTANTS, help="run brokers with a defect: the drill must fail")
    return parser


if __name__ == "__main__":
    sys.exit(main())
