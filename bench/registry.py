"""Workloads register themselves here; each is one file in `bench/workloads`.

    @workload("W2", "One record per request")
    def one_record_per_request(run: Run) -> Iterator[Measurement]:
        ...

A workload is a generator: it prepares what it needs, and yields one Measurement per case. A shared one is given
a running, warmed-up broker. One that is `own_system=True` is given a broker that is not started and starts,
kills and restarts it itself; whatever it leaves running is ended after it. `max_rounds` limits the rounds of a
long one whose figures hardly vary; the report says so. `only` names the systems that it can measure. One that
is `in_quick=False` is left out of the quick form unless it is asked for by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.measure import Measurement
from bench.run import Run

WorkloadFunction = Callable[[Run], Iterator[Measurement]]


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    function: WorkloadFunction
    own_system: bool
    max_rounds: int
    """0: as many as asked for."""
    only: tuple[str, ...]
    """Empty: all systems."""
    in_quick: bool
    description: str
    """The first paragraph of the function's docstring, for the report."""

    def rounds(self, wanted: int) -> int:
        return min(wanted, self.max_rounds) if self.max_rounds else wanted

    def systems(self, wanted: Sequence[str]) -> list[str]:
        return [name for name in wanted if not self.only or name in self.only]


WORKLOADS: dict[str, Workload] = {}


def workload(
    name: str,
    title: str,
    *,
    own_system: bool = False,
    max_rounds: int = 0,
    only: tuple[str, ...] = (),
    in_quick: bool = True,
) -> Callable[[WorkloadFunction], WorkloadFunction]:
    def register(function: WorkloadFunction) -> WorkloadFunction:
        assert name not in WORKLOADS, f"workload {name} is registered twice"
        description = " ".join((function.__doc__ or "").split("\n\n")[0].split())
        WORKLOADS[name] = Workload(name, title, function, own_system, max_rounds, only, in_quick, description)
        return function

    return register


def load_workloads() -> dict[str, Workload]:
    """All workloads, in the order of their files."""
    package = importlib.import_module("bench.workloads")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        importlib.import_module(f"bench.workloads.{module.name}")
    return WORKLOADS


def pick_workloads(names: str, *, quick: bool = False) -> list[Workload]:
    """The workloads named in a list such as `W1,W4`; for an empty one all, or all of the quick form."""
    known = load_workloads()
    wanted = [name.strip().upper() for name in names.split(",") if name.strip()]
    wanted = wanted or [name for name, found in known.items() if found.in_quick or not quick]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise KeyError(f"no workload {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in wanted]
