"""The sink's protocol without I/O: what its log says in every order that can come, and what follows from it."""

from __future__ import annotations

import pytest

from headrace.spark.client.transactions import Identity
from headrace.spark.sink.once.decisions import (
    Abandoned,
    Batch,
    Closed,
    Course,
    Decision,
    Done,
    Entry,
    Fence,
    LogRecord,
    SinkLog,
    SinkLogDamaged,
    course_of,
    decode,
    decode_key,
    encode_key,
    encode_value,
    is_superseded,
    orphans,
)
from headrace.spark.sink.once.names import local_path, sink_id_of, sink_of, task_id, tasks_of

A, B = Fence(Identity(1, 4)), Fence(Identity(1, 5))
ENTRIES = tuple(Entry(task_id("s", p, 0), Identity(7 + p, 3), Identity(7 + p, 2)) for p in range(2))


def decided(fence: int, batch_id: int = 1, offsets: str | None = None, again: bool = False) -> Decision:
    return Decision(fence, Batch("q", batch_id, offsets), ENTRIES, 10, again)


def log_of(*records: LogRecord) -> SinkLog:
    return SinkLog().read(enumerate(records))


def test_a_decision_counts_once_it_is_in_the_log() -> None:
    log = log_of(A, decided(0))
    assert (log.decision, log.done) == (decided(0), False)
    assert log_of(A, decided(0), Done(Batch("q", 1))).done
    assert not log_of(A, decided(0), Done(Batch("q", 0))).done, "of another batch"


def test_who_is_fenced_decides_nothing() -> None:
    log = log_of(A, decided(0, 1), B, decided(0, 2))
    assert log.decision == decided(0, 1)
    assert log.void_last


def test_what_a_void_decision_would_replace_is_written_again() -> None:
    log = log_of(A, decided(0, 1), Done(Batch("q", 1)), B, decided(0, 2), decided(3, 1, again=True))
    assert log.decision == decided(3, 1, again=True)
    assert log.done
    assert not log.void_last
    assert not log.slot_taken, "the driver may still decide its own batch"


def test_of_decision_and_abandoned_the_first_counts() -> None:
    assert log_of(A, Abandoned(0, 1), decided(0)).decision is None
    assert log_of(A, decided(0), Abandoned(0, 1)).decision == decided(0)
    assert log_of(A, Abandoned(0, 1), B, decided(2)).decision == decided(2)
    assert not log_of(A, B, Abandoned(0, 1)).slot_taken, "an old driver takes no slot"


def test_a_compacted_log_says_the_same() -> None:
    """Of each kind the last one is left, at its old place: the fence of a decision may be gone."""
    whole: list[tuple[int, LogRecord]] = [(0, A), (1, decided(0)), (2, Done(Batch("q", 1))), (3, B)]
    left = whole[1:]
    assert SinkLog().read(left) == SinkLog().read(whole)


def test_producer_ids_and_epochs_decide_nothing_in_the_log() -> None:
    """A new driver may have a new id, with a lower epoch."""
    new = Fence(Identity(2, 0))
    log = log_of(A, decided(0, 1), Done(Batch("q", 1)), Closed(1), new, decided(4, 2))
    assert log.decision == decided(4, 2)
    assert log.fence == Identity(2, 0)


@pytest.mark.parametrize(
    ("last", "batch", "course"),
    [
        (None, Batch("q", 0), Course.WRITE),
        (Batch("q", 4), Batch("q", 5), Course.WRITE),
        (Batch("q", 5), Batch("q", 5), Course.SKIP),
        (Batch("q", 5, "x"), Batch("q", 5, "x"), Course.SKIP),
        (Batch("q", 5, "x"), Batch("q", 5), Course.SKIP),
        (Batch("q", 5, "x"), Batch("q", 5, "y"), Course.ANOTHER),
        (Batch("q", 6), Batch("q", 5), Course.TOO_OLD),
        (Batch("other", 6), Batch("q", 0), Course.WRITE),
    ],
)
def test_what_to_do_with_a_batch(last: Batch | None, batch: Batch, course: Course) -> None:
    assert course_of(last, batch) is course


def test_a_task_is_too_late_once_its_batch_has_an_end() -> None:
    planned = SinkLog(A.token, 0)
    assert not is_superseded(planned, 0)
    for late in (B, decided(0), Abandoned(0, 1)):
        assert is_superseded(planned.read([(1, late)]), 0)
    assert not is_superseded(planned.read([(1, Done(Batch("q", 0)))]), 0)


def test_orphans_are_what_no_decision_still_needs() -> None:
    names = [task_id("s", p, 0) for p in range(3)]
    assert orphans(names, log_of(A, decided(0))) == [names[2]]
    assert orphans(names, log_of(A, decided(0), Done(Batch("q", 1)))) == names


@pytest.mark.parametrize("record", [A, decided(3, 2, "abc"), decided(3, again=True), Abandoned(4, 2), Closed(9)])
def test_records_are_read_as_they_were_written(record: LogRecord) -> None:
    key = decode_key(encode_key("a.b-c", record))
    assert key is not None
    assert key[1] == "a.b-c"
    assert decode(key[0], encode_value(record)) == record
    assert decode(key[0], None) is None


def test_a_log_that_is_none_is_told() -> None:
    assert decode_key(b"something") is None
    assert decode_key(None) is None
    for value in (b"{", b"{}", b"[]", b'{"format": 1}', b'{"format": 2, "token": [1, 2]}'):
        with pytest.raises(SinkLogDamaged):
            decode("fence", value)


def test_names_of_sinks_and_tasks() -> None:
    open_ids = [task_id("a", 0, 0), task_id("a.5", 0, 1), "hr.sink.a", "hr.sink.a.x.0", task_id("a", 11, 3)]
    assert tasks_of("a", open_ids) == ["hr.sink.a.0.0", "hr.sink.a.11.3"]
    assert [sink_of(one) for one in open_ids] == ["a", "a.5", None, None, "a"]


def test_a_checkpoint_names_its_sink_however_it_is_written() -> None:
    assert sink_id_of("/data/orders/") == sink_id_of("file:///data/orders") == sink_id_of("file:/data/orders")
    assert sink_id_of("/data/orders") != sink_id_of("/other/orders")
    assert sink_id_of("s3://bucket/my orders").startswith("my-orders-")
    assert local_path("hdfs://name/x") is None
    assert local_path("file:/x/y") == "/x/y"
