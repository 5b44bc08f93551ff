"""What a run of `headrace pipeline run --once` spends its time on, seen from outside: nothing in it is changed.

The steps end at what anybody can see: lines that the command prints, the first Python process that Spark starts,
and files in the checkpoint. Beside the seconds of each step are those of CPU, of all processes together: on a busy
machine only these say something.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from bench.probes import process_tree

LOOK_S = 0.1
END_S = 120.0
TICK = os.sysconf("SC_CLK_TCK")

COMMAND, SESSION, PLANS, SOURCES, BATCH, REST, EXIT = STEPS = (
    "the command itself",
    "Java, session, checks",
    "plans",
    "sources",
    "first batch",
    "other batches",
    "end",
)
SAID = {"Starting Spark": COMMAND, "Spark has started": PLANS}
"""How lines begin that end a step."""
OF_SPARK = "pyspark."


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


class Steps(NamedTuple):
    costs: dict[str, Cost]
    pythons: int
    """Interpreters that were started, workers that were forked not counted."""

    @property
    def total(self) -> Cost:
        return Cost(sum(one.wall_s for one in self.costs.values()), sum(one.cpu_s for one in self.costs.values()))


@dataclass
class Seen:
    """What the processes of a run have used, by look; and when each began."""

    began_s: float = field(default_factory=time.time)
    used: dict[tuple[int, str], float] = field(default_factory=dict)
    """By process id and start: what it had used when it was last seen. Who has ended keeps what it had."""
    looks: list[tuple[float, float]] = field(default_factory=list)
    pythons: dict[int, float] = field(default_factory=dict)

    def look(self, root: int) -> None:
        now_s = time.time()
        for pid in process_tree(root):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            self.used[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / TICK
            forked = int(fields[1]) in self.pythons
            if "-m" in command and any(word.startswith(OF_SPARK) for word in command) and not forked:
                self.pythons.setdefault(pid, now_s)
        self.looks.append((now_s, sum(self.used.values())))

    def cpu_at(self, moment_s: float) -> float:
        return next((cpu for at_s, cpu in reversed(self.looks) if at_s <= moment_s), 0.0)


def run_in_steps(command: Sequence[str], environment: Mapping[str, str], checkpoint: Path) -> Steps:
    """Runs it to its end, and to that of its Java."""
    seen, moments = Seen(), dict[str, float]()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    told: list[str] = []
    listener = threading.Thread(target=_listen, args=(process.stdout, moments, told))
    listener.start()
    while process.poll() is None:
        seen.look(process.pid)
        time.sleep(LOOK_S)
    moments[EXIT] = time.time()
    listener.join()
    if process.returncode != 0:
        raise RuntimeError(f"the run ended with {process.returncode}:\n{''.join(told)}")
    moments[SESSION] = min(seen.pythons.values())
    moments[SOURCES] = min(_written(checkpoint, "offsets/0"))
    moments[BATCH] = min(_written(checkpoint, "commits/0"))
    moments[REST] = max(_written(checkpoint, "commits/*"))
    _await_end([pid for pid, _ in seen.used])
    return Steps(_costs(seen, moments), len(seen.pythons))


def _listen(lines: IO[str], moments: dict[str, float], told: list[str]) -> None:
    for line in lines:
        told.append(line)
        for words, step in SAID.items():
            if line.startswith(words):
                moments[step] = time.time()


def _written(checkpoint: Path, what: str) -> list[float]:
    """When the files of all queries were."""
    return [path.stat().st_mtime for path in checkpoint.glob(f"**/{what}") if not path.name.startswith(".")]


def _costs(seen: Seen, moments: Mapping[str, float]) -> dict[str, Cost]:
    costs, before_s, before_cpu = {}, seen.began_s, 0.0
    for step in STEPS:
        until_s = max(moments[step], before_s)
        cpu = seen.looks[-1][1] if step == EXIT else max(seen.cpu_at(until_s), before_cpu)
        costs[step] = Cost(until_s - before_s, cpu - before_cpu)
        before_s, before_cpu = until_s, cpu
    return costs


def _await_end(pids: Sequence[int]) -> None:
    """Java ends after the command: it is not to disturb the next run."""
    give_up_s = time.monotonic() + END_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < give_up_s:
        time.sleep(LOOK_S)
