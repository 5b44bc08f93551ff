"""Recovery (R-LOG-7): whatever the bytes are, the log starts with its longest valid prefix."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.storage.checkpoints import LEADER_EPOCHS
from headrace.storage.load_hints import LoadHints
from headrace.storage.segment_index import load_index

SMALL = {"segment_bytes": 1500, "index_interval_bytes": 150}


def fill(store: Any, batches: int = 40, **settings: Any) -> None:
    store.create(**{**SMALL, **settings})
    for sequence in range(batches):
        store.clock.now_ms += 10
        store.produce(sequence)


def check_whole(store: Any, end: int) -> None:
    """Everything below `end` is there, found by every way, and the producer goes on where it was."""
    log = store.log
    assert log.end_offset == end
    assert [header.base_offset for header in store.headers()] == list(range(end))
    for offset in range(end):
        assert parse_header(store.bytes_of(log.read(offset, HEADER_SIZE, end))).base_offset == offset
    headers = store.headers()
    ends = [*(segment.base_offset for segment in log.segments[1:]), end]
    for segment, segment_end in zip(log.segments, ends, strict=True):
        times = [header.max_timestamp for header in headers[segment.base_offset : segment_end]]
        assert segment.largest_timestamp(store.resources)[0] == max(times, default=-1)
    if end:
        assert log.producers.describe()[0].last_sequence == end - 1
        assert log.leader_epochs.entries[0] == (0, 0)
    assert store.produce(end) == end


def test_crash_loses_nothing_that_was_written(store: Any) -> None:
    fill(store)
    store.reopen()
    check_whole(store, 40)


def test_clean_stop_needs_no_scan(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    store.log.close()
    monkeypatch.setattr("headrace.storage.loading.scan_verified", None)
    store.reopen(clean=True)
    check_whole(store, 40)


def test_a_second_clean_stop_writes_no_index_again(store: Any) -> None:
    fill(store)
    store.log.close()
    before = {path: path.stat().st_mtime_ns for path in Path(store.directory).iterdir()}
    store.reopen(clean=True)
    store.log.close()
    assert {path: path.stat().st_mtime_ns for path in Path(store.directory).iterdir()} == before


def test_the_last_batch_cut_at_every_byte(store: Any) -> None:
    fill(store, 6)
    path = store.files(".log")[-1]
    whole = path.read_bytes()
    last = store.log.segments[-1].last_batch_position
    for size in range(last, len(whole)):
        path.write_bytes(whole[:size])
        store.reopen()
        assert store.log.end_offset == 5, size
        assert path.stat().st_size == last
        assert len(store.headers()) == 5
    check_whole(store, 5)


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, b"\0" * 5000, b"x", bytes(range(256)) * 40])
def test_garbage_after_the_tail_is_cut(store: Any, garbage: bytes) -> None:
    fill(store)
    path = store.files(".log")[-1]
    path.write_bytes(path.read_bytes() + garbage)
    store.reopen()
    check_whole(store, 40)


def test_a_torn_tail_of_batches_without_producers(store: Any) -> None:
    """The replay of producers must not run into what has not been verified."""
    store.create(**SMALL)
    for _ in range(8):
        store.append()
    store.log.flush()
    store.append()
    path = store.files(".log")[-1]
    path.write_bytes(path.read_bytes() + bytes(70))
    store.reopen(recovery_point=8)
    assert len(store.headers()) == 9


def test_a_copy_of_the_last_batch_after_it_is_cut(store: Any) -> None:
    fill(store)
    path = store.files(".log")[-1]
    data = path.read_bytes()
    path.write_bytes(data + data[store.log.segments[-1].last_batch_position :])
    store.reopen()
    check_whole(store, 40)


def test_bit_flips_are_never_served(store: Any) -> None:
    fill(store, 12, segment_bytes=1 << 20)
    path = store.files(".log")[-1]
    whole = path.read_bytes()
    starts = [position for position, _ in _batches(whole)]
    rng = random.Random(7)
    for _ in range(200):
        bit = rng.randrange(len(whole) * 8)
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        store.reopen()
        batch = max(number for number, start in enumerate(starts) if start <= bit // 8)
        if 12 <= bit // 8 - starts[batch] < 16:
            continue  # the leader epoch is not covered by the CRC, and any larger one may be true
        assert store.log.end_offset == batch, bit
        assert path.read_bytes() == whole[: starts[batch]]


def _batches(data: bytes) -> list[tuple[int, int]]:
    from headrace.storage.scan import split_batches

    return list(split_batches(memoryview(data)))


def test_damage_in_an_old_segment_drops_what_follows(store: Any) -> None:
    fill(store)
    victim = store.log.segments[2]
    path = store.files(".log")[2]
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 5] ^= 1
    path.write_bytes(data)
    store.reopen()
    check_whole(store, victim.base_offset)
    assert len(store.files(".log")) == 3
    store.reopen()
    assert not store.files(".deleted")


def test_below_the_recovery_point_nothing_is_verified(store: Any) -> None:
    """Only the indexed batch where verification begins, and what comes after it."""
    fill(store, 40, segment_bytes=1 << 20)
    store.log.flush()
    for sequence in range(40, 60):
        store.produce(sequence)
    path = store.files(".log")[0]
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 5] ^= 1  # would cut the log at 0 if it were looked at
    path.write_bytes(data)
    store.reopen(recovery_point=40)
    check_whole(store, 60)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment", [0, 2, -1])
def test_damage_below_the_recovery_point_is_survived(store: Any, segment: int, clean: bool) -> None:
    """A header is destroyed where nothing is verified, and no snapshot saves us from reading it."""
    fill(store)
    store.log.close() if clean else store.log.flush()
    for path in store.files(".snapshot"):
        path.unlink()
    path = store.files(".log")[segment]
    data = bytearray(path.read_bytes())
    data[8:12] = b"\0\0\0\1"
    path.write_bytes(data)
    store.reopen(clean=clean, recovery_point=40)
    check_whole(store, int(path.stem))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", LEADER_EPOCHS])
@pytest.mark.parametrize("damage", ["missing", "short", "empty", "garbage", "longer", "zeros"])
@pytest.mark.parametrize("clean", [True, False])
def test_what_can_be_rebuilt_is_rebuilt(store: Any, suffix: str, damage: str, clean: bool) -> None:
    fill(store)
    store.log.close() if clean else store.log.flush()
    for path in store.files(suffix):
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
            continue
        path.write_bytes(
            {
                "short": data[: len(data) // 2 | 1],
                "empty": b"",
                "garbage": random.Random(3).randbytes(len(data)),
                "longer": data + b"\x7f" * 24,
                "zeros": bytes(len(data)),
            }[damage]
        )
    store.reopen(clean=clean, recovery_point=40)
    check_whole(store, 40)


def test_rebuilt_indexes_are_the_same_bytes(store: Any) -> None:
    fill(store)
    store.log.close()
    files = [*store.files(".index"), *store.files(".timeindex")]
    before = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    store.reopen()
    store.log.close()
    assert {path: path.read_bytes() for path in files} == before


def test_a_stale_snapshot_is_brought_up_to_date(store: Any) -> None:
    """The newest snapshot is old, one is from the future of a log that was cut."""
    fill(store)
    newest = store.files(".snapshot")[-1]
    for path in store.files(".snapshot")[1:]:
        path.unlink()
    (Path(store.directory) / f"{99:020d}.snapshot").write_bytes(newest.read_bytes() if newest.exists() else b"")
    store.reopen(recovery_point=38)
    check_whole(store, 40)
    assert all(int(path.stem) <= 40 for path in store.files(".snapshot"))


def test_an_index_of_a_former_life_is_not_believed(store: Any) -> None:
    """The log was cut and written again with other sizes, but the old index files came back."""
    fill(store, 30, segment_bytes=1 << 20)
    store.log.close()
    old = {path: path.read_bytes() for path in (*store.files(".index"), *store.files(".timeindex"))}
    store.reopen(clean=True)
    store.log.truncate_to(10)
    for sequence in range(10, 40):
        store.append(1, value=b"x" * (50 + sequence), epoch=0)
    for path, data in old.items():
        path.write_bytes(data)
    store.reopen(recovery_point=30)
    assert [header.base_offset for header in store.headers()] == list(range(40))


def test_a_sane_index_with_wrong_positions_is_not_believed(store: Any) -> None:
    """Every entry grows and points into the segment, but not at a batch."""
    fill(store)
    store.log.close()
    for path in store.files(".index"):
        data = path.read_bytes()
        moved = [
            data[n : n + 4] + (int.from_bytes(data[n + 4 : n + 8], "big") - 7).to_bytes(4, "big")
            for n in range(0, len(data), 8)
        ]
        path.write_bytes(b"".join(moved))
    store.reopen(clean=True)
    check_whole(store, 40)


def test_every_batch_is_replayed_once(store: Any) -> None:
    """State from a snapshot, headers up to the recovery point, verified batches after it: none twice."""
    fill(store, 8, segment_bytes=1 << 20)
    store.log.flush()  # so that there is an index by which verification begins in the middle
    for recovery_point in range(9):
        store.reopen(recovery_point=recovery_point)
        for sequence in range(3, 8):
            assert store.produce(sequence) == sequence
        assert store.log.end_offset == 8


def test_start_offset_beyond_a_lost_tail(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nine had been written and deleted when the power went, and five are left."""
    store.append(5)
    store.log.abandon()
    store.load(LoadHints(start_offset=9, written_offset=9, power_lost=True))
    assert (store.log.start_offset, store.log.end_offset) == (9, 9)
    assert "continues at offset 9" in caplog.text
    assert store.append() == 9
    (aside,) = Path(store.directory).glob("*-stray")
    assert aside.name.startswith("00000000000000000000.log.")
    assert aside.stat().st_size


