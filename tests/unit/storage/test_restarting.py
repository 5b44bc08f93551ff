"""A log that begins anew on a full disk stays as it was, and begins anew when there is room."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.storage.resources import StorageResources
from headrace.testing.faulty_disk import FaultyDisk


@pytest.fixture
def disk(store: Any) -> FaultyDisk:
    faulty = FaultyDisk()
    store.env = replace(store.env, disk=faulty)
    store.resources = StorageResources.create(store.env)
    store.create(segment_bytes=2000, index_interval_bytes=200)
    for _ in range(60):
        store.append()
    assert len(store.log.segments) > 3
    return faulty


@pytest.mark.parametrize("offset", [0, 10, 1000], ids=["where it began", "inside", "beyond its end"])
def test_a_log_stays_as_it_was_while_the_disk_is_full(store: Any, disk: FaultyDisk, offset: int) -> None:
    log = store.log
    before = (
        log.segments,
        log.start_offset,
        log.end_offset,
        log.leader_epochs.entries,
        sorted(path.name for path in Path(log.directory).iterdir()),
    )
    disk.fail(log.directory, errno.ENOSPC, "open", "pwrite")
    with pytest.raises(KafkaError) as error:
        log.truncate_fully_and_start_at(offset)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None
    assert before == (
        log.segments,
        log.start_offset,
        log.end_offset,
        log.leader_epochs.entries,
        sorted(path.name for path in Path(log.directory).iterdir()),
    )
    disk.heal()
    assert log.read(30, 1000, 60) is not None
    log.truncate_fully_and_start_at(offset)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (offset, offset, 1)
    store.append()
    store.reopen(clean=False)
    assert (store.log.start_offset, store.log.end_offset) == (offset, offset + 1)


@pytest.mark.parametrize("offset", [0, 1000])
def test_only_the_new_file_takes_room(store: Any, disk: FaultyDisk, offset: int) -> None:
    """Found by the simulation (seed 2056): the old segments were gone before the new one was there."""
    log = store.log
    fresh = log._segments.create_beside(log.directory, offset)
    disk.fail(log.directory, errno.ENOSPC, "open", "pwrite", "truncate", "fsync", "fdatasync")
    log._segments.restart(fresh, 0)
    assert log.segments == (fresh,)


@pytest.mark.parametrize("offset", [60, 50, 30], ids=["nothing", "part of a segment", "segments"])
def test_a_log_that_is_cut_while_the_disk_is_full(store: Any, disk: FaultyDisk, offset: int) -> None:
    """Found by the simulation: without room for the checkpoint of its epochs a follower's cut ended its broker."""
    log = store.log
    log.assign_leader_epoch(7)  # nothing is written in it: it is not in the leader's history
    disk.fail(f"{log.directory}/leader-epoch-checkpoint", errno.ENOSPC, "open", "pwrite")
    with pytest.raises(KafkaError) as error:
        log.truncate_to(offset)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None
    assert (log.end_offset, log.leader_epochs.latest) == (offset, 0)
    store.append()
    disk.heal()
    store.reopen(clean=False)
    assert (store.log.end_offset, store.log.leader_epochs.latest) == (offset + 1, 0)
