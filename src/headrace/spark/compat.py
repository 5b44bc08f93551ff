"""The differences between the versions of PySpark, in one place.

PySpark 4.2 brought admission control for Python streams: `latestOffset(start, limit)`, `ReadLimit` and
`SupportsTriggerAvailableNow`. Before it `latestOffset()` has no arguments, and a run with AvailableNow asks it
once and takes one batch up to there. A reader that serves both:

- gives `latestOffset` arguments that default to None (Spark calls it with or without);
- remembers the end of the last batch it planned: Spark signals a restart by `partitions(end, end)`;
- does not limit the first batch of a run: it may be the only one, of an AvailableNow run, and the rest would stay
  unread. Limits hold from the second batch on. After the only batch nobody asks again, so the positions of a
  consumer group are one run behind there.

PySpark 4.1 brought filter pushdown. A reader that overrides `pushFilters` is refused when
`spark.sql.python.filterPushdown.enabled` is off. With it on, Spark runs the planning in a worker module of its
own, so a reader with pushdown is made in that worker and nowhere else.

PySpark 4.1 also brought `DataSourceStreamArrowWriter`. Before it the sink of a stream gets Python rows.

PySpark 4.3 notes for every column which line made it, so that its errors can say so. That takes some eight round
trips to Java: more than all else that a pipeline asks Java for until it starts. So it is left out for columns that
no user's code makes. There is a setting, which PySpark reads once in a process and then keeps.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import utils as error_utils
from pyspark.sql import datasource

__all__ = [
    "HAS_READ_LIMITS",
    "HAS_STREAM_ARROW_WRITER",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "with_call_sites",
    "without_call_sites",
]

HAS_READ_LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
HAS_STREAM_ARROW_WRITER = hasattr(datasource, "DataSourceStreamArrowWriter")

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A substitute for the class of PySpark 4.2."""

    class ReadAllAvailable(ReadLimit):
        pass

    class ReadMaxRows(ReadLimit):
        def __init__(self, max_rows):
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:
        pass


if TYPE_CHECKING or HAS_STREAM_ARROW_WRITER:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter:
        """A substitute for the class of PySpark 4.1."""


_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


_NOTES_CALL_SITES = "_enable_debugging_cache"
"""Where PySpark keeps its setting: None before it was read. Other versions do not have it."""


@contextmanager
def without_call_sites() -> Iterator[None]:
    """Columns created in this block do not record their line of code. Also a decorator."""
    with _call_sites(False):
        yield


@contextmanager
def with_call_sites() -> Iterator[None]:
    """For user code inside `without_call_sites`."""
    with _call_sites(None):
        yield


@contextmanager
def _call_sites(setting: bool | None) -> Iterator[None]:
    if not hasattr(error_utils, _NOTES_CALL_SITES):
        yield
        return
    before = getattr(error_utils, _NOTES_CALL_SITES)
    setattr(error_utils, _NOTES_CALL_SITES, setting)
    try:
        yield
    finally:
        setattr(error_utils, _NOTES_CALL_SITES, before)


def in_pushdown_worker() -> bool:
    """Whether this process plans a read with filters: that worker is its main module, or an import."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (main is not None and main.name == _PUSHDOWN_WORKER)


def in_streaming_query() -> bool:
    """Whether this task belongs to a batch of a streaming query."""
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(_QUERY_ID) is not None


def streaming_batch() -> tuple[str, int] | None:
    """The id of the streaming query, and of its batch, that this task belongs to; None outside of one."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
    return None if query_id is None or batch_id is None else (query_id, int(batch_id))