ABSURD = 2**63 - 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"start_offset": 41}, "start offsets says 41"),
        ({"start_offset": ABSURD}, "start offsets says"),
        ({"recovery_point": 41}, "all is valid up to offset 41"),
        ({"recovery_point": ABSURD}, "all is valid up to offset"),
        ({"verified_point": ABSURD}, "all is valid up to offset"),
        ({"first_dirty_offset": 41}, "cleaner's checkpoint says 41"),
        ({"start_offset": 5_000_000_000_000, "written_offset": 9_000_000_000_000}, "start offsets says"),
        ({"start_offset": ABSURD, "written_offset": ABSURD}, "start offsets says"),
    ],
)
def test_a_number_beyond_the_log_is_told_of_and_not_believed(
    store: Any, caplog: pytest.LogCaptureFixture, clean: bool, numbers: dict[str, int], words: str
) -> None:
    """An absurd one must neither wipe a log nor keep it from being verified."""
    fill(store)
    store.log.close()
    if "verified_point" in numbers and clean:
        return  # not looked at after a clean stop
    if "recovery_point" in numbers or "verified_point" in numbers:
        path = store.files(".log")[2]
        data = bytearray(path.read_bytes())
        data[-1] ^= 1  # only found if everything is verified
        path.write_bytes(data)
        end = int(store.files(".log")[3].stem) - 1
    else:
        end = 40
    fields: dict[str, Any] = dict(numbers)
    store.load(replace(LoadHints(clean=clean, recovery_point=40), **fields))
    assert words in caplog.text
    assert store.log.first_dirty_offset == (0 if "first_dirty_offset" in numbers else -1)
    check_whole(store, end)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("entries", ["0 0\n7 3", "5 0", "2147483648 0", "0 0\n1 9223372036854775808", "-3 -5"])
