"""A disk that fails while it is read: this partition says so, and its directory is judged (R-LOG-8)."""

from __future__ import annotations

import contextlib
import errno
import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.builder import NewRecord, build_batch
from headrace.storage import log as log_module
from headrace.storage.log import Log
from headrace.storage.resources import StorageResources
from headrace.storage.timestamps import find_by_timestamp
from headrace.testing.faulty_disk import FaultyDisk

SMALL = {"segment_bytes": 2000, "index_interval_bytes": 200}


@pytest.fixture
def disk(store: Any) -> FaultyDisk:
    """Ten segments, none of them open or in a cache."""
    faulty = FaultyDisk()
    store.env = replace(store.env, disk=faulty)
    store.resources = StorageResources.create(store.env)
    store.create(**SMALL)
    for _ in range(180):
        store.append()
        store.clock.now_ms += 1
    assert len(store.log.segments) > 9
    store.log.close()
    store.reopen(clean=True)
    return faulty


READS: dict[str, Callable[[Log], object]] = {
    "read an old segment": lambda log: log.read(30, 1000, 180),
    "read up to a limit": lambda log: log.read(178, 1000, 179),
    "one batch": lambda log: log.batch_at(50),
    "by timestamp": lambda log: log.find_offset_by_timestamp(0),
    "largest timestamp": lambda log: log.max_timestamp_offset(),
    "retention": lambda log: log.delete_expired(180),
}


OPENED = "read up to a limit"
"""It is in the active segment, whose file is open."""


@pytest.mark.parametrize(
    ("name", "call"),
    [(name, call) for name in READS for call in ("pread", "open") if (name, call) != (OPENED, "open")],
)
def test_a_failed_read_is_a_storage_error_and_the_directory_is_given_up(
    store: Any, disk: FaultyDisk, name: str, call: str
) -> None:
    disk.fail(store.directory, errno.EIO, call)
    with pytest.raises(KafkaError) as error:
        READS[name](store.log)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.log.failure is not None
    assert store.log.failure.errno == errno.EIO


def test_a_failed_write_does_not_keep_its_batch(store: Any, disk: FaultyDisk) -> None:
    """Why the directory is offline is remembered for as long as the broker runs; a request can have 100 MB."""
    disk.fail(store.directory, errno.EIO, "pwrite")
    request = bytearray(build_batch([NewRecord(b"v")]))
    gc.disable()
    try:
        with contextlib.suppress(KafkaError):  # pytest.raises would keep its traceback
            store.log.append_as_leader(memoryview(request), 0)
        assert store.log.failure is not None
        request.append(0)  # raises BufferError while anything refers to the batch
    finally:
        gc.enable()


def test_too_many_open_files_pass(store: Any, disk: FaultyDisk) -> None:
    disk.fail(store.directory, errno.EMFILE, "open")
    with pytest.raises(KafkaError) as error:
        store.log.read(30, 1000, 180)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.log.failure is None
    disk.heal()
    assert store.log.read(30, 1000, 180) is not None


@pytest.mark.parametrize("read", ["read an old segment", "by timestamp"])
def test_a_file_that_is_missing_is_a_failure(store: Any, disk: FaultyDisk, read: str) -> None:
    for path in store.files(".log"):
        path.unlink()
    with pytest.raises(KafkaError) as error:
        READS[read](store.log)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.log.failure is not None


def test_a_log_that_was_deleted_meanwhile_fails_nobody(store: Any, disk: FaultyDisk) -> None:
    store.log.abandon()
    Path(store.directory).rename(store.directory + "-delete")
    with pytest.raises(KafkaError):
        store.log.find_offset_by_timestamp(0)
    assert store.log.failure is None


def test_a_search_begins_again_when_retention_was_faster(
    store: Any, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a thread: the segments it goes through may be removed under it."""
    searches = []

    def with_removal(log: Log, resources: StorageResources, timestamp: int) -> Any:
        searches.append(timestamp)
        if len(searches) == 1:
            log.remove_first_segments(3)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return find_by_timestamp(log, resources, timestamp)

    monkeypatch.setattr(log_module, "find_by_timestamp", with_removal)
    found = store.log.find_offset_by_timestamp(0)
    assert found is not None
    assert found.offset == store.log.start_offset > 0
    assert store.log.failure is None
    assert len(searches) == 2
