"""Archiving from a real broker (R-BEY-3): all columns, every offset accounted for, and a kill at every step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest

from headrace.spark.archive import archiving, verifying
from headrace.spark.archive import manifest as m
from headrace.spark.archive.archiving import ArchiveRun
from headrace.spark.archive.collecting import rows_of
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.reading import rows_of_range
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.archive.verifying import Verified, Verifier
from tests.processes.spark.archive.archives import archived, connect, make_archive, read_folder
from tests.spark.topics import Topics

DAY_MS = 86_400_000
NOON_MS = 1_700_049_600_000
"""Of 2023-11-15."""


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


def verified(store: ArchiveStore, bootstrap: str) -> Verified:
    return Verifier(store, connect(bootstrap)).verify()


def fill(topics: Topics, name: str, count: int, *, days: int = 1, first: int = 0) -> None:
    for day in range(days):
        values = [f"v{number}" * 20 for number in range(first, first + count)]
        keys = [None if number % 7 == 0 else f"k{number % 50}" for number in range(first, first + count)]
        headers: list[tuple[str, str | bytes | None]] = [("h", b"x"), ("n", None), ("h", b"")]
        topics.send(name, values, keys=keys, headers=headers, timestamp_ms=NOON_MS + day * DAY_MS)


def test_all_columns_by_topic_and_day(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    fill(topics, name, 300, days=2)
    topics.send(name, [None], keys=["k1"], timestamp_ms=NOON_MS)
    store = make_archive(tmp_path, topics.bootstrap, [name])
    assert archived(store, topics.bootstrap).rows == 601
    rows = read_folder(tmp_path)
    stored = topics.read(name, range(2))
    assert [
        (row["key"], row["value"], row["topic"], row["partition"], row["offset"], row["timestampType"])
        for row in rows
    ] == [(one.key, one.value, one.topic, one.partition, one.offset, one.timestamp_type) for one in stored]
    assert [row["timestamp"] for row in rows] == [
        datetime.fromtimestamp(one.timestamp_ms / 1000, UTC) for one in stored
    ]
    assert [[(one["key"], one["value"]) for one in row["headers"] or ()] for row in rows] == [
        list(one.headers or ()) for one in stored
    ]
    assert {row["day"] for row in rows} == {"2023-11-15", "2023-11-16"}
    result = verified(store, topics.bootstrap)
    assert (result.rows, result.compared, result.problems) == (601, 601, [])


def test_a_run_goes_on_where_the_last_one_ended(topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    store = make_archive(tmp_path, topics.bootstrap, [name])
    assert archived(store, topics.bootstrap).rows == 0
    for round_ in range(3):
        fill(topics, name, 200, first=200 * round_)
        assert archived(store, topics.bootstrap).rows == 200
    assert archived(store, topics.bootstrap).files == 0
    assert [row["offset"] for row in read_folder(tmp_path)] == list(range(600))
    manifest = m.load(store)
    assert list(manifest.problems()) == []
    assert [(one.start, one.end) for one in manifest.ranges] == [(0, 200), (200, 400), (400, 600)]


def test_transactions_and_compaction_are_told_apart(topics: Topics, tmp_path: Path) -> None:
    """Markers and aborted records are neither rows nor lost; what a cleaner took is counted on its own."""
    name = topics.create()
    producer = ck.Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(60)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(name, str(number))
        assert producer.flush(60) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    store = make_archive(tmp_path, topics.bootstrap, [name])
    assert archived(store, topics.bootstrap).rows == 20
    (one,) = m.load(store).ranges
    assert (one.end, one.rows, one.markers, one.aborted, one.compacted, one.lost) == (33, 20, 3, 10, 0, 0)
    assert [row["offset"] for row in read_folder(tmp_path)] == [*range(10), *range(22, 32)]
    assert not verified(store, topics.bootstrap).problems


def test_what_was_deleted_before_it_was_archived_is_told(topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    fill(topics, name, 100)
    store = make_archive(tmp_path, topics.bootstrap, [name])
    archived(store, topics.bootstrap)
    fill(topics, name, 100)
    topics.delete_records(name, 150)
    progress = ArchiveRun(store, connect(topics.bootstrap)).run()
    assert progress.rows == 0
    assert "50 offsets were deleted before they were archived" in progress.problems[0]
    assert archived(store, topics.bootstrap, accept_loss=True).rows == 50
    assert [(one.start, one.end, one.rows, one.lost) for one in m.load(store).ranges] == [
        (0, 100, 100, 0),
        (100, 150, 0, 50),
        (150, 200, 50, 0),
    ]
    result = verified(store, topics.bootstrap)
    assert (result.only_archived, result.compared, result.problems) == (100, 50, [])


def test_retention_beside_a_run(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It deletes after the run, or the comparison, has asked what there is: told, and the rest continues."""
    name, other = topics.create(), topics.create()
    for each in (name, other):
        fill(topics, each, 100)
    store = make_archive(tmp_path, topics.bootstrap, [name, other])

    def deleting(module: Any, before: int) -> None:
        real = module.committed_bounds

        def bounds(*given: Any) -> Any:
            found = real(*given)
            monkeypatch.setattr(module, "committed_bounds", real)
            topics.delete_records(name, before)
            return found

        monkeypatch.setattr(module, "committed_bounds", bounds)

    deleting(archiving, 10)
    progress = ArchiveRun(store, connect(topics.bootstrap)).run()
    assert [name in problem and "records were deleted" in problem for problem in progress.problems] == [True]
    assert progress.rows == 100
    assert archived(store, topics.bootstrap).rows == 90
    deleting(verifying, 30)
    result = verified(store, topics.bootstrap)
    assert (result.only_archived, result.compared, result.problems) == (20, 170, [])


