"""Charts of a drill, as SVG written by hand: writes above the axis, reads below it, faults as lines across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from headrace.testing.drills.timeline import BIN_SECONDS, Moment, Timeline

CLIP = 2.2
"""The top of the chart, as a multiple of the usual rate: bursts of delayed records are cut off there."""
MOST_BARS = 400
GAP_BINS = 3
"""The minimum number of bins in a row without an acknowledgement that is shown as a gap."""
LABEL_STEP = 13
LABEL_ROWS = 3
CHARACTER = 5.6
STEPS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class Frame:
    """The area of a chart, and the seconds of the drill that it shows."""

    width: int
    half: int
    """The height of each of the two halves."""
    top: int
    since: float
    until: float

    def x(self, at: float) -> float:
        return (at - self.since) / (self.until - self.since) * self.width

    @property
    def axis(self) -> int:
        return self.top + self.half

    @property
    def bottom(self) -> int:
        return self.axis + self.half

    @property
    def height(self) -> int:
        return self.bottom + 18


def usual(timeline: Timeline) -> float:
    """A rate that is not exceeded three quarters of the time, so that a burst does not flatten everything else."""
    rates = sorted(count for count in timeline.acks if count) or [1]
    return max(float(rates[len(rates) * 3 // 4]), 1.0)


def whole_chart(timeline: Timeline) -> str:
    frame = Frame(960, 64, 8 + LABEL_ROWS * LABEL_STEP, 0.0, max(timeline.seconds, 1.0))
    return _chart(timeline, frame, "labelled")


def close_chart(timeline: Timeline, around: Moment, before: float = 2.0, after: float = 8.0) -> str:
    since = max(around.at - before, 0.0)
    frame = Frame(308, 34, 8, since, min(since + before + after, timeline.seconds + BIN_SECONDS))
    return _chart(timeline, frame, "")


def _chart(timeline: Timeline, frame: Frame, kind: str) -> str:
    limit = usual(timeline) * CLIP
    parts = [
        f'<svg class="chart {kind}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'aria-label="writes and reads over time">',
        *_grid(frame),
        *_gaps(timeline.acks, frame),
        f'<path class="acks" d="{_area(timeline.acks, frame, limit, -1)}"/>',
        f'<path class="reads" d="{_area(timeline.reads, frame, limit, 1)}"/>',
        f'<line class="axis" x1="0" x2="{frame.width}" y1="{frame.axis}" y2="{frame.axis}"/>',
        *(_scale(usual(timeline), frame) if kind else ()),
        *_moments(timeline.moments, frame, bool(kind)),
        "</svg>",
    ]
    return "\n".join(parts)


def _area(counts: Sequence[int], frame: Frame, limit: float, sign: int) -> str:
    """Steps from the axis, up (-1) or down (1). Several bins share a step where there is no room for each."""
    first, last = int(frame.since / BIN_SECONDS), min(int(frame.until / BIN_SECONDS) + 1, len(counts))
    together = max(1, -(-(last - first) // MOST_BARS))
    points = [f"M{frame.x(first * BIN_SECONDS):.1f} {frame.axis}"]
    for place in range(first, last, together):
        some = counts[place : min(place + together, last)]
        high = min(sum(some) / len(some) / limit, 1.0) * frame.half
        points.append(f"V{frame.axis + sign * high:.1f}H{frame.x((place + len(some)) * BIN_SECONDS):.1f}")
    return "".join([*points, f"V{frame.axis}Z"])


def _gaps(acks: Sequence[int], frame: Frame) -> list[str]:
    """A band wherever nothing was acknowledged for a while."""
    bands, began = [], None
    for place, count in enumerate([*acks, 1]):
        if count == 0:
            began = place if began is None else began
            continue
        if began is not None and place - began >= GAP_BINS:
            since, until = max(began * BIN_SECONDS, frame.since), min(place * BIN_SECONDS, frame.until)
            if since < until:
                bands.append(
                    f'<rect class="gap" x="{frame.x(since):.1f}" width="{frame.x(until) - frame.x(since):.1f}" '
                    f'y="{frame.top}" height="{2 * frame.half}"/>'
                )
        began = None
    return bands


def _scale(rate: float, frame: Frame) -> list[str]:
    """The usual rate of writes, as a line with its number."""
    y = frame.axis - frame.half / CLIP
    return [
        f'<line class="scale" x1="0" x2="{frame.width}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="tick rate" x="{frame.width + 4}" y="{y + 3:.1f}">{rate:g}</text>',
    ]


def _grid(frame: Frame) -> list[str]:
    span = frame.until - frame.since
    step = next((step for step in STEPS if span / step <= frame.width / 60), STEPS[-1])
    lines = []
    count = int(frame.since / step) + 1
    while count * step < frame.until:
        x = frame.x(count * step)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.bottom}"/>')
        if x < frame.width - 14:
            lines.append(f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 13}">{count * step:g} s</text>')
        count += 1
    return lines


def _moments(moments: Sequence[Moment], frame: Frame, labelled: bool) -> list[str]:
    lines: list[str] = []
    free_from = [0.0] * LABEL_ROWS
    for moment in moments:
        if not frame.since <= moment.at <= frame.until:
            continue
        kind, x = "fault" if moment.is_fault else "event", frame.x(moment.at)
        title = f"<title>{escape(moment.what)}, at {moment.at:.1f} s</title>"
        row = next((row for row, free in enumerate(free_from) if free <= x), None) if labelled else None
        top = frame.top
        if row is not None:
            width = len(moment.what) * CHARACTER + 8
            start = min(x, frame.width - width)
            free_from[row] = start + width
            top = 4 + row * LABEL_STEP
            lines.append(
                f'<text class="label {kind}" x="{start + 4:.1f}" y="{top + 8}">{escape(moment.what)}</text>'
            )
        lines.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{frame.bottom}">{title}</line>'
        )
    return lines
