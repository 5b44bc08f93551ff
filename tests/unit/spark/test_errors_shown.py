"""Mistakes of a user in Spark's Python processes: reported without a traceback, and only there."""

from __future__ import annotations

import importlib.machinery
import os
import sys

import pytest

from headrace.spark.errors import SourceError
from headrace.spark.sink.errors import SinkError

VARIABLE = "SPARK_HIDE_TRACEBACK"


@pytest.mark.parametrize("kind", [SourceError, SinkError])
@pytest.mark.parametrize(
    ("main", "hidden"),
    [("pyspark.sql.worker.plan_data_source_read", True), ("pyspark.daemon", True), ("my_program", False)],
)
def test_the_traceback_is_left_out(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], main: str, hidden: bool
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", importlib.machinery.ModuleSpec(main, None))
    kind("what is wrong")
    assert bool(os.environ[VARIABLE]) is hidden
