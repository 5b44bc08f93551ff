"""Workloads register themselves here; each is one file in `bench/workloads`.

    @workload("W2", "One record per request")
    def one_record_per_request(run: Run) -> Iterator[Measurement]:
        ...

A workload is a generator: it prepares what it needs, and yields one Measurement per case. A shared one is given
a running, warmed-up broker. One that is `own_system=True` is given a broker that is not started and starts,
kills and restarts it itself; whatever it leaves running is ended after it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
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
    description: str
    """The first paragraph of the function's docstring, for the report."""


WORKLOADS: dict[str, Workload] = {}


def workload(name: str, title: str, *, own_system: bool = False) -> Callable[[WorkloadFunction], WorkloadFunction]:
    def register(function: WorkloadFunction) -> WorkloadFunction:
        assert name not in WORKLOADS, f"workload {name} is registered twice"
        description = " ".join((function.__doc__ or "").split("\n\n")[0].split())
        WORKLOADS[name] = Workload(name, title, function, own_system, description)
        return function

    return register


def load_workloads() -> dict[str, Workload]:
    """All workloads, in the order of their files."""
    package = importlib.import_module("bench.workloads")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        importlib.import_module(f"bench.workloads.{module.name}")
    return WORKLOADS


def pick_workloads(names: str) -> list[Workload]:
    """The workloads named in a list such as `W1,W4`; all for an empty one."""
    known = load_workloads()
    wanted = [name.strip().upper() for name in names.split(",") if name.strip()] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise KeyError(f"no workload {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in wanted]
