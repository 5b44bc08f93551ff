"""Batch writes by jobId with a real broker and without Spark: all or nothing, once, whenever the driver dies."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from headrace.spark.option_table import OptionError
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.job_names import parse_job
from headrace.spark.sink.jobs import JobWriter
from headrace.spark.sink.once import driver
from headrace.spark.sink.options import parse_sink_options
from headrace.spark.sink.writer import make_batch_writer, make_stream_writer
from tests.spark.topics import Topics
from tests.unit.spark.sink.schemas import schema

pytestmark = pytest.mark.headrace_only


class Context:
    """What Spark tells a task of itself."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partitionId(self) -> int:  # noqa: N802
        return self._partition

    def attemptNumber(self) -> int:  # noqa: N802
        return 0


class Bench:
    def __init__(self, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = Topics(bootstrap)
        self.topic = self.topics.create(partitions=2)
        self._patch = monkeypatch

    def planned(self, job: str) -> JobWriter:
        """By a driver that has read nothing yet."""
        driver._known.clear()
        given = {"kafka.bootstrap.servers": self.topics.bootstrap, "topic": self.topic, "jobId": job}
        made = pickle.loads(pickle.dumps(make_batch_writer(given, schema("value string"), overwrite=False)))
        assert isinstance(made, JobWriter)
        return made

    def tasks(self, writer: JobWriter, *rows: str) -> list[Any]:
        done = []
        for partition, row in enumerate(rows):
            self._patch.setattr(TaskContext, "get", classmethod(lambda _, p=partition: Context(p)))
            done.append(writer.write(iter([pa.RecordBatch.from_pydict({"value": [row]})])))
        return done

    def run(self, job: str, *rows: str) -> None:
        writer = self.planned(job)
        writer.commit(self.tasks(writer, *rows))

    def values(self) -> list[str]:
        return sorted((one.value or b"").decode() for one in self.topics.read(self.topic, range(2)))


@pytest.fixture
def bench(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(bootstrap, monkeypatch)
    yield made
    made.topics.delete([made.topic])


def test_a_job_is_written_once(bench: Bench) -> None:
    name = bench.topics.new_name("job")
    for _ in range(3):
        bench.run(name, "a", "b")
    bench.run(name + "-other", "c")
    assert bench.values() == ["a", "b", "c"]


def test_a_series_goes_up(bench: Bench) -> None:
    name = bench.topics.new_name("job")
    for number in (0, 1, 1, 7, 7):
        bench.run(f"{name}/{number}", f"r{number}")
    assert bench.values() == ["r0", "r1", "r7"]
    with pytest.raises(SinkError, match=r"comes too late: number 7 of the same series"):
        bench.planned(f"{name}/3")
    bench.run(f"{name}/8", "r8")
    assert bench.values() == ["r0", "r1", "r7", "r8"]


def test_nothing_of_a_job_that_fails_is_seen(bench: Bench) -> None:
    name = bench.topics.new_name("job")
    writer = bench.planned(name)
    writer.abort(bench.tasks(writer, "a", "b"))
    bench.tasks(bench.planned(name), "c")  # and its driver dies
    assert bench.values() == []
    bench.run(name, "d", "e")
    assert bench.values() == ["d", "e"]


def test_what_was_decided_is_carried_out_by_the_next_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    name = bench.topics.new_name("job")
    writer = bench.planned(name)
    messages = bench.tasks(writer, "a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(driver, "_roll_forward", die)
        with pytest.raises(Killed):
            writer.commit(messages)
    assert bench.values() == []
    bench.run(name, "never", "seen")
    assert bench.values() == ["a", "b"]


def test_names() -> None:
    first, second, other = parse_job("a b/c/17"), parse_job("a b/c/18"), parse_job("a b/d/17")
    assert (first.number, second.number) == (17, 18)
    assert first.sink_id == second.sink_id != other.sink_id
    assert first.sink_id.startswith("job-a-b-c-")
    assert (parse_job("nightly").number, parse_job("/5").number) == (0, 0)
    assert parse_job("ä" * 500).sink_id.startswith("job-")
    for wrong in ("  ", "x" * 1001):
        with pytest.raises(ValueError):
            parse_job(wrong)


def test_mistakes() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "jobId": "j"}
    with pytest.raises(OptionError, match="exactly once, not at-least-once"):
        parse_sink_options({**given, "delivery": "at-least-once"})
    with pytest.raises(OptionError, match="exactly once, not at-least-once"):
        parse_sink_options({**given, "kafka.acks": "1"})
    with pytest.raises(SinkError, match="a stream has the option sinkId"):
        make_stream_writer(given, schema("value string"), overwrite=False)
