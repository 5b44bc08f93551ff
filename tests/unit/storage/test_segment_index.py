"""The sparse indexes: lookups, partial saves, and files that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.env.real import RealDisk
from headrace.storage.segment_index import SegmentIndex, load_index

growing = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=30).map(sorted)


@given(growing, growing, st.integers(0, 2**31 - 1))
def test_lookup_finds_the_last_entry_at_or_before(offsets: list[int], positions: list[int], asked: int) -> None:
    index = SegmentIndex()
    pairs = list(zip(offsets, positions, strict=False))
    for offset, position in pairs:
        index.add(offset, position)
    before = max((pair for pair in pairs if pair[0] <= asked), default=(-1, 0))
    after = min((pair for pair in pairs if pair[0] > asked), default=(-1, 0))
    assert index.position_before(asked) == before
    assert index.around(asked) == (*before, *after)


@given(st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 100)), max_size=30), st.integers(0, 2**60))
def test_time_lookup_never_skips_a_record(steps: list[tuple[int, int]], asked: int) -> None:
    index, offset, records = SegmentIndex(), 0, []
    for timestamp, step in steps:
        offset += step + 1
        records.append((timestamp, offset))
        index.add_time(timestamp, offset)
    first = min((offset for timestamp, offset in records if timestamp >= asked), default=None)
    assert first is None or index.offset_before_time(asked) <= first


def test_saves_append_only_what_is_new(tmp_path: Path) -> None:
    disk, path, times = RealDisk(), tmp_path / "x.index", tmp_path / "x.timeindex"
    index = SegmentIndex()
    index.save(disk, str(path), str(times))
    assert (path.read_bytes(), times.read_bytes()) == (b"", b"")
    index.add(5, 100)
    index.add_time(2**40 + 7, 5)
    index.save(disk, str(path), str(times))
    path.write_bytes(b"\xaa" * 8)  # what was saved is not touched again
    index.add(9, 300)
    index.add_time(2**40 + 6, 9)  # not later than before: no entry
    index.save(disk, str(path), str(times))
    assert path.read_bytes() == b"\xaa" * 8 + bytes.fromhex("00000009 0000012c")
    assert times.read_bytes() == bytes.fromhex("0000010000000007 00000005")


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        ("00000001 00000010 00000001 00000020", ""),
        ("00000001 00000010 00000002 00000010", ""),
        ("00000002 00000010 00000001 00000020", ""),
        ("00000001 00001000", ""),
        ("00000001 000010", ""),
        ("", "0000000000000002 00000001 0000000000000001 00000002"),
        ("", "0000000000000001 00000002 0000000000000002 00000001"),
        ("", "0000000000000001 000000"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, offsets: str, times: str) -> None:
    (tmp_path / "i").write_bytes(bytes.fromhex(offsets))
    (tmp_path / "t").write_bytes(bytes.fromhex(times))
    assert load_index(RealDisk(), str(tmp_path / "i"), str(tmp_path / "t"), 0x1000) is None


def test_missing_files_are_no_index(tmp_path: Path) -> None:
    assert load_index(RealDisk(), str(tmp_path / "i"), str(tmp_path / "t"), 10) is None


@given(growing, st.integers(0, 30))
def test_truncate_keeps_what_is_before(offsets: list[int], keep: int) -> None:
    index = SegmentIndex()
    for number, offset in enumerate(offsets):
        index.add(offset, number * 10)
        index.add_time(number, offset)
    kept = offsets[:keep]
    end = offsets[keep] if keep < len(offsets) else 2**31
    index.truncate(end, len(kept) * 10)
    assert [entry >> 32 for entry in index.entries] == kept == list(index.time_offsets)
