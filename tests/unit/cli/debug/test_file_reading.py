"""Files of a log: what is in them, and what is wrong with them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from headrace.cli.debug.file_reading import read_content
from headrace.records.builder import NewRecord, build_batch
from headrace.records.markers import EndMarker, build_marker
from headrace.storage.producer_snapshot import SnapshotEntry, encode_snapshot
from headrace.storage.transaction_index import AbortedTransaction, encode_transaction_index

NAME = "00000000000000000100"


def batch(offset: int, count: int = 2, timestamp: int = 1000) -> bytes:
    return bytes(build_batch([NewRecord(b"v", timestamp=timestamp)] * count, base_offset=offset, leader_epoch=0))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(batch(100) + batch(102, timestamp=2000) + batch(104, timestamp=1500))
    return path


SIZE = len(batch(100))


def test_a_whole_segment(log: Path) -> None:
    content = read_content(log)
    assert content.problems == []
    assert [(entry["base_offset"], entry["last_offset"], entry["position"]) for entry in content.entries] == [
        (100, 101, 0),
        (102, 103, SIZE),
        (104, 105, 2 * SIZE),
    ]


@pytest.mark.parametrize(
    ("spoil", "whole", "problem"),
    [
        (lambda data: data[:-3], 2, "a torn write"),
        (lambda data: data + b"12345", 3, "only 5 are there (a torn write)"),
        (lambda data: data + bytes(100), 3, "they are zeros"),
        (lambda data: data[:-1] + b"\xff", 2, "the checksum of the batch there does not match"),
        (lambda data: data + batch(104), 3, "do not follow what is before"),
        (lambda data: data + batch(110), 4, "offsets 106 to 109 are missing"),
        (lambda data: data[:16] + b"\x01" + data[17:], 0, "has format 1, not 2"),
    ],
)
def test_what_is_wrong_with_a_segment(log: Path, spoil: object, whole: int, problem: str) -> None:
    assert callable(spoil)
    log.write_bytes(spoil(log.read_bytes()))
    content = read_content(log)
    assert len(content.entries) == whole
    assert len(content.problems) == 1
    assert problem in content.problems[0]


def write_index(log: Path, *entries: tuple[int, int]) -> Path:
    path = log.with_suffix(".index")
    path.write_bytes(b"".join(struct.pack(">II", *entry) for entry in entries))
    return path


def test_an_offset_index(log: Path) -> None:
    content = read_content(write_index(log, (3, SIZE), (5, 2 * SIZE)))
    assert content.problems == []
    assert content.entries == [{"offset": 103, "position": SIZE}, {"offset": 105, "position": 2 * SIZE}]


def test_zeros_after_the_entries_are_preallocated_space(log: Path) -> None:
    assert len(read_content(write_index(log, (3, SIZE), (0, 0), (0, 0))).entries) == 1


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (((3, SIZE + 1),), "no whole batch begins at position"),
        (((2, SIZE),), "ends with offset 103, not 102"),
        (((5, 2 * SIZE), (3, SIZE)), "entries must grow"),
    ],
)
def test_what_is_wrong_with_an_index(log: Path, entries: tuple[tuple[int, int], ...], problem: str) -> None:
    assert any(problem in one for one in read_content(write_index(log, *entries)).problems)


def test_an_index_cut_off_or_without_its_log(log: Path) -> None:
    path = write_index(log, (3, SIZE))
    path.write_bytes(path.read_bytes()[:-1])
    assert "not a multiple of the entry size" in read_content(path).problems[0]
    log.unlink()
    assert any("is missing, so the index cannot be verified" in one for one in read_content(path).problems)


def test_a_time_index(log: Path) -> None:
    path = log.with_suffix(".timeindex")
    path.write_bytes(struct.pack(">qI", 1000, 1) + struct.pack(">qI", 2000, 3))
    assert read_content(path).problems == []
    path.write_bytes(struct.pack(">qI", 1200, 5))
    assert "later time 2000" in read_content(path).problems[0]


def test_transactions(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    data = [
        batch(0),
        build_marker(EndMarker(7, 0, False, 3), 1000, 2, leader_epoch=0),
        build_marker(EndMarker(8, 0, True, 3), 1000, 3, leader_epoch=0),
    ]
    path.write_bytes(b"".join(map(bytes, data)))
    assert [entry["marker"] for entry in read_content(path).entries] == ["", "abort", "commit"]
    index = path.with_suffix(".txnindex")
    index.write_bytes(encode_transaction_index([AbortedTransaction(7, 0, 2, 3), AbortedTransaction(8, 0, 3, 4)]))
    content = read_content(index)
    assert content.kind == "transaction index"
    assert content.entries[0] == {
        "producer_id": 7,
        "first_offset": 0,
        "last_offset": 2,
        "last_stable_offset": 3,
    }
    assert content.problems == [f"producer 8 has no abort marker at offset 3 of {path.name}"]
    index.write_bytes(index.read_bytes()[:40])
    assert "not a multiple of the entry size" in read_content(index).problems[0]


def test_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.snapshot"
    entry = SnapshotEntry(5, 0, 9, 99, 1, 1000, -1, -1)
    path.write_bytes(encode_snapshot([entry]))
    assert read_content(path).entries == [entry._asdict()]
    path.write_bytes(path.read_bytes()[:-1])
    assert "not a valid snapshot" in read_content(path).problems[0]


def test_small_text_files(tmp_path: Path) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 3 42\n")
    assert read_content(checkpoint).entries == [{"topic": "t", "partition": 3, "offset": 42}]
    checkpoint.write_text("0\n2\nt 3 42\n")
    assert read_content(checkpoint).problems
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n1\n4 7\n")
    assert read_content(epochs).entries == [{"epoch": 4, "start_offset": 7}]
    ids = tmp_path / "headrace-topic-id-checkpoint"
    ids.write_text("0\n1\nt 3 AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert read_content(ids).entries == [{"topic": "t", "partition": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}]


def test_a_segment_that_was_set_aside(log: Path) -> None:
    aside = log.rename(f"{log}.20261116T025152-1f0c2a9b-stray")
    found = read_content(aside)
    assert found.kind == "segment"
    assert found.entries
    assert not found.problems


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a log file"):
        read_content(tmp_path / "notes.txt")
