"""Lag out of what Spark reports of a query."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from headrace.spark.lag import lag, lag_by_partition


def report(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_the_ends_of_the_logs_beyond_the_end_of_the_batch() -> None:
    orders = ({"orders": {"0": 7, "1": 3}}, {"orders": {"0": 10, "1": 3}})
    assert lag(report(orders)) == 3
    assert lag_by_partition(report(orders, orders)) == {"orders": {0: 3, 1: 0}}
    as_text = (json.dumps(orders[0]), json.dumps(orders[1]))
    query: Any = SimpleNamespace(lastProgress=SimpleNamespace(json=json.dumps(report(as_text))))
    assert lag(query) == 3


def test_nothing_is_said_of_files_and_before_the_first_batch() -> None:
    assert lag(None) is None
    assert lag(report(({"logOffset": 3}, None), (None, None))) is None
    idle: Any = SimpleNamespace(lastProgress=None)
    assert lag(idle) is None
    assert lag_by_partition(idle) == {}