def test_leader_epochs_that_do_not_fit_are_made_anew(store: Any, clean: bool, entries: str) -> None:
    fill(store)
    store.log.close()
    text = f"0\n{entries.count(chr(10)) + 1}\n{entries}\n"
    (Path(store.directory) / LEADER_EPOCHS).write_text(text)
    store.load(LoadHints(clean=clean, recovery_point=40))
    assert store.log.leader_epochs.entries == ((0, 0),)
    check_whole(store, 40)


def test_a_log_whose_files_are_gone_says_so_and_uses_no_offset_again(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(5)
    for path in store.files(".log"):
        path.unlink()
    store.log.abandon()
    store.load(LoadHints(recovery_point=3, written_offset=5))
    assert (store.log.start_offset, store.log.end_offset) == (5, 5)
    assert "has no .log file" in caplog.text
    assert store.append() == 5


def test_an_empty_directory_becomes_an_empty_log(store: Any) -> None:
    for path in Path(store.directory).iterdir():
        path.unlink()
    store.reopen(start_offset=3)
    assert (store.log.start_offset, store.log.end_offset) == (3, 3)


def test_leftovers_are_removed(store: Any) -> None:
    store.append(2)
    directory = Path(store.directory)
    for name in (f"{7:020d}.log.deleted", f"{9:020d}.index", "leader-epoch-checkpoint.tmp"):
        (directory / name).write_bytes(b"x")
    store.reopen()
    assert len(store.headers()) == 1
    assert not [path.name for path in directory.iterdir() if path.suffix in (".deleted", ".tmp")]
    assert not (directory / f"{9:020d}.index").exists()


def test_the_active_index_goes_on_after_a_restart(store: Any) -> None:
    fill(store, 20, segment_bytes=1 << 20)
    store.log.close()
    store.reopen(clean=True)
    for sequence in range(20, 40):
        store.clock.now_ms += 10
        store.produce(sequence)
    store.log.close()
    path, times = store.files(".index")[0], store.files(".timeindex")[0]
    index = load_index(store.env.disk, str(path), str(times), store.log.segments[0].size)
    assert index is not None
    assert len(index.entries) > 10
    store.reopen()
    store.log.close()
    rebuilt = load_index(store.env.disk, str(path), str(times), store.log.segments[0].size)
    assert rebuilt is not None
    assert rebuilt.entries == index.entries
