"""Runs the tests with real clients against Apache Kafka and against Headrace, and compares.

    python scripts/conformance.py [--only headrace|kafka] [pytest arguments]

A test that Kafka fails is wrong, or a stated difference (tests/compat/differences.toml, with its reason). The exit
code is 1 when Headrace fails a test, or Kafka one that is not stated, or a stated one passes there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from headrace.testing.apache_kafka import KAFKA_VERSION, OracleUnavailable, fetch_libraries

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/compat"
DIFFERENCES = ROOT / "tests" / "compat" / "differences.toml"
LABELS = {"kafka": f"Apache Kafka {KAFKA_VERSION}", "headrace": "Headrace"}

Results = dict[str, str]
"""What became of each test: passed, failed, skipped."""


def test_name(case: ElementTree.Element) -> str:
    """`tests/compat/test_x.py::TestClass::test_y[param]` from JUnit's dotted class name."""
    parts = case.get("classname", "").split(".")
    classes = [part for part in parts if part.startswith("Test")]
    modules = parts[: len(parts) - len(classes)]
    return "::".join(["/".join(modules) + ".py", *classes, case.get("name", "")])


def read_report(path: Path) -> Results:
    results: Results = {}
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = test_name(case)
        # A test and its teardown are two entries when the teardown fails.
        if results.get(name) != "failed":
            results[name] = outcome
    return results


def run_tests(kind: str, arguments: list[str], report: Path) -> Results:
    """One pytest run against fresh brokers of that kind, which the tests start as they need them."""
    print(f"\n=== {LABELS[kind]} ===", flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", *(arguments or [TESTS]), "-q", "-p", "no:cacheprovider"]
    command += ["--with-java", f"--broker={kind}", f"--junitxml={report}", "-W", "ignore"]
    subprocess.run(command, cwd=ROOT, check=False)
    print(f"{LABELS[kind]}: {time.monotonic() - began:.0f} s", flush=True)
    return read_report(report) if report.exists() else {}


def load_differences() -> dict[str, str]:
    with DIFFERENCES.open("rb") as file:
        return {name: str(row["reason"]) for name, row in tomllib.load(file).items()}


def print_table(runs: Mapping[str, Results], differences: Mapping[str, str]) -> None:
    names = sorted(set().union(*runs.values()))
    width = max(map(len, names), default=0)
    print(f"\n{'test':<{width}}  " + "  ".join(f"{kind:<8}" for kind in runs))
    for name in names:
        outcomes = [results.get(name, "-") for results in runs.values()]
        note = "  stated difference" if name in differences else ""
        print(f"{name:<{width}}  " + "  ".join(f"{outcome:<8}" for outcome in outcomes) + note)
    print()
    for kind, results in runs.items():
        counts = {outcome: list(results.values()).count(outcome) for outcome in ("passed", "failed", "skipped")}
        print(f"{LABELS[kind]}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


def find_problems(runs: Mapping[str, Results], differences: Mapping[str, str]) -> list[str]:
    problems = [f"{LABELS[kind]}: no test ran" for kind, results in runs.items() if not results]
    for name, outcome in runs.get("headrace", {}).items():
        if outcome == "failed":
            problems.append(f"Headrace fails {name}")
    for name, outcome in runs.get("kafka", {}).items():
        if outcome == "failed" and name not in differences:
            problems.append(f"Apache Kafka fails {name}: the test is wrong, or a difference that is not stated")
        if outcome == "passed" and name in differences:
            problems.append(f"Apache Kafka passes {name}, which is stated as a difference")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare Headrace with Apache Kafka, test by test.")
    parser.add_argument("--only", choices=sorted(LABELS), help="run against one of them")
    chosen, arguments = parser.parse_known_args()
    kinds = [chosen.only] if chosen.only else list(LABELS)
    differences = load_differences()
    runs: dict[str, Results] = {}
    try:
        fetch_libraries()
        with tempfile.TemporaryDirectory() as work:
            for kind in kinds:
                runs[kind] = run_tests(kind, arguments, Path(work) / f"{kind}.xml")
    except OracleUnavailable as missing:
        print(missing, file=sys.stderr)
        return 1
    print_table(runs, differences)
    problems = find_problems(runs, differences)
    for problem in problems:
        print(problem)
    for name, reason in differences.items():
        print(f"Stated difference: {name}: {reason}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
