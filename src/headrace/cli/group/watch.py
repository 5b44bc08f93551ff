"""`headrace group watch`: the lag of groups, live.

On a terminal the table is redrawn in place; elsewhere every update is printed after the last one. Rates are
records written and processed per second since the last update; the small chart is lag over recent updates.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click

from headrace.cli.common.options import Target, cluster_options, duration
from headrace.cli.common.output import (
    Column,
    count,
    elapsed,
    emit_data,
    headings_in_bold,
    note,
    number,
    table_lines,
)
from headrace.cli.common.screen import Screen
from headrace.cli.common.session import run
from headrace.cli.group.options import groups_argument
from headrace.cli.group.view import GroupWithLag, PositionView, all_lags, lags_of
from headrace.client.cluster import Cluster

BLOCKS = "▁▂▃▄▅▆▇█"
CHART_LOOKS = 16
COLUMNS = (
    Column("group", "GROUP"),
    Column("state", "STATE"),
    count("members", "#MEMBERS"),
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    count("lag", "LAG"),
    elapsed("lag_seconds", "LAG-TIME"),
    count("produced_per_second", "IN/S"),
    count("consumed_per_second", "OUT/S"),
    Column("chart", "TREND"),
)
LagKey = tuple[str, str, int | None]


class Sum(NamedTuple):
    """The figures of one topic, or one partition, of a group."""

    group: GroupWithLag
    lag: int | None
    lag_seconds: float | None
    consumed: int
    """The sum of the positions."""
    produced: int
    """The sum of the ends."""


class LagWatch:
    """Turns each look at the groups into rows, with rates since the previous look."""

    def __init__(self, by_partition: bool) -> None:
        self._by_partition = by_partition
        self._before: dict[LagKey, Sum] = {}
        self._before_s = 0.0
        self._lags: dict[LagKey, deque[int]] = {}

    def rows(self, groups: Iterable[GroupWithLag], now_s: float) -> list[dict[str, Any]]:
        sums = {key: one for group in groups for key, one in self._sums(group).items()}
        elapsed_s = now_s - self._before_s
        rows = []
        for key, one in sums.items():
            history = self._lags.setdefault(key, deque(maxlen=CHART_LOOKS))
            if one.lag is not None:
                history.append(one.lag)
            rows.append(self._row(key, one, elapsed_s) | {"chart": chart(history)})
        self._before, self._before_s = sums, now_s
        self._lags = {key: history for key, history in self._lags.items() if key in sums}
        return rows

    def _sums(self, group: GroupWithLag) -> dict[LagKey, Sum]:
        parts: dict[LagKey, list[PositionView]] = {}
        for position in group.positions:
            topic, number = position.place
            key = group.group.id, topic, number if self._by_partition else None
            parts.setdefault(key, []).append(position)
        if not parts:
            parts[group.group.id, "", None] = []
        return {key: _sum(group, positions) for key, positions in parts.items()}

    def _row(self, key: LagKey, one: Sum, elapsed_s: float) -> dict[str, Any]:
        before = self._before.get(key)
        produced = consumed = None
        if before is not None and elapsed_s > 0:
            produced = round((one.produced - before.produced) / elapsed_s, 1)
            consumed = round((one.consumed - before.consumed) / elapsed_s, 1)
        return {
            "group": key[0],
            "state": one.group.group.state,
            "members": len(one.group.group.members),
            "topic": key[1] or None,
            "partition": key[2],
            "lag": one.lag,
            "lag_seconds": one.lag_seconds,
            "produced_per_second": produced,
            "consumed_per_second": consumed,
        }


def _sum(group: GroupWithLag, positions: Sequence[PositionView]) -> Sum:
    part = GroupWithLag(group.group, tuple(positions))
    return Sum(
        group,
        part.lag,
        part.lag_seconds,
        sum(one.current_offset or 0 for one in positions),
        sum(one.log_end_offset or 0 for one in positions),
    )


def chart(values: Sequence[int]) -> str:
    """The values as blocks, the largest of them as high as a line."""
    top = max(values, default=0)
    return "".join(BLOCKS[value * (len(BLOCKS) - 1) // top if top else 0] for value in values)


@click.command()
@groups_argument(required=False)
@click.option("-i", "--interval", "interval_s", type=duration, default="1s", show_default=True)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many updates.")
@click.option("-p", "--partitions", "by_partition", is_flag=True, help="Show partitions, not only topics.")
@click.option("--format", "format", type=click.Choice(("table", "jsonl")), default="table", show_default=True)
@cluster_options
def watch(
    target: Target,
    groups: tuple[str, ...],
    interval_s: float,
    count: int | None,
    by_partition: bool,
    format: str,
) -> None:
    """Watch the lag of GROUPs, or of all groups, until Ctrl-C.

    IN/S is the rate of new records and OUT/S the rate at which the group commits; LAG-TIME is the age of the
    oldest record that it has not processed.
    """
    if interval_s <= 0:
        raise click.BadParameter("the interval is too short", param_hint="--interval")
    run(target, lambda cluster: _watch(cluster, groups, (interval_s, count), LagWatch(by_partition), format))


async def _watch(
    cluster: Cluster, names: tuple[str, ...], pace: tuple[float, int | None], watch: LagWatch, format: str
) -> None:
    interval_s, count = pace
    clock = cluster.env.clock
    screen = Screen("name groups to see fewer") if format == "table" and sys.stdout.isatty() else None
    looks = 0
    while True:
        due = clock.monotonic() + interval_s
        found = await lags_of(cluster, names) if names else await all_lags(cluster)
        rows = watch.rows(found, clock.monotonic())
        _show(rows, screen, format)
        looks += 1
        if count is not None and looks >= count:
            return
        await clock.sleep(max(due - clock.monotonic(), 0))


def _show(rows: list[dict[str, Any]], screen: Screen | None, format: str) -> None:
    now = datetime.now().astimezone()
    if format == "jsonl":
        stamp = {"time": now.isoformat(timespec="milliseconds")}
        emit_data([stamp | {key: value for key, value in row.items() if key != "chart"} for row in rows], format)
        return
    shown = [
        column
        for column in COLUMNS
        if column.key != "partition" or any(row["partition"] is not None for row in rows)
    ]
    lines = table_lines(rows, shown, headings_in_bold()) if rows else ["There are no groups."]
    if screen is not None:
        screen.draw([f"{now:%H:%M:%S}  Ctrl-C to stop", "", *lines])
    elif rows:
        for line in lines:
            click.echo(line)
        click.echo()
    else:
        note(lines[0])
