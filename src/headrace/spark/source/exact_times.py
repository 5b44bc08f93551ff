"""Batch reads between two times, record by record: the option `exactTimestamps`.

A time becomes an offset: that of the first record that is as new. Before it everything is older, so a start by
time misses nothing; but where producers' clocks differ, older records also follow it, and records that belong to a
range lie behind its end. With this option the range ends at the end of the log, and every record is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.model.topics import TopicPartition
from headrace.spark.option_table import OptionError
from headrace.spark.source.positions import AT_LATEST, Position, PositionKind, Positions

if TYPE_CHECKING:
    import pyarrow as pa

OPTION = "exactTimestamps"


@dataclass(frozen=True, slots=True)
class ExactTimes:
    """The times that were asked for; a position of another kind sets no limit."""

    start: Positions
    end: Positions

    def __post_init__(self) -> None:
        asked = [self.start.default, self.end.default, *self.start.named.values(), *self.end.named.values()]
        if any(position.kind is PositionKind.AGO for position in asked):
            raise OptionError(OPTION, "it needs fixed times", "write a time, not how long ago")
        if not any(position.kind is PositionKind.TIMESTAMP for position in asked):
            raise OptionError(OPTION, "no start or end is a time", "set startingTimestamp or endingTimestamp")

    def planned_end(self) -> Positions:
        """Ends by time are looked for in all that is there."""
        named = {one: _or_latest(position) for one, position in self.end.named.items()}
        return Positions(self.end.option, _or_latest(self.end.default), named)

    def kept(self, rows: pa.RecordBatch, timestamp: str, partition: TopicPartition) -> pa.RecordBatch:
        """The rows whose time is in the range."""
        import pyarrow as pa
        from pyarrow import compute

        column = rows.column(rows.schema.get_field_index(timestamp))
        for position, compare in ((self.start, compute.greater_equal), (self.end, compute.less)):
            limit = position.of(partition)
            if limit.kind is PositionKind.TIMESTAMP:
                mask = compare(column, pa.array([limit.value * 1000], column.type)[0])
                rows, column = rows.filter(mask), column.filter(mask)
        return rows


def _or_latest(position: Position) -> Position:
    return AT_LATEST if position.kind is PositionKind.TIMESTAMP else position
