"""What is refused while Spark plans."""

from __future__ import annotations

import pickle

import pytest

from headrace.spark.compat import StreamArrowWriter
from headrace.spark.sink import writer
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.task import Written
from headrace.spark.sink.writer import make_batch_writer, make_stream_writer
from tests.unit.spark.sink.schemas import schema

NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
AT_LEAST_ONCE = {**NOWHERE, "delivery": "at-least-once"}


VALUE = schema("value string")


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(SinkError, match=r"cannot be overwritten: write with mode\('append'\)"):
        make_batch_writer(NOWHERE, VALUE, overwrite=True)


def test_a_stream_is_planned_without_the_cluster() -> None:
    """Also with the output mode complete, which Spark calls overwriting."""
    for overwrite in (False, True):
        made = make_stream_writer(AT_LEAST_ONCE, VALUE, overwrite)
        assert isinstance(made, StreamArrowWriter)
        assert pickle.loads(pickle.dumps(made)).__dict__ == made.__dict__


def test_exactly_once_needs_a_name() -> None:
    with pytest.raises(SinkError, match="set checkpointLocation on this query, or the option sinkId"):
        make_stream_writer(NOWHERE, VALUE, overwrite=False)
    with pytest.raises(SinkError, match="set the option jobId"):
        make_batch_writer({**NOWHERE, "delivery": "exactly-once"}, VALUE, overwrite=False)


def test_mistakes_are_sink_errors() -> None:
    with pytest.raises(SinkError, match=r"option kafka.acks: '7' is not all"):
        make_stream_writer({**NOWHERE, "kafka.acks": "7"}, VALUE, overwrite=False)
    with pytest.raises(SinkError, match="the column 'value' is double"):
        make_stream_writer(NOWHERE, schema("value double"), overwrite=False)


def test_pyspark_4_0_gets_a_writer_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "HAS_STREAM_ARROW_WRITER", False)
    made = make_stream_writer(AT_LEAST_ONCE, VALUE, overwrite=False)
    assert isinstance(made, writer.RowStreamWriter)
    assert made.write(iter([])) == writer.Acknowledged(Written())