def test_a_topic_that_was_made_again_is_refused_and_others_go_on(topics: Topics, tmp_path: Path) -> None:
    first, second = topics.create(), topics.create()
    store = make_archive(tmp_path, topics.bootstrap, [first], pattern=re.escape(second))
    fill(topics, first, 10)
    fill(topics, second, 10)
    assert archived(store, topics.bootstrap).rows == 20
    topics.delete([first])
    topics.create(first)
    fill(topics, first, 30)
    fill(topics, second, 5)
    progress = ArchiveRun(store, connect(topics.bootstrap)).run()
    assert progress.rows == 5
    assert f"Topic {first} was deleted and created again" in progress.problems[0]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_what_the_log_lacks_by_now(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Compacted away since it was archived, or else a fault; the other way round it always is one."""
    name = topics.create(configs={"cleanup.policy": policy})
    topics.send(name, [f"v{number}" for number in range(40)], keys=[f"k{number % 4}" for number in range(40)])
    store = make_archive(tmp_path, topics.bootstrap, [name])
    archived(store, topics.bootstrap)

    def last_of_each_key(*given: Any) -> Iterator[pa.RecordBatch]:
        for rows in rows_of(*given):
            yield rows.slice(36)

    monkeypatch.setattr(verifying, "rows_of", last_of_each_key)
    result = verified(store, topics.bootstrap)
    if policy == "compact":
        assert (result.compacted_since, result.compared, result.problems) == (36, 4, [])
    else:
        assert "36 rows of the archive are not in the log" in result.problems[0]
    (one,) = m.load(store).ranges
    table = rows_of_range(store, one)
    monkeypatch.setattr(verifying, "rows_of", rows_of)
    monkeypatch.setattr(verifying, "rows_of_range", lambda *_, **__: table.slice(1))
    assert "1 records of the log are not in the archive" in verified(store, topics.bootstrap).problems[0]


class Killed(BaseException):
    """Nothing catches it: what is on the disk is what a kill leaves."""


class DyingStore(ArchiveStore):
    """Ends before its nth change of a file."""

    left = 0

    def _step(self) -> None:
        type(self).left -= 1
        if self.left < 0:
            raise Killed

    def write(self, name: str, data: bytes) -> None:
        self._step()
        super().write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._step()
        return super().create(name, data)

    def move(self, name: str, place: str) -> None:
        self._step()
        super().move(name, place)

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)


def test_killed_at_every_step(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader of the folder finds at any time is there once, and the next run makes it whole."""
    monkeypatch.setattr(m, "SNAPSHOT_EVERY", 2)
    name = topics.create(partitions=2)
    fill(topics, name, 120, days=2)
    whole = [(one.partition, one.offset) for one in topics.read(name, range(2))]
    cluster = connect(topics.bootstrap)
    steps = 0
    while True:
        folder = tmp_path / str(steps)
        make_archive(folder, topics.bootstrap, [name], file_bytes=1)
        DyingStore.left = steps
        with suppress(Killed):
            ArchiveRun(DyingStore.open(str(folder)), cluster).run()
        seen = [(row["partition"], row["offset"]) for row in read_folder(folder)]
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(whole)
        store = ArchiveStore.open(str(folder))
        committed = sum(one.rows for one in m.load(store).ranges)
        assert Verifier(store, cluster).verify().rows == committed, "also what is not in its place yet"
        archived(store, topics.bootstrap)
        assert [(row["partition"], row["offset"]) for row in read_folder(folder)] == whole
        assert not store.names(m.STAGED)
        assert not Verifier(store, cluster).verify().problems
        if DyingStore.left >= 0:
            break
        steps += 1
    assert steps > 10


def test_two_runs_at_a_time_are_refused(topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    store = make_archive(tmp_path, topics.bootstrap, [name])
    with store.writing(), pytest.raises(ArchiveError, match="Another run"):
        archived(ArchiveStore.open(str(tmp_path)), topics.bootstrap)


def test_a_run_where_it_has_no_business_changes_nothing(topics: Topics, tmp_path: Path) -> None:
    """No archive there, or one of another cluster: no folder, and no lock that another run would stop at."""
    with pytest.raises(ArchiveError, match="There is no archive"):
        ArchiveRun(ArchiveStore.open(str(tmp_path / "none")), connect(topics.bootstrap)).run()
    assert list(tmp_path.iterdir()) == []
    store = ArchiveStore.open(str(tmp_path / "foreign"))
    m.create(store, m.Description("some-id", "2026-11-16", "another", ("orders",), "", 1, "zstd"))
    with pytest.raises(ArchiveError, match="belongs to cluster another"):
        ArchiveRun(store, connect(topics.bootstrap)).run()
    assert store.names("") == [m.DESCRIPTION]


def damaged_bytes(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damaged_bytes, "its checksum is wrong"),
        (lambda path: path.unlink(), "is missing"),
        (
            lambda path: path.with_name("copy.parquet").write_bytes(path.read_bytes()),
            "does not belong to any commit",
        ),
    ],
)
def test_damage_is_found(topics: Topics, tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    name = topics.create()
    fill(topics, name, 50)
    store = make_archive(tmp_path, topics.bootstrap, [name])
    archived(store, topics.bootstrap)
    damage(next(tmp_path.glob("topic=*/day=*/*.parquet")))
    assert said in verified(store, topics.bootstrap).problems[0]
