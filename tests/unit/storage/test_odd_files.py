"""Files that nobody expected: a data directory starts, keeps what is valid, sets the rest aside and says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.env import Env
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.storage.checkpoints import OF_A_DIRECTORY
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directory import CLEAN_STOP, RUNNING, LogDirectory
from headrace.storage.strays import Strays

TOPIC_ID = TopicId(b"fedcba9876543210")
ONE = TopicPartition("t", 0)
RECORDS = 900
NOW = "20231114T221320"


def opened(env: Env, path: Path, **settings: Any) -> LogDirectory:
    directory = LogDirectory(env, str(path / "broker-1"))
    directory.open("cluster", 1)
    directory.load(lambda partition, topic_id: LogConfig(**settings))
    assert directory.failure is None
    return directory


def filled(env: Env, path: Path, records: int = RECORDS, **settings: Any) -> LogDirectory:
    """One log with 9 records to a batch."""
    directory = opened(env, path, **settings)
    log = directory.create_log(ONE, TOPIC_ID, LogConfig(**settings))
    for _ in range(records // 9):
        log.append_as_leader(build_batch([NewRecord(b"v" * 20, timestamp=1_700_000_000_000)] * 9), 0)
    return directory


def offsets(directory: LogDirectory) -> list[int]:
    """The batches of the log by way of reads."""
    log, found = directory.logs[ONE], []
    offset = log.start_offset
    while (place := log.batch_at(offset)) is not None:
        base = int.from_bytes(os.pread(place.file.fd, 8, place.position), "big")
        found.append(base)
        offset = base + 9
    return found


def strays(path: Path) -> list[str]:
    """What was set aside below, by the names it had."""
    found = sorted(path.rglob("*-stray"))
    assert all(f".{NOW}-" in name.name for name in found)
    return [str(name.relative_to(path)).partition(f".{NOW}-")[0] for name in found]


def reopened(env: Env, directory: LogDirectory, clean: bool, **settings: Any) -> LogDirectory:
    path = Path(directory.path)
    again = opened(env, path.parent, **settings)
    assert again.clean_stop == clean
    assert (again.logs[ONE].start_offset, again.logs[ONE].end_offset) == (0, RECORDS)
    assert offsets(again) == list(range(0, RECORDS, 9))
    again.logs[ONE].append_as_leader(build_batch([NewRecord(b"more", timestamp=1_700_000_000_000)]), 0)
    assert again.logs[ONE].end_offset == RECORDS + 1
    again.checkpoint()
    return again


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("x")


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_file(path: Path) -> None:
    path.write_text("not what you think")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("foo.log.swap", make_file),
        ("x.index", make_directory),
        (f"{5:020d}.index", make_directory),
        (f"{5:020d}.log", make_directory),
        (f"{5:020d}.log", make_dangling),
        (f"{5:020d}.log", make_pipe),
        (f"{5:020d}.log.swap", make_dangling),
        (f"{5:020d}.snapshot", make_directory),
        ("5.snapshot", make_file),
        ("9" * 20 + ".log", make_file),
        ("5.log", make_file),
        ("leader-epoch-checkpoint.tmp", make_directory),
    ],
)
def test_an_odd_thing_in_a_log(
    env: Env, tmp_path: Path, name: str, make: Any, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory = filled(env, tmp_path)
    directory.close(clean)
    make(Path(directory.path, "t-0", name))
    reopened(env, directory, clean).close()
    assert strays(tmp_path) == [f"broker-1/t-0/{name}"]
    assert name in caplog.text


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("make", [make_directory, make_dangling])
@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "partition.metadata", f"{0:020d}.index", f"{0:020d}.timeindex"]
)
def test_what_should_be_a_file_of_a_log_and_is_not(
    env: Env, tmp_path: Path, name: str, make: Any, clean: bool
) -> None:
    directory = filled(env, tmp_path)
    directory.checkpoint()
    directory.close(clean)
    path = Path(directory.path, "t-0", name)
    path.unlink()
    make(path)
    again = reopened(env, directory, clean)
    assert again.logs[ONE].topic_id == TOPIC_ID
    again.close()
    assert strays(tmp_path) == [f"broker-1/t-0/{name}"]


@pytest.mark.parametrize("name", ["a-0", "t-1", *OF_A_DIRECTORY])
@pytest.mark.parametrize("make", [make_file, make_dangling, make_directory, make_pipe])
def test_an_odd_thing_beside_the_logs(env: Env, tmp_path: Path, name: str, make: Any) -> None:
    is_log = not name.endswith("checkpoint")
    if make is make_file and not is_log:
        return  # a spoilt checkpoint is another test's
    if make is make_directory and is_log:
        return  # that is a log, if an empty one
    directory = filled(env, tmp_path)
    directory.close()
    path = Path(directory.path, name)
    path.unlink(missing_ok=True)
    make(path)
    reopened(env, directory, clean=True).close()
    assert strays(tmp_path) == [f"broker-1/{name}"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("make", [make_dangling, make_directory, make_pipe])
@pytest.mark.parametrize("name", [CLEAN_STOP, RUNNING])
def test_a_marker_that_is_not_a_file(env: Env, tmp_path: Path, name: str, make: Any, clean: bool) -> None:
    """It says nothing about the last stop, so that was an unclean one."""
    directory = filled(env, tmp_path)
    directory.close(clean)
    path = Path(directory.path, name)
    path.unlink(missing_ok=True)
    make(path)
    again = LogDirectory(env, directory.path)
    again.open("cluster", 1)
    assert again.clean_stop == (clean and name == RUNNING)
    again.load(lambda *_: LogConfig())
    assert again.logs[ONE].end_offset
    again.close()
    assert strays(tmp_path) == [f"broker-1/{name}"]


def test_names_that_mean_nothing_are_left_alone(env: Env, tmp_path: Path) -> None:
    directory = filled(env, tmp_path)
    directory.close()
    root = Path(directory.path)
    places = [root / name for name in ("notes.tmp", "x-delete", "t-0/notes.tmp", "t-0/notes.log.deleted")]
    for place in places:
        make_file(place)
    make_directory(root / "old-delete")
    reopened(env, directory, clean=True).close()
    assert all(place.exists() for place in (*places, root / "old-delete"))
    assert strays(tmp_path) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 4000])
@pytest.mark.parametrize("content", ["empty", "garbage", "batches", "with its index"])
@pytest.mark.parametrize("base_offset", [7, RECORDS - 5])
def test_a_segment_between_the_others_takes_nothing_away(
    env: Env, tmp_path: Path, clean: bool, synced: bool, segment_bytes: int, content: str, base_offset: int
) -> None:
    if content == "with its index" and segment_bytes == 4000 and base_offset == 7:
        return  # not noticed at a start: a scrub finds it
    settings = {"segment_bytes": segment_bytes, "index_interval_bytes": 500}
    directory = filled(env, tmp_path, **settings)
    if synced:
        directory.logs[ONE].flush()
        directory.checkpoint()
    directory.close(clean)
    foreign = build_batch([NewRecord(b"foreign")] * 3)
    foreign[:8] = base_offset.to_bytes(8, "big")
    data = {"empty": b"", "garbage": b"\7" * 999}.get(content, bytes(foreign))
    stray = Path(directory.path, "t-0", f"{base_offset:020d}.log")
    stray.write_bytes(data)
    if content == "with its index":
        stray.with_suffix(".index").touch()
        stray.with_suffix(".timeindex").touch()
    reopened(env, directory, clean, **settings).close()
    found = strays(tmp_path)
    assert f"broker-1/t-0/{base_offset:020d}.log" in found


@pytest.mark.parametrize("content", ["empty", "cut", "garbage", "flipped"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_that_is_not_whole_replaces_nothing(env: Env, tmp_path: Path, content: str, clean: bool) -> None:
    directory = filled(env, tmp_path)
    directory.close(clean)
    log = Path(directory.path, "t-0", f"{0:020d}.log")
    data = bytearray(log.read_bytes())
    if content == "flipped":
        data[-1] ^= 1
    kept = {"empty": 0, "cut": len(data) - 5}.get(content, len(data))
    Path(f"{log}.swap").write_bytes(data[:kept] if content != "garbage" else b"\7" * 5000)
    Path(directory.path, "t-0", f"{0:020d}.index.swap").write_bytes(b"")
    reopened(env, directory, clean).close()
    assert strays(tmp_path) == [f"broker-1/t-0/{0:020d}.log.swap"]
    assert not list(Path(directory.path).rglob("*.swap"))


def test_a_missing_segment_is_told_of(env: Env, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = filled(env, tmp_path, segment_bytes=4000)
    directory.close()
    logs = sorted(Path(directory.path, "t-0").glob("*.log"))
    logs[1].unlink()
    again = opened(env, tmp_path, segment_bytes=4000)
    assert again.logs[ONE].end_offset == RECORDS
    assert f"{logs[1]} is missing" in caplog.text
    again.close()


def test_what_follows_damage_is_kept_beside(env: Env, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log ends before the damage. What came after it is not served, and not thrown away either."""
    directory = filled(env, tmp_path, segment_bytes=4000)
    directory.close(clean=False)
    logs = sorted(Path(directory.path, "t-0").glob("*.log"))
    whole = [path.read_bytes() for path in logs]
    data = bytearray(whole[1])
    batch = int.from_bytes(data[8:12], "big") + 12
    data[batch + 70] ^= 1
    logs[1].write_bytes(data)
    again = opened(env, tmp_path, segment_bytes=4000)
    assert again.logs[ONE].end_offset == int(logs[1].stem) + 9
    again.close()
    found = {name.name.partition(f".{NOW}")[0]: name.read_bytes() for name in tmp_path.rglob("*-stray")}
    assert found == {logs[1].name: bytes(data[batch:])} | {
        log.name: content for log, content in zip(logs[2:], whole[2:], strict=True)
    }
    assert "is damaged" in caplog.text


