"""SVG plots written by hand: a line plot on logarithmic axes, and bars of ratios. Readable on light and dark
pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLORS = {"kafka": "#8a8f98", "headrace": "#0b7a75", "no broker": "#d4a72c"}
NAMES = {"kafka": "Apache Kafka", "headrace": "Headrace"}
WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 44, 46
STYLE = "text{font:12px system-ui,sans-serif;fill:#57606a}.title{font-size:14px;fill:#1f6feb}.grid{stroke:#8883}"

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LogAxis:
    """Maps a range of values onto a range of pixels, by powers of ten."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def around(values: Sequence[float], start: float, end: float) -> LogAxis:
        """From the power of ten below the lowest to the one above the highest."""
        positive = [value for value in values if value > 0] or [1.0]
        low = 10.0 ** math.floor(math.log10(min(positive)))
        high = 10.0 ** math.ceil(math.log10(max(positive)))
        return LogAxis(low, high if high > low else low * 10, start, end)

    def place(self, value: float) -> float:
        share = math.log10(max(value, self.low) / self.low) / math.log10(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        count = round(math.log10(self.high / self.low))
        return [self.low * 10**power for power in range(count + 1)]


def line_plot(title: str, x_title: str, y_title: str, series: Mapping[str, Sequence[Point]]) -> str:
    """Lines over logarithmic axes; flat means that the cost does not grow."""
    points = [point for line in series.values() for point in line]
    x_axis = LogAxis.around([x for x, _ in points], LEFT, WIDTH - RIGHT)
    y_axis = LogAxis.around([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [_text(LEFT, 18, title, "title"), _text(LEFT, 34, y_title)]
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 6, y + 4, number(tick), anchor="end"))
    for tick in x_axis.ticks():
        parts.append(_text(x_axis.place(tick), HEIGHT - BOTTOM + 18, number(tick), anchor="middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_title, anchor="middle"))
    for position, (name, line) in enumerate(series.items()):
        parts += _line(x_axis, y_axis, name, line)
        parts.append(_legend(LEFT + 50 + 112 * position, 34, name))
    return _svg(WIDTH, HEIGHT, parts)


def _line(x_axis: LogAxis, y_axis: LogAxis, name: str, line: Sequence[Point]) -> list[str]:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in sorted(line)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    color = COLORS.get(name, "#1f6feb")
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
    return [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>', *dots]


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    ratio: float
    limit: float
    passes: bool


def ratio_bars(title: str, bars: Sequence[Bar]) -> str:
    """One bar per goal: the ratio to Kafka (the line at 1), and a tick where the goal is."""
    width, row, left = 720, 24, 340
    height = TOP + row * len(bars) + 24
    values = [1.0, *(value for bar in bars for value in (bar.ratio, bar.limit))]
    axis = LogAxis.around(values, left, width - 60)
    one = axis.place(1)
    parts = [_text(12, 18, title, "title"), _text(12, 34, "ratio to Apache Kafka; | is the goal")]
    for index, bar in enumerate(bars):
        y = TOP + row * index
        place, goal = axis.place(bar.ratio), axis.place(bar.limit)
        color = "#0b7a75" if bar.passes else "#c4432b"
        parts.append(_text(left - 8, y + 14, bar.label, anchor="end"))
        parts.append(
            f'<rect x="{min(one, place):.1f}" y="{y + 4}" width="{max(1, abs(place - one)):.1f}" height="14" '
            f'fill="{color}"/>'
        )
        parts.append(f'<line x1="{goal:.1f}" x2="{goal:.1f}" y1="{y + 1}" y2="{y + 21}" stroke="#57606a"/>')
        parts.append(_text(width - 8, y + 14, f"{bar.ratio:.2f}", anchor="end"))
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{TOP}" y2="{height - 20}" stroke="#8888"/>')
    parts.append(_text(one, height - 6, "1", anchor="middle"))
    return _svg(width, height, parts)


def number(value: float) -> str:
    """A short number: 0.01, 1, 10k, 2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _legend(x: float, y: float, name: str) -> str:
    color = COLORS.get(name, "#1f6feb")
    return f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{color}"/>' + _text(
        x + 15, y, NAMES.get(name, name)
    )


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}\n</svg>\n'
