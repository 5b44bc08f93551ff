"""What a process that runs Spark and the benchmark that started it say to each other, line by line.

Before each run the process prints `ready?` and how many bytes the run will write. The benchmark prepares the
machine and answers with the topic to write to, or with an empty line before a read.
"""

from __future__ import annotations

import sys

READY = "ready?"


def wait_until_ready(written_bytes: int) -> str:
    """The process's side; returns the topic to write to."""
    print(READY, written_bytes, flush=True)
    return sys.stdin.readline().strip()


def asked_bytes(line: str) -> int | None:
    """The benchmark's side: the bytes that the run will write; None if the line is something else."""
    word, _, number = line.strip().partition(" ")
    return int(number) if word == READY else None
