"""Metrics as Prometheus reads them: families of samples in the text format. Counting happens elsewhere.

Names follow the common Kafka exporter where it has one, so that existing dashboards work; ours begin with
`headrace_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str | int], ...]


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: str
    """counter or gauge"""
    help: str
    samples: Sequence[tuple[Labels, float]] = field(default_factory=list)


def gauge(name: str, help: str, value: float, labels: Labels = ()) -> Family:
    return Family(name, "gauge", help, [(labels, value)])


def counter(name: str, help: str, value: float, labels: Labels = ()) -> Family:
    return Family(name, "counter", help, [(labels, value)])


def render(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.samples:
            shown = ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels)
            lines.append(f"{family.name}{{{shown}}} {value:.17g}" if shown else f"{family.name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
