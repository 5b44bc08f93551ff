"""The sink's writer against a real broker."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import DataSourceArrowWriter

from headrace.spark.sink import writer
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.writer import make_batch_writer, make_stream_writer
from tests.spark.topics import Topics
from tests.unit.spark.sink.test_writer import NOWHERE, VALUE


def test_a_batch_asks_for_its_topic_first(bootstrap: str) -> None:
    name = Topics(bootstrap).create()
    given = {"kafka.bootstrap.servers": bootstrap, "topic": name}
    made = make_batch_writer(given, VALUE, overwrite=False)
    assert isinstance(made, DataSourceArrowWriter)
    assert pickle.loads(pickle.dumps(made)).__dict__ == made.__dict__
    with pytest.raises(SinkError, match="the topic 'gone' does not exist"):
        make_batch_writer({**given, "topic": "gone"}, VALUE, overwrite=False)
    with pytest.raises(SinkError, match="cannot reach a broker"):
        make_batch_writer(NOWHERE, VALUE, overwrite=False)


def test_a_batch_of_a_stream_is_planned_once_when_its_writer_is_pickled(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create()
    given = {"kafka.bootstrap.servers": bootstrap, "topic": name, "sinkId": name}
    made = make_stream_writer(given, VALUE, overwrite=False)
    first, second = (pickle.loads(pickle.dumps(made)) for _ in range(2))
    assert isinstance(first, writer.StreamWriter)
    assert first._plan is not None
    assert first._plan == second._plan
    assert first._plan.token.epoch == 0
    next_batch = pickle.loads(pickle.dumps(make_stream_writer(given, VALUE, overwrite=False)))
    assert next_batch._plan.token.epoch == 1
    topics.delete([name])
