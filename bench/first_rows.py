"""How long `headrace pipeline run --once` takes: `python -m bench.first_rows [--rounds 3]`.

A topic of a thousand records is copied into another, which is done in an instant: what is left is the start of
Java, Spark and Python. Without a class archive, in the run that makes it, and with it (`running/class_archive`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from headrace.testing.process import BrokerProcess

RECORDS = 1000
PIPELINE = """\
name: first-rows
sources:
  raw: {topic: input, format: raw}
sinks:
  copy: {from: raw, topic: output, format: raw}
"""
NO_ARCHIVE = {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}
"""Whoever gives Java options about archives is left alone: it runs with Java's own."""


def headrace(broker: BrokerProcess, *arguments: str, **more: object) -> None:
    command = [sys.executable, "-m", "headrace", *arguments, "-b", broker.bootstrap]
    subprocess.run(command, check=True, **more)  # type: ignore[call-overload]  # what subprocess.run takes


def run_once(broker: BrokerProcess, folder: Path, environment: dict[str, str]) -> float:
    """How many seconds; with a checkpoint of its own, so that it copies everything."""
    checkpoint = tempfile.mkdtemp(dir=folder)
    began = time.monotonic()
    headrace(
        broker,
        *("pipeline", "run", str(folder / "first-rows.yml"), "--once", "--quiet", "--checkpoint", checkpoint),
        env={**os.environ, **environment, "HEADRACE_STATE_DIR": str(folder / "state")},
    )
    return time.monotonic() - began


def rounds(broker: BrokerProcess, folder: Path, count: int) -> Iterator[tuple[str, float]]:
    for number in range(count):
        cache = {"HEADRACE_CACHE_DIR": str(folder / f"cache-{number}")}
        yield "without an archive", run_once(broker, folder, NO_ARCHIVE)
        yield "the run that makes one", run_once(broker, folder, cache)
        made = list(Path(cache["HEADRACE_CACHE_DIR"]).glob("*.jsa"))
        assert made, "the run left no archive behind"
        yield "with the archive", run_once(broker, folder, cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name, BrokerProcess({}, None) as broker:
        folder = Path(name)
        (folder / "first-rows.yml").write_text(PIPELINE)
        for topic in ("input", "output"):
            headrace(broker, "topic", "create", topic, "--partitions", "1", stdout=subprocess.DEVNULL)
        lines = "".join(f"record {number}\n" for number in range(RECORDS))
        headrace(broker, "topic", "produce", "input", input=lines, text=True, stdout=subprocess.DEVNULL)
        for kind, took in rounds(broker, folder, arguments.rounds):
            found.setdefault(kind, []).append(took)
            print(f"{kind:24}{took:6.1f} s", flush=True)
    print("\nmedian")
    for kind, all_took in found.items():
        print(f"{kind:24}{median(all_took):6.1f} s")


if __name__ == "__main__":
    main()
