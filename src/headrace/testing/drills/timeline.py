"""What a drill looked like over time: acknowledged writes and reads per 100 ms, and what was done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.testing.drills.scene import Event
from headrace.testing.drills.workload import Workload

BIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Moment:
    at: float
    """Seconds since the load began."""
    what: str
    is_fault: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    acks: Sequence[int] = ()
    reads: Sequence[int] = ()
    """Counts for each 100 ms."""
    moments: Sequence[Moment] = field(default_factory=tuple)

    @property
    def seconds(self) -> float:
        return len(self.acks) * BIN_SECONDS

    def as_json(self) -> dict[str, Any]:
        return {
            "bin_seconds": BIN_SECONDS,
            "acks": list(self.acks),
            "reads": list(self.reads),
            "events": [{"at": round(one.at, 3), "what": one.what, "fault": one.is_fault} for one in self.moments],
        }


def timeline_of(workload: Workload, events: Iterable[Event]) -> Timeline:
    """From the first acknowledgement to the last."""
    if not workload.ack_times:
        return Timeline()
    began, ended = workload.ack_times[0][0], workload.ack_times[-1][0]
    bins = int((ended - began) / BIN_SECONDS) + 1
    acks, reads = [0] * bins, [0] * bins
    for when, _ in workload.ack_times:
        acks[min(max(int((when - began) / BIN_SECONDS), 0), bins - 1)] += 1
    for when, count in workload.read_times:
        if 0 <= (place := int((when - began) / BIN_SECONDS)) < bins:
            reads[place] += count
    return Timeline(acks, reads, [Moment(one.when - began, one.what, one.is_fault) for one in events])
