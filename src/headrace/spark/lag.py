"""How far a stream is behind its topics, computed from the progress that Spark reports.

    from headrace.spark.lag import lag, lag_by_partition

    lag(query)                   records that were not read yet, over all topics; None before the first batch
    lag(event.progress)          the same in a StreamingQueryListener
    lag_by_partition(query)      {"orders": {0: 12, 1: 0}}

A source in Python cannot add figures of its own to a report, as Spark's `kafka` format does in `metrics`. But a
report has the ends of the logs (`latestOffset`) beside the end of the batch (`endOffset`), as of when it was
planned: lag is the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.model.topics import TopicPartition
from headrace.spark.source.offsets import OffsetFormatError, offset_from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    Reported = StreamingQuery | StreamingQueryProgress | Mapping[str, Any] | None


def lag(of: Reported) -> int | None:
    """The lag of a query, of one of its reports, or of a report as JSON. None before the first batch, or without a
    topic.
    """
    sources = list(_sources(of))
    return sum(sum(one.values()) for one in sources) if sources else None


def lag_by_partition(of: Reported) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for source in _sources(of):
        for place, behind in source.items():
            topic = found.setdefault(place.topic, {})
            topic[place.partition] = max(behind, topic.get(place.partition, 0))
    return found


def _sources(of: Any) -> Iterator[Mapping[TopicPartition, int]]:
    """For each source that reads topics, the lag of each partition."""
    of = getattr(of, "lastProgress", of)
    report = of if of is None or isinstance(of, Mapping) else json.loads(of.json)
    for source in (report or {}).get("sources") or ():
        end, latest = _positions(source.get("endOffset")), _positions(source.get("latestOffset"))
        if end is not None and latest is not None:
            yield {place: max(latest.get(place, 0) - position, 0) for place, position in end.items()}


def _positions(offset: Any) -> Mapping[TopicPartition, int] | None:
    """None for what is not an offset of topics: files, or nothing yet."""
    if isinstance(offset, str):
        offset = json.loads(offset)
    if not isinstance(offset, Mapping):
        return None
    try:
        return offset_from_json(offset).positions
    except OffsetFormatError:
        return None