def test_strays_go_when_their_time_has_come(env: Env, tmp_path: Path, clock: Any) -> None:
    """By the time in the name, also over a restart; Kafka's names tell none."""
    make_file(tmp_path / "a-0")
    make_directory(tmp_path / "b-0")
    make_directory(tmp_path / "c-0.0123456789abcdef0123456789abcdef-stray")
    before = Strays(env)
    names = [before.set_aside(str(tmp_path / "a-0"), "why"), before.set_aside(str(tmp_path / "b-0"), "why", 0)]
    clock.now_ms += 5000
    after = Strays(env)
    for path in sorted(tmp_path.iterdir()):
        after.add(str(path))
    assert len(after) == 3
    assert after.take_due(6000) == []
    assert after.take_due(-1) == []
    after.remove(after.take_due(5000))
    assert [path.name[:3] for path in tmp_path.iterdir()] == ["c-0"]
    clock.now_ms += 5000
    after.remove([*after.take_due(5000), *names])
    assert list(tmp_path.iterdir()) == []


def test_a_long_name_keeps_its_partition(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    partition = TopicPartition("x" * 249, 12345)
    directory.create_log(partition, TOPIC_ID, LogConfig())
    directory.set_log_aside(partition, "why")
    (found,) = Path(directory.path).glob("*-stray")
    assert found.name.startswith("xxx")
    assert "x-12345.2023" in found.name
    directory.close()


def test_what_is_left_behind_a_hole_does_not_pass_for_the_log(env: Env, tmp_path: Path) -> None:
    """Found by the simulation: a loss of power takes a closed segment that was not synced, and leaves the next.

    A log that began there would follow its leader from there on, and count as in sync without the records before.
    """
    directory = filled(env, tmp_path, segment_bytes=2000)
    segments = directory.logs[ONE].segments
    assert len(segments) > 2
    directory.close(clean=False)
    log = Path(directory.path) / str(ONE)
    (log / f"{0:020d}.log").write_bytes(b"")
    again = opened(env, tmp_path, segment_bytes=2000)
    assert (again.logs[ONE].start_offset, again.logs[ONE].end_offset) == (0, 0)
    assert [Path(name).name for name in strays(log) if name.endswith(".log")] == [
        f"{segment.base_offset:020d}.log" for segment in segments[1:]
    ]


def test_an_empty_segment_before_the_start_of_a_log_is_a_stray(env: Env, tmp_path: Path) -> None:
    directory = filled(env, tmp_path, segment_bytes=2000)
    first, second, *_ = directory.logs[ONE].segments
    directory.logs[ONE].delete_records_to(second.base_offset)
    directory.checkpoint()
    directory.close()
    log = Path(directory.path) / str(ONE)
    for path in log.glob(f"{first.base_offset:020d}.*"):
        path.unlink()
    (log / f"{0:020d}.log").write_bytes(b"")
    again = opened(env, tmp_path, segment_bytes=2000)
    assert (again.logs[ONE].start_offset, again.logs[ONE].end_offset) == (second.base_offset, RECORDS)
