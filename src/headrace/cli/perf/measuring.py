"""What the measuring commands share: latencies, rates, and a line of progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from headrace.cli.common.output import PEOPLE, emit_data, emit_pairs

PERCENTILES = (50, 95, 99, 99.9)
REFRESH_S = 0.2
BAR_WIDTH = 24


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the sorted values that at least this percentage of them does not exceed."""
    assert ordered
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def latencies(seconds: list[float]) -> dict[str, float]:
    """Milliseconds: mean, the percentiles, the largest."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    found = {"mean_ms": sum(ordered) / len(ordered) * 1000}
    found |= {f"p{percent:g}_ms".replace(".", "_"): percentile(ordered, percent) * 1000 for percent in PERCENTILES}
    found["max_ms"] = ordered[-1] * 1000
    return {name: round(value, 3) for name, value in found.items()}


class Progress:
    """A progress bar on stderr, only on a terminal."""

    def __init__(self, total: float, what: str) -> None:
        self._total = total
        self._what = what
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def update(self, done: float, now: float, rate: str) -> None:
        if not self._shown or now < self._next:
            return
        self._next = now + REFRESH_S
        share = min(1.0, done / self._total) if self._total else 1.0
        bar = "#" * int(share * BAR_WIDTH)
        click.echo(f"\r{self._what} [{bar:<{BAR_WIDTH}}] {share:4.0%}  {rate}\x1b[K", err=True, nl=False)

    def end(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def rate_text(records: int, size: int, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    return f"{records / seconds:,.0f} records/s, {size / seconds / 1e6:,.1f} MB/s"


def report(result: dict[str, Any], format: str) -> None:
    """People get the same facts with the units spelled out."""
    if format not in PEOPLE:
        emit_data(result, format)
        return
    rows: list[tuple[str, str]] = []
    for name, value in result.items():
        if name == "latency":
            rows += [(f"latency {_name(part)}", f"{number:,.2f} ms") for part, number in value.items()]
        else:
            rows.append((name.replace("_", " "), f"{value:,}" if isinstance(value, int) else _text(value)))
    emit_pairs(rows)


def _name(part: str) -> str:
    return part.removesuffix("_ms").replace("_", ".")


def _text(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
