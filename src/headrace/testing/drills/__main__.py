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
        drill = DRILLS[name]
        for mode in arguments.modes or MODES:
            if drill.zookeepers is not None and mode == "sqlite":
                continue
            if drill.hosts and (reason := missing()) is not None:
                print(f"{name} ({mode}): not run: {reason}", flush=True)
                continue
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
            except (AssertionError, HostsUnavailable) as error:
                ran.append(Ran(name, drill.about, mode, time.monotonic() - began, None, str(error)))
                print(f"{name} ({mode}): FAILED: {error}", flush=True)
                rows.append((name, mode, "FAILED", *[""] * (len(HEADER) - 3)))
                continue
            ran.append(Ran(name, drill.about, mode, time.monotonic() - began, result))
            write_report(arguments.report, ran)
            rows.append(row(name, mode, result))
            said = [*result.problems, *sorted(set(result.failures)), *result.notes]
            print(
                f"{name} ({mode}): {rows[-1][2]} in {time.monotonic() - began:.0f} s",
                *said,
                sep="\n    ",
                flush=True,
            )
    print(table(rows))
    print(f"\nThe report, with pictures: {write_report(arguments.report, ran)}")
    return 0 if all(one.passed for one in ran) else 1


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:22}{drill.about}" for name, drill in DRILLS.items()]
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
