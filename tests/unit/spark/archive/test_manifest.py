"""The manifest of an archive: what is wrong with ranges by themselves, and how commits are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.spark.archive import manifest as m
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.store import TEMPORARY, ArchiveStore

WANTED = m.Description("id", "2026-11-16", "cluster", ("t",), "", 1000, "zstd")


def a_file(rows: int, first: int) -> m.DataFile:
    return m.DataFile("topic=t/day=d/x.parquet", "staged", rows, 1, "", first, first + rows - 1, 0, 0)


def a_range(start: int, end: int) -> m.ArchivedRange:
    return m.ArchivedRange("t", 0, start, end, rows=end - start, files=(a_file(end - start, start),))


def problems(*ranges: m.ArchivedRange) -> list[str]:
    manifest = m.Manifest(WANTED)
    manifest.add(m.Commit(1, "", {}, ranges))
    return list(manifest.problems())


def test_what_is_whole() -> None:
    gaps = m.ArchivedRange("t", 0, 10, 20, rows=4, markers=1, aborted=2, compacted=3, files=(a_file(4, 12),))
    assert problems(a_range(0, 10), gaps, m.ArchivedRange("t", 0, 20, 25, lost=5), a_range(25, 30)) == []


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ((a_range(0, 10), a_range(12, 20)), "offsets 10 to 11 are missing"),
        ((a_range(0, 10), a_range(8, 20)), "offsets 8 to 9 are there twice"),
        ((replace(a_range(0, 10), compacted=1),), "10 offsets, but 11 are accounted for"),
        ((replace(a_range(0, 10), rows=9, lost=1),), "9 rows, but its files have 10"),
        ((replace(a_range(0, 10), files=(a_file(10, 5),)),), "a file has offsets outside"),
    ],
)
def test_what_is_not(ranges: tuple[m.ArchivedRange, ...], said: str) -> None:
    assert said in problems(*ranges)[0]


def test_many_commits_become_few_files(tmp_path: Path) -> None:
    store = ArchiveStore.open(str(tmp_path))
    m.create(store, WANTED)
    manifest = m.load(store)
    topic = m.ArchivedTopic("topic-id", 3, {"retention.ms": "1"})
    for number in range(1, 3 * m.SNAPSHOT_EVERY + 8):
        one = a_range(number * 10, number * 10 + 10)
        m.commit(store, manifest, m.Commit(number, "now", {"t": topic}, (one,)))
    assert len(store.names(m.LOG)) < 3 * m.SNAPSHOT_EVERY
    again = m.load(store)
    assert (again.ranges, again.topics, again.number) == (manifest.ranges, {"t": topic}, manifest.number)
    assert list(again.problems()) == []


@pytest.mark.parametrize("folder", [m.STAGED, TEMPORARY])
def test_what_a_killed_writer_left_is_removed(tmp_path: Path, folder: str) -> None:
    store = ArchiveStore.open(str(tmp_path))
    m.create(store, WANTED)
    store.write(f"{folder}/left", b"half a file")
    with store.writing():
        m.finish(store, m.load(store))
    assert store.names(folder) == []
    assert m.describe(store) == WANTED


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    store = ArchiveStore.open(str(tmp_path))
    m.create(store, WANTED)
    ours, theirs = m.load(store), m.load(store)
    m.commit(store, theirs, m.Commit(1, "", {}, ()))
    with pytest.raises(ArchiveError, match="Another run has written"):
        m.commit(store, ours, m.Commit(1, "", {}, ()))
    with pytest.raises(ArchiveError, match="There is already an archive"):
        m.create(store, WANTED)


def test_a_missing_commit_and_another_format_are_told(tmp_path: Path) -> None:
    store = ArchiveStore.open(str(tmp_path))
    with pytest.raises(ArchiveError, match="There is no archive"):
        m.load(store)
    m.create(store, WANTED)
    manifest = m.load(store)
    for number in (1, 2, 3):
        m.commit(store, manifest, m.Commit(number, "", {}, ()))
    store.delete(f"{m.LOG}/{2:020}.json")
    with pytest.raises(ArchiveError, match="lacks commit 2"):
        m.load(store)
    store.write(m.DESCRIPTION, b'{"format": 7}')
    with pytest.raises(ArchiveError, match="format 7"):
        m.load(store)
