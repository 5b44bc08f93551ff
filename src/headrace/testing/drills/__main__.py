"""`python -m headrace.testing.drills [names] [--short] [--zookeeper HOST:PORT/CHROOT]`: drills, with a report."""

from __future__ import annotations

import argparse
import sys
from statistics import median

from headrace.testing.drills.faults import (
    Fault,
    kill_all,
    kill_leader_every,
    kill_two,
    none,
    pause_leader,
    rolling_restart,
)
from headrace.testing.drills.running import DrillResult, run_drill

DRILLS: dict[str, tuple[Fault, float, float]] = {
    "no-fault": (none, 5, 600),
    "kill-leader-20s": (kill_leader_every(20), 20, 120),
    "kill-leader-5s": (kill_leader_every(5), 15, 120),
    "kill-all": (kill_all, 10, 60),
    "kill-two": (kill_two, 10, 60),
    "pause-leader": (pause_leader(15), 15, 300),
    "rolling-restart": (rolling_restart, 10, 120),
}
"""The fault, and seconds of the short and of the full form."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.testing.drills", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DRILLS), help=f"of {', '.join(DRILLS)}; all by default")
    parser.add_argument("--short", action="store_true", help="some seconds each")
    parser.add_argument("--zookeeper", help="coordinate through ZooKeeper: HOST:PORT,.../CHROOT")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.names:
        fault, short, full = DRILLS[name]
        result = run_drill(
            fault, short if arguments.short else full, zookeeper=arguments.zookeeper, seed=arguments.seed
        )
        print(f"{name:18} {report(result)}", flush=True)
        failed += not result.passed
    return 1 if failed else 0


def report(result: DrillResult) -> str:
    verdict = result.verdict
    gaps = f"gap {median(result.gaps):.2f} s, worst {max(result.gaps):.2f} s" if result.gaps else "no gap"
    return (
        f"{'passed' if result.passed else 'FAILED'}: {result.faults} faults, {verdict.acked} acked, "
        f"missing {verdict.acked_missing}, duplicates {verdict.duplicates}, reordered {verdict.order_violations}, "
        f"conflicts {verdict.conflicts}, errors {len(result.failures)}, {gaps}, "
        f"whole after {result.healed_s:.1f} s, differing replicas {result.differing or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(main())
