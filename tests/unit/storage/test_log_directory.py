"""A data directory: one owner, an identity, logs that come and go, clean and unclean stops (R-LOG-7, D12)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from headrace.env import Env
from headrace.env.real import RealDisk
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.storage.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TOPIC_IDS,
    WRITTEN_OFFSETS,
    read_offsets,
)
from headrace.storage.identity import DirectoryRefused
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directory import LogDirectory

TOPIC_ID = TopicId(b"fedcba9876543210")
ONE = TopicPartition("orders.eu", 0)
TWO = TopicPartition("a-b", 11)


def opened(env: Env, path: Path, config: LogConfig | None = None) -> LogDirectory:
    directory = LogDirectory(env, str(path / "broker-1"))
    directory.open("cluster", 1)
    directory.load(lambda partition, topic_id: config or LogConfig())
    return directory


def append(directory: LogDirectory, partition: TopicPartition, count: int = 1) -> None:
    log = directory.logs[partition]
    log.append_as_leader(build_batch([NewRecord(b"v", timestamp=1_700_000_000_000)] * count), 0)


def test_logs_come_back_with_their_topic_ids(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    for partition in (ONE, TWO):
        directory.create_log(partition, TOPIC_ID, LogConfig())
        append(directory, partition, 3)
    directory.close()
    seen: dict[TopicPartition, LogConfig] = {}
    again = LogDirectory(env, directory.path)
    again.open("cluster", 1)
    assert again.clean_stop
    assert again.same_boot
    again.load(
        lambda partition, topic_id: seen.setdefault(partition, LogConfig(segment_bytes=len(topic_id) * 100))
    )
    assert set(again.logs) == set(seen) == {ONE, TWO}
    assert [(log.end_offset, log.topic_id) for log in again.logs.values()] == [(3, TOPIC_ID)] * 2
    assert again.logs[ONE].config.segment_bytes == 1600
    again.close()


def test_a_second_process_is_refused_by_name(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    second = LogDirectory(env, directory.path)
    with pytest.raises(DirectoryRefused, match=directory.path):
        second.open("cluster", 1)
    directory.close()
    second.open("cluster", 1)
    second.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("headrace.format=1", "headrace.format=2"), "newer Headrace"),
        (("cluster.id=cluster", "cluster.id=other"), "cluster.id=other"),
        (("node.id=1", "node.id=7"), "node.id=7"),
    ],
)
def test_a_directory_of_another_kind_is_refused(
    env: Env, tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    directory = opened(env, tmp_path)
    directory.close()
    meta = Path(directory.path) / "meta.properties"
    meta.write_text(meta.read_text().replace(*change))
    again = LogDirectory(env, directory.path)
    for _ in range(2):  # a refusal lets go of the lock
        with pytest.raises(DirectoryRefused, match=words):
            again.open("cluster", 1)


def test_the_directory_id_stays(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    directory_id = directory.directory_id
    directory.close()
    again = opened(env, tmp_path)
    assert again.directory_id == directory_id != ""
    again.close()


def test_an_unclean_stop_is_seen_and_nothing_is_lost(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 5)
    directory.close(clean=False)
    again = opened(env, tmp_path)
    assert not again.clean_stop
    assert again.same_boot
    assert again.logs[ONE].end_offset == 5
    again.close()


def test_another_boot_is_seen(env: Env, tmp_path: Path) -> None:
    opened(env, tmp_path).close(clean=False)

    class Rebooted:
        def __getattr__(self, name: str) -> Any:
            return getattr(env.disk, name)

        def boot_id(self) -> str:
            return "after"

    rebooted: Any = Rebooted()
    again = opened(dataclasses.replace(env, disk=rebooted), tmp_path)
    assert not again.clean_stop
    assert not again.same_boot
    again.close()


def test_a_deleted_log_is_gone_at_once_and_its_files_later(env: Env, tmp_path: Path, clock: Any) -> None:
    """R-TOP-5."""
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    directory.create_log(TWO, TOPIC_ID, LogConfig())
    append(directory, ONE)
    directory.delete_log(ONE)
    root = Path(directory.path)
    assert ONE not in directory.logs
    assert not (root / "orders.eu-0").exists()
    assert len(list(root.glob("orders.eu-0.*-delete"))) == 1
    directory.create_log(ONE, TOPIC_ID, LogConfig())  # the name is free again
    assert directory.logs[ONE].end_offset == 0
    assert directory.take_removable() is None
    clock.now_ms += 60_000
    remove = directory.take_removable()
    assert remove is not None
    remove()
    assert not list(root.glob("*-delete"))
    directory.delete_log(TWO)
    directory.close()
    again = opened(env, tmp_path)  # what was left over goes with the next start
    assert set(again.logs) == {ONE}
    assert not list(root.glob("*-delete"))
    again.close()


def test_a_long_name_can_be_deleted(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    partition = TopicPartition("x" * 249, 12345)
    directory.create_log(partition, TOPIC_ID, LogConfig())
    directory.delete_log(partition)
    directory.close()


def test_checkpoints_hold_what_recovery_needs(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    log = directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 4)
    log.flush()
    append(directory, ONE, 4)
    log.delete_records_to(2)
    directory.checkpoint()
    append(directory, ONE, 4)
    assert read_offsets(env.disk, f"{directory.path}/{RECOVERY_POINTS}") == {ONE: 4}
    assert read_offsets(env.disk, f"{directory.path}/{WRITTEN_OFFSETS}") == {ONE: 8}
    directory.close(clean=False)
    again = opened(env, tmp_path)
    found = again.logs[ONE]
    assert (found.start_offset, found.end_offset, found.recovery_point) == (2, 12, 4)
    again.close()


@pytest.mark.parametrize("same_boot", [True, False])
def test_what_was_written_in_this_boot_is_not_verified_again(env: Env, tmp_path: Path, same_boot: bool) -> None:
    """Damage below the last checkpoint is only looked for where power may have been lost."""
    config = LogConfig(index_interval_bytes=50)
    directory = opened(env, tmp_path, config)
    directory.create_log(ONE, TOPIC_ID, config)
    for _ in range(20):
        append(directory, ONE)
    directory.checkpoint()
    append(directory, ONE)
    directory.close(clean=False)
    log_file = next((Path(directory.path) / str(ONE)).glob("*.log"))
    data = bytearray(log_file.read_bytes())
    data[65] ^= 1
    log_file.write_bytes(data)
    if not same_boot:
        marker = Path(directory.path) / ".headrace_running"
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "bootId": "before"}))
    again = opened(env, tmp_path, config)
    assert again.logs[ONE].end_offset == (21 if same_boot else 0)
    again.close()


def test_high_watermarks(env: Env, tmp_path: Path) -> None:
    """Each within its log, and only of logs that are there."""
    directory = opened(env, tmp_path)
    assert directory.read_high_watermarks() == {}
    three = TopicPartition("three", 0)
    for partition in (ONE, TWO):
        directory.create_log(partition, TOPIC_ID, LogConfig())
        append(directory, partition, 6)
    directory.checkpoint()
    directory.write_high_watermarks({ONE: 5, TWO: 7, three: 1})
    assert directory.read_high_watermarks() == {ONE: 5, TWO: 6}
    directory.close()


OTHER_ID = TopicId(b"0123456789abcdef")


@pytest.mark.parametrize("records", [500, 1000])
def test_a_topic_made_again_inherits_nothing(env: Env, tmp_path: Path, records: int) -> None:
    """Records deleted, checkpoint, topic deleted and created again, records, crash before the next checkpoint.

    With 1,000 of them the numbers of the former topic would fit the log of the new one.
    """
    directory = opened(env, tmp_path)
    log = directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 1000)
    log.delete_records_to(900)
    directory.checkpoint()
    directory.write_high_watermarks({ONE: 400})
    directory.delete_log(ONE)
    directory.create_log(ONE, OTHER_ID, LogConfig())
    append(directory, ONE, records)
    directory.close(clean=False)
    again = opened(env, tmp_path)
    found = again.logs[ONE]
    assert (found.topic_id, found.start_offset, found.end_offset) == (OTHER_ID, 0, records)
    assert again.read_high_watermarks() == {}
    again.close()


@pytest.mark.parametrize("checkpoint", ["never", "after"])
def test_a_high_watermark_of_a_deleted_topic_is_not_its_successors(
    env: Env, tmp_path: Path, checkpoint: str
) -> None:
    """In the first minute of a directory nothing said whose it was, and a checkpoint made it the successor's.

    A leader would then serve what is not committed.
    """
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    directory.create_log(TWO, TOPIC_ID, LogConfig())
    for partition in (ONE, TWO):
        append(directory, partition, 100)
    directory.write_high_watermarks({ONE: 80, TWO: 80})
    directory.delete_log(ONE)
    directory.create_log(ONE, OTHER_ID, LogConfig())
    append(directory, ONE, 100)
    if checkpoint == "after":
        directory.checkpoint()
    directory.close(clean=False)
    again = opened(env, tmp_path)
    assert again.read_high_watermarks() == {TWO: 80}
    again.close()


def test_a_lost_topic_id_is_found_in_the_checkpoint(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 9)
    directory.logs[ONE].delete_records_to(4)
    directory.close()
    (Path(directory.path) / str(ONE) / "partition.metadata").unlink()
    again = opened(env, tmp_path)
    found = again.logs[ONE]
    assert (found.topic_id, found.start_offset, found.end_offset) == (TOPIC_ID, 4, 9)
    again.close()


def test_checkpoints_of_an_older_version_are_believed(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 9)
    directory.logs[ONE].delete_records_to(4)
    directory.close()
    (Path(directory.path) / TOPIC_IDS).unlink()
    again = opened(env, tmp_path)
    assert again.logs[ONE].start_offset == 4
    again.close()


@pytest.mark.parametrize("number", ["-1", "9223372036854775807", "9223372036854775808", "9" * 26])
def test_an_impossible_number_is_left_out(
    env: Env, tmp_path: Path, number: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(env, tmp_path)
    for partition in (ONE, TWO):
        directory.create_log(partition, TOPIC_ID, LogConfig())
        append(directory, partition, 5)
        directory.logs[partition].delete_records_to(2)
    directory.close()
    starts = Path(directory.path) / "log-start-offset-checkpoint"
    starts.write_text(f"0\n2\norders.eu 0 {number}\na-b 11 2\n")
    again = opened(env, tmp_path)
    assert {name: log.start_offset for name, log in again.logs.items()} == {ONE: 0, TWO: 2}
    assert number in caplog.text
    append(again, ONE)
    again.close()


def test_an_impossible_end_is_not_where_an_emptied_log_goes_on(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 5)
    directory.close()
    for path in (Path(directory.path) / str(ONE)).glob("*.log"):
        path.unlink()
    (Path(directory.path) / WRITTEN_OFFSETS).write_text(f"0\n1\n{ONE.topic} {ONE.partition} {2**63 - 1}\n")
    again = opened(env, tmp_path)
    assert again.logs[ONE].end_offset == 5
    again.close()


def test_checkpoints_from_many_threads_do_not_meet(env: Env, tmp_path: Path) -> None:
    """Maintenance, a move and a stop at once: the directory stays healthy, and what was written last stays."""
    directory = opened(env, tmp_path)
    log = directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 9)
    log.delete_records_to(4)
    begun, stopped = Barrier(4), Event()
    failures: list[BaseException] = []

    def work(step: Callable[[], None]) -> None:
        begun.wait()
        try:
            while not stopped.is_set():
                step()
        except BaseException as error:
            failures.append(error)

    def mark_dirty() -> None:
        log.first_dirty_offset = (log.first_dirty_offset + 1) % 9
        directory.write_dirty_offsets()

    threads = [
        Thread(target=work, args=[step]) for step in (directory.checkpoint, directory.checkpoint, mark_dirty)
    ]
    for thread in threads:
        thread.start()
    begun.wait()
    for _ in range(30):
        directory.checkpoint()
    directory.close()
    stopped.set()
    for thread in threads:
        thread.join()
    assert failures == []
    directory.checkpoint()  # by a thread that was late
    again = opened(env, tmp_path)
    assert again.clean_stop
    assert (again.logs[ONE].start_offset, again.logs[ONE].recovery_point) == (4, 9)
    again.close()


@pytest.mark.parametrize("content", [b"", b"1\n0\n", b"0\nx\n", b"0\n2\nt 0 5\n", b"0\n1\nt 0\n", b"\xff\xfe"])
def test_a_spoilt_checkpoint_counts_as_none(env: Env, tmp_path: Path, content: bytes) -> None:
    directory = opened(env, tmp_path)
    directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 5)
    directory.close()
    for name in (RECOVERY_POINTS, WRITTEN_OFFSETS, "log-start-offset-checkpoint", ".headrace_running"):
        (Path(directory.path) / name).write_bytes(content)
    again = opened(env, tmp_path)
    assert again.logs[ONE].end_offset == 5
    again.close()


def test_flush_rolled(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    log = directory.create_log(ONE, TOPIC_ID, LogConfig(segment_bytes=200))
    for _ in range(5):
        append(directory, ONE)
    directory.flush_rolled()
    assert log.recovery_point >= log.active_base_offset > 0
    directory.close()


def test_other_names_in_the_directory_are_left_alone(env: Env, tmp_path: Path) -> None:
    directory = opened(env, tmp_path)
    directory.close()
    (Path(directory.path) / "notes.txt").write_text("mine")
    (Path(directory.path) / "lost+found").mkdir()
    again = opened(env, tmp_path)
    assert again.logs == {}
    again.close()
    assert (Path(directory.path) / "notes.txt").read_text() == "mine"


class NotingDisk(RealDisk):
    def __init__(self) -> None:
        self.synced: list[str] = []

    def fsync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_directory(path)


def test_a_sync_covers_the_name_of_a_new_log(env: Env, tmp_path: Path) -> None:
    """Else power loss takes the whole directory of a partition whose records were promised to be on the device."""
    disk = NotingDisk()
    directory = opened(dataclasses.replace(env, disk=disk), tmp_path / "data")
    assert {str(tmp_path), str(tmp_path / "data")} <= set(disk.synced)
    log = directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE)
    disk.synced.clear()
    log.flush(save_index=False)
    assert disk.synced == [log.directory, directory.path]
    append(directory, ONE)
    log.flush(save_index=False)
    assert len(disk.synced) == 2
    directory.close()


def test_where_a_new_log_is_dirty_is_believed_before_the_next_checkpoint(env: Env, tmp_path: Path) -> None:
    """Else its gaps would look like damage after a crash, once the topic is no longer compacted."""
    directory = opened(env, tmp_path)
    directory.checkpoint()
    log = directory.create_log(ONE, TOPIC_ID, LogConfig())
    append(directory, ONE, 9)
    log.first_dirty_offset = 4
    directory.write_dirty_offsets()
    directory.close(clean=False)
    again = opened(env, tmp_path)
    assert again.logs[ONE].first_dirty_offset == 4
    again.close()


def test_a_log_that_is_shorter_than_it_was_is_suspected_alone(env: Env, tmp_path: Path) -> None:
    """Found by the simulation: a copy that was begun again cost the broker its place for every other partition."""
    directory = opened(env, tmp_path)
    for partition in (ONE, TWO):
        directory.create_log(partition, TOPIC_ID, LogConfig())
        append(directory, partition, 3)
    directory.checkpoint()
    directory.logs[ONE].truncate_fully_and_start_at(0)
    directory.close(clean=False)
    again = opened(env, tmp_path)
    assert (again.shorter, again.may_have_lost) == ({ONE}, False)
    again.close()
    told = opened(env, tmp_path)
    assert told.may_have_lost, "nobody was told before the stop, whose checkpoints do not show it"
    told.trust()
    told.close()
    assert not opened(env, tmp_path).may_have_lost


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", ["all", "starts"])
def test_deleted_records_that_are_back_are_reported(
    env: Env, tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool, gone: str
) -> None:
    """Without the checkpoint of start offsets they are: the log says which, as far as its leader epochs tell."""
    directory = opened(env, tmp_path)
    for partition in (ONE, TWO):
        directory.create_log(partition, TOPIC_ID, LogConfig())
        append(directory, partition, 5)
        append(directory, partition, 5)
    directory.logs[ONE].delete_records_to(7)
    directory.checkpoint()
    directory.close(clean=clean)
    again = opened(env, tmp_path)
    assert (again.logs[ONE].start_offset, "deleted" in caplog.text) == (7, False)
    again.checkpoint()
    again.close(clean=clean)
    for file in Path(directory.path).glob("*-checkpoint"):
        if gone == "all" or file.name == LOG_START_OFFSETS:
            file.unlink()
    again = opened(env, tmp_path)
    assert again.logs[ONE].start_offset == 0
    assert f"{LOG_START_OFFSETS} is missing" in caplog.text
    assert "records that were deleted with DeleteRecords can be read again" in caplog.text
    assert "orders.eu-0: the records below offset 7 had been deleted" in caplog.text
    assert "a-b-11: the records" not in caplog.text
    again.checkpoint()
    again.close(clean=clean)
    caplog.clear()
    opened(env, tmp_path).close()
    assert "deleted" not in caplog.text, "said once"
