"""Replay from an archive into a real broker (R-BEY-3): any slice, once, also when it is killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from headrace.spark.archive import replaying
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.replaying import Replay, ReplayPlan, ReplayProgress, restoring
from headrace.spark.archive.slices import Slice, parse_condition
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.client.producing import BatchProducer
from headrace.spark.client.transactions import TransactionClient
from tests.processes.spark.archive.archives import archived, connect, make_archive
from tests.spark.topics import Stored, Topics

NOON_MS = 1_700_049_600_000
HOUR_MS = 3_600_000


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture
def original(topics: Topics) -> str:
    """Twenty hours of records, 20 each, on three partitions, those of odd hours a day earlier."""
    name = topics.create(partitions=3, configs={"retention.ms": "-1"})
    for hour in range(20):
        topics.send(
            name,
            [f'{{"hour": {hour}, "n": {number}}}' for number in range(20)],
            keys=[f"k{number}" if number % 5 else None for number in range(20)],
            headers=[("h", f"{hour}"), ("n", None)] if hour % 3 else None,
            timestamp_ms=NOON_MS + hour * HOUR_MS - (hour % 2) * 24 * HOUR_MS,
        )
    return name


@pytest.fixture
def store(topics: Topics, original: str, tmp_path: Path) -> ArchiveStore:
    made = make_archive(tmp_path, topics.bootstrap, [original])
    archived(made, topics.bootstrap)
    return made


def replayed(store: ArchiveStore, topics: Topics, plan: ReplayPlan) -> ReplayProgress:
    work = Replay(store, connect(topics.bootstrap), plan)
    work.prepare()
    return work.run()


def content(records: list[Stored], *, partition: bool = True) -> list[Any]:
    return [
        (one.partition if partition else 0, one.key, one.value, one.timestamp_ms, one.headers) for one in records
    ]


def test_a_topic_is_restored_whole(topics: Topics, original: str, store: ArchiveStore) -> None:
    copy = topics.new_name()
    plan = restoring(ReplayPlan(Slice(original), copy))
    assert replayed(store, topics, plan).written == 400
    before, after = topics.read(original, range(3)), topics.read(copy, range(3))
    with_offsets = [
        (one.partition, one.key, one.value, one.timestamp_ms, (*(one.headers or ()), _offset(one)))
        for one in before
    ]
    assert content(after) == with_offsets, "in the order of each partition"
    assert topics.config(copy, "retention.ms") == "-1"
    again = replayed(store, topics, plan)
    assert (again.written, again.was_done) == (0, True)
    assert len(topics.read(copy, range(3))) == 400


def _offset(one: Stored) -> tuple[str, bytes]:
    return "headrace.offset", str(one.offset).encode()


@pytest.mark.parametrize(
    ("wanted", "test"),
    [
        (
            {"start_ms": NOON_MS, "end_ms": NOON_MS + 4 * HOUR_MS},
            lambda one: NOON_MS <= one.timestamp_ms < NOON_MS + 4 * HOUR_MS,
        ),
        ({"start_offset": 50, "end_offset": 60}, lambda one: 50 <= one.offset < 60),
        ({"keys": ("k3", "k4")}, lambda one: one.key in (b"k3", b"k4")),
        ({"partitions": (1,)}, lambda one: one.partition == 1),
    ],
)
def test_slices(
    topics: Topics, original: str, store: ArchiveStore, wanted: dict[str, Any], test: Callable[[Stored], bool]
) -> None:
    copy = topics.new_name()
    plan = ReplayPlan(Slice(original, **wanted), copy)
    assert Replay(store, connect(topics.bootstrap), plan).count() == replayed(store, topics, plan).written
    expected = [one for one in topics.read(original, range(3)) if test(one)]
    assert expected
    assert content(topics.read(copy, range(3))) == content(expected)


def test_a_misspelt_field_is_an_error_and_the_job_can_be_repeated(
    topics: Topics, original: str, store: ArchiveStore
) -> None:
    copy = topics.new_name()
    plan = ReplayPlan(Slice(original, where=(parse_condition("value.hours=3"),)), copy, job="j")
    with pytest.raises(ArchiveError, match=r"has the field value\.hours"):
        replayed(store, topics, plan)
    with pytest.raises(ArchiveError, match=r"has the field value\.hours"):
        Replay(store, connect(topics.bootstrap), plan).count()
    right = ReplayPlan(Slice(original, where=(parse_condition("value.hour=3"),)), copy, job="j")
    assert replayed(store, topics, right).written == 20


def test_keys_choose_partitions_of_another_count(topics: Topics, original: str, store: ArchiveStore) -> None:
    copy = topics.create(partitions=2)
    with pytest.raises(ArchiveError, match="has 2 partitions"):
        Replay(store, connect(topics.bootstrap), ReplayPlan(Slice(original), copy)).prepare()
    plan = ReplayPlan(Slice(original), copy, by_key=True, offset_header=True)
    assert replayed(store, topics, plan).written == 400
    before = {(one.partition, one.offset): one for one in topics.read(original, range(3))}
    after = topics.read(copy, range(2))
    for one in after:
        *headers, (_, offset), (name, partition) = one.headers or ()
        assert name == "headrace.partition"
        assert offset is not None
        assert partition is not None
        old = before.pop((int(partition), int(offset)))
        assert (one.key, one.value, one.timestamp_ms, tuple(headers)) == (
            old.key,
            old.value,
            old.timestamp_ms,
            old.headers or (),
        )
    assert not before
    for key in {one.key for one in after} - {None}:
        assert len({one.partition for one in after if one.key == key}) == 1


def test_an_archive_that_grew_is_replayed_on(topics: Topics, original: str, store: ArchiveStore) -> None:
    copy = topics.new_name()
    plan = ReplayPlan(Slice(original), copy)
    replayed(store, topics, plan)
    topics.send(original, ["new"], partition=1, timestamp_ms=NOON_MS)
    archived(store, topics.bootstrap)
    assert replayed(store, topics, plan).written == 1
    assert len(topics.read(copy, range(3))) == 401


def test_another_slice_under_the_same_name_is_refused(topics: Topics, original: str, store: ArchiveStore) -> None:
    copy, job = topics.new_name(), topics.new_name("job")
    replayed(store, topics, ReplayPlan(Slice(original, keys=("k1",)), copy, job=job))
    with pytest.raises(ArchiveError, match="another slice or destination"):
        replayed(store, topics, ReplayPlan(Slice(original), copy, job=job))


def test_a_damaged_file_is_not_replayed(topics: Topics, original: str, store: ArchiveStore) -> None:
    """Parquet itself does not notice a value that is another one."""
    file = next(Path(store.uri).glob("topic=*/**/*.parquet"))
    data = bytearray(file.read_bytes())
    data[data.index(b"hour") + 1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArchiveError, match="is damaged: its checksum is wrong"):
        replayed(store, topics, ReplayPlan(Slice(original), topics.new_name()))


def test_a_partition_that_was_not_archived_is_said(topics: Topics, original: str, store: ArchiveStore) -> None:
    with pytest.raises(ArchiveError, match="had no partition 3"):
        replayed(store, topics, ReplayPlan(Slice(original, partitions=(2, 3)), topics.new_name()))


def test_a_destination_with_times_of_its_own_is_refused(
    topics: Topics, original: str, store: ArchiveStore
) -> None:
    copy = topics.create(partitions=3, configs={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(ArchiveError, match="replaces the timestamps"):
        replayed(store, topics, ReplayPlan(Slice(original), copy))


def test_records_that_would_be_deleted_at_once_are_told_of(
    topics: Topics, original: str, store: ArchiveStore
) -> None:
    copy = topics.create(partitions=3, configs={"retention.ms": "1000"})
    (warning,) = Replay(store, connect(topics.bootstrap), ReplayPlan(Slice(original), copy)).prepare()
    assert "retention.ms=-1" in warning


class Killed(BaseException):
    """Nothing catches it."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on the nth of all sends, flushes and ends is the last thing that happens."""
    left = [0]

    def after(method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            result = method(*args, **kwargs)
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return result

        return step

    def set_steps(count: int) -> None:
        left[0] = count

    for owner, name in ((BatchProducer, "send"), (BatchProducer, "flush"), (TransactionClient, "end")):
        monkeypatch.setattr(owner, name, after(getattr(owner, name)))
    return set_steps


def test_killed_at_every_step(
    topics: Topics,
    original: str,
    store: ArchiveStore,
    monkeypatch: pytest.MonkeyPatch,
    dying: Callable[[int], None],
) -> None:
    """What read_committed readers see is there once, and the same command makes it whole."""
    monkeypatch.setattr(replaying, "ROWS_PER_TRANSACTION", 50)
    whole = content(topics.read(original, [0]))
    copy = topics.create(partitions=3)
    plan = ReplayPlan(Slice(original, partitions=(0,)), copy)
    for steps in range(1, 500):
        dying(steps)
        with suppress(Killed):
            done = replayed(store, topics, plan)
            break
        seen = content(topics.read(copy, [0]))
        assert seen == whole[: len(seen)]
    assert steps > 5
    assert done.passed == 400
    dying(0)
    assert content(topics.read(copy, [0])) == whole
    assert replayed(store, topics, plan).was_done


def test_a_second_replay_of_the_same_fences_the_first(
    topics: Topics, original: str, store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "ROWS_PER_TRANSACTION", 50)
    copy = topics.create(partitions=3)
    plan = ReplayPlan(Slice(original), copy)
    first = Replay(store, connect(topics.bootstrap), plan)
    first.prepare()
    stolen: list[ReplayProgress] = []

    def told(_: ReplayProgress) -> None:
        if not stolen:
            stolen.append(replayed(store, topics, plan))

    with pytest.raises(ArchiveError, match="has taken over"):
        first.run(told)
    assert first.progress.written + stolen[0].written == 400
    assert content(topics.read(copy, range(3))) == content(topics.read(original, range(3)))


def test_other_clients_see_whole_transactions(topics: Topics, original: str, store: ArchiveStore) -> None:
    copy = topics.new_name()
    replayed(store, topics, ReplayPlan(Slice(original), copy))
    consumer = ck.Consumer(
        {"bootstrap.servers": topics.bootstrap, "group.id": copy, "isolation.level": "read_committed"}
    )
    low, high = consumer.get_watermark_offsets(ck.TopicPartition(copy, 0), timeout=60)
    consumer.close()
    assert (low, high - 1) == (0, len(topics.read(original, [0]))), "one marker behind the records"
