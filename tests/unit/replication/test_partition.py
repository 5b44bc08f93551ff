"""A partition's promises: what is acknowledged, what is read, whatever happens to its role or its directory."""

from __future__ import annotations

import contextlib
import errno
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.env.real import real_env
from headrace.metadata.image import PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicPartition
from headrace.replication.flushing import Flusher
from headrace.replication.host import PartitionHost
from headrace.replication.leadership import InSyncChange, SingleFetch
from headrace.replication.partition import (
    ACKS_ALL,
    COMMITTED,
    REPLICA,
    UNCOMMITTED,
    Partition,
)
from headrace.replication.refusals import EXCUSED_SECONDS
from headrace.replication.replica_set import ReplicaSet
from headrace.replication.sync_rounds import Syncing, SyncRounds
from headrace.storage.loading import create_log
from headrace.storage.log_config import LogConfig
from headrace.storage.resources import StorageResources
from headrace.testing.raw_client import BatchShape, build_batch

EPOCH = 3


class FakeLease:
    def __init__(self) -> None:
        self.is_valid = True

    def valid(self) -> bool:
        return self.is_valid


LEASE = FakeLease()


@pytest.fixture(autouse=True)
def valid_lease() -> Iterator[None]:
    yield
    LEASE.is_valid = True


class HeldRounds(SyncRounds):
    """Syncs that never end."""

    def ask(self, asking: Syncing) -> None:
        pass


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    env = real_env()
    name = TopicPartition("t", 0)
    resources = StorageResources.create(env, str(tmp_path))
    log = create_log(str(tmp_path / "t-0"), name, NO_TOPIC_ID, LogConfig(min_insync_replicas=2), resources)
    yield Partition(name, NO_TOPIC_ID, log, PartitionHost(1, env.clock, LEASE))
    log.abandon()


def lead(
    partition: Partition, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), epoch: int = EPOCH
) -> None:
    partition.become_leader(PartitionImage(replicas, 1, epoch, isr))


def append(partition: Partition, acks: int = 1) -> int:
    batch = build_batch([b"v"], BatchShape())
    base_offset, _, _ = partition.append(memoryview(bytearray(batch)), acks)
    return base_offset + 1


def followers(partition: Partition, **ends: int) -> None:
    for name, end in ends.items():
        partition.follower_fetched(int(name.removeprefix("r")), end, 7, SingleFetch(time.monotonic()))


def test_what_waited_for_a_joiner_is_committed_when_it_is_refused(partition: Partition) -> None:
    """A stopping follower may not join, and asks no more: without a look nothing moved until it was back."""
    lead(partition, (1, 2))
    assert partition.leadership is not None
    followers(partition, r2=0, r3=0)
    partition.leadership.pending = InSyncChange((1, 2, 3), (7, 7, 7), 0)
    end = append(partition, ACKS_ALL)
    followers(partition, r2=end)
    assert not partition.acknowledged(end, ACKS_ALL, EPOCH)
    partition.end_wish()
    assert partition.acknowledged(end, ACKS_ALL, EPOCH)


class Asked:
    """Who looks at in-sync sets."""

    def __init__(self) -> None:
        self.count = 0

    def ask(self, partition: Partition) -> None:
        self.count += 1


def test_who_caught_up_while_another_was_asked_in_is_asked_in_after_it(partition: Partition) -> None:
    """An idle partition is not fetched again: two brokers that came back at once, and the second stayed out."""
    asked = partition._host.in_sync = Asked()
    lead(partition, (1,))
    assert partition.leadership is not None
    followers(partition, r2=0)
    assert asked.count == 1
    partition.leadership.pending = InSyncChange((1, 2), (7, 7), 0)
    followers(partition, r3=0)
    partition.become_leader(PartitionImage((1, 2, 3), 1, EPOCH, (1, 2), 1))
    assert partition.leadership.pending is None
    assert asked.count == 2


def test_a_leader_that_others_may_replace_asks_for_the_set_as_it_is(partition: Partition) -> None:
    asked = partition._host.in_sync = Asked()
    partition.become_leader(PartitionImage((1, 2, 3), 1, EPOCH, (1,), elr=(2,)))
    assert asked.count == 1
    assert partition.leadership is not None
    partition.leadership.heard = True
    partition.config_changed()
    assert asked.count == 2
    assert not partition.leadership.heard, "it may be enough by another setting"


def test_a_follower_that_begins_beyond_the_end_has_nothing(partition: Partition) -> None:
    """Its empty log begins where that of a former leader did: it counted for all that came up to there."""
    lead(partition, (1,))
    with pytest.raises(KafkaError) as refusal:
        followers(partition, r2=500)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.leadership is not None
    assert not partition.leadership.any_may_join(partition.high_watermark, 0)
    lead(partition, (1, 2), epoch=EPOCH)
    append(partition, ACKS_ALL)
    assert partition.high_watermark == 0


def test_a_late_request_of_a_follower_that_restarted_is_refused(partition: Partition) -> None:
    lead(partition, (1, 2))
    end = append(partition, ACKS_ALL)
    partition.follower_fetched(2, 0, 7, SingleFetch(time.monotonic()))
    with pytest.raises(KafkaError) as refusal:
        partition.follower_fetched(2, end, 6, SingleFetch(time.monotonic()))
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0


def sync_before_ack(partition: Partition) -> None:
    config = LogConfig(min_insync_replicas=2, flush_messages=1)
    partition.log.update_config(config)
    env = real_env()
    partition.set_flusher(Flusher(env, HeldRounds(env), partition, config))


async def test_alone_an_append_is_acknowledged_at_once(partition: Partition) -> None:
    lead(partition, (1,), (1,))
    end = append(partition, ACKS_ALL)
    assert partition.settled
    assert partition.acknowledged(end, ACKS_ALL, EPOCH)
    assert partition.high_watermark == end


async def test_each_acks_waits_for_exactly_what_it_says(partition: Partition) -> None:
    lead(partition, (1, 2, 3))
    followers(partition, r2=0, r3=0)
    end = append(partition, ACKS_ALL)
    told = {acks: partition.acknowledged(end, acks, EPOCH) for acks in (1, 2, 3, ACKS_ALL)}
    assert told == {1: True, 2: False, 3: False, ACKS_ALL: False}
    followers(partition, r2=end)
    told = {acks: partition.acknowledged(end, acks, EPOCH) for acks in (1, 2, 3, ACKS_ALL)}
    assert told == {1: True, 2: True, 3: False, ACKS_ALL: False}
    assert partition.high_watermark == 0
    followers(partition, r3=end)
    assert all(partition.acknowledged(end, acks, EPOCH) for acks in (1, 2, 3, ACKS_ALL))
    assert partition.high_watermark == end


async def test_acks_all_needs_enough_replicas_before_and_after(partition: Partition) -> None:
    lead(partition, (1,))
    with pytest.raises(KafkaError) as refusal:
        append(partition, ACKS_ALL)
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, (1, 2))
    end = append(partition, ACKS_ALL)
    lead(partition, (1,))
    with pytest.raises(KafkaError) as refusal:
        partition.acknowledged(end, ACKS_ALL, EPOCH)
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.high_watermark == 0


async def test_more_acks_than_replicas_are_refused(partition: Partition) -> None:
    lead(partition, (1, 2, 3))
    with pytest.raises(KafkaError) as refusal:
        append(partition, 4)
    assert refusal.value.code is ErrorCode.INVALID_REQUIRED_ACKS


async def test_after_a_change_of_leader_nothing_is_acknowledged(partition: Partition) -> None:
    lead(partition, (1,), (1,))
    end = append(partition)
    partition.become_follower(PartitionImage((1, 2), 2, EPOCH + 1, (1, 2)))
    with pytest.raises(KafkaError) as refusal:
        partition.acknowledged(end, 1, EPOCH)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lead(partition, (1,), (1,), EPOCH + 2)
    with pytest.raises(KafkaError):
        partition.acknowledged(end, 1, EPOCH)


async def test_what_is_not_synced_is_not_acknowledged_by_a_failing_directory(partition: Partition) -> None:
    """A regression: dropping the flusher moved the high watermark over batches whose sync never ended."""
    lead(partition, (1,), (1,))
    sync_before_ack(partition)
    end = append(partition)
    assert not partition.acknowledged(end, 1, EPOCH)
    replicas: Any = SimpleNamespace(_fetchers=None)
    ReplicaSet._retire(replicas, partition)
    assert partition.high_watermark < end
    with pytest.raises(KafkaError):
        partition.acknowledged(end, 1, EPOCH)


def test_partitions_are_made_while_a_thread_goes_through_them() -> None:
    """It writes their high watermarks down: its failure ended the broker (found with thousands of partitions)."""
    replicas: Any = SimpleNamespace(by_name={b"a": {0: "a-0", 1: "a-1"}, b"b": {0: "b-0"}})
    found: Iterator[Any] = ReplicaSet.all(replicas)
    assert next(found) == "a-0"
    replicas.by_name[b"a"][2] = "a-2"
    replicas.by_name[b"c"] = {0: "c-0"}
    assert list(found) == ["a-1", "b-0"]


async def test_a_failed_log_is_looked_at_before_the_high_watermark(partition: Partition) -> None:
    lead(partition, (1,), (1,))
    end = append(partition)
    partition.log._resources.health.fail(OSError(errno.EIO, "gone"))
    with pytest.raises(KafkaError) as refusal:
        partition.acknowledged(end, 1, EPOCH)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_synced_here_and_committed_are_two_things(partition: Partition) -> None:
    lead(partition, (1, 2))
    sync_before_ack(partition)
    end = append(partition)
    followers(partition, r2=end)
    assert not partition.acknowledged(end, 1, EPOCH)
    assert partition.high_watermark == 0
    partition.log.flush()
    partition.flushed()
    assert partition.acknowledged(end, 1, EPOCH)
    assert partition.high_watermark == end


async def test_consumers_see_the_committed_part_and_replicas_all(partition: Partition) -> None:
    lead(partition, (1, 2))
    followers(partition, r2=0)
    first = append(partition)
    followers(partition, r2=first)
    append(partition)
    for reader in (UNCOMMITTED, COMMITTED):
        high_watermark, stable, start, data = partition.read(0, 1 << 20, reader, True)
        assert (high_watermark, stable, start) == (1, 1, 0)
        assert data is not None
        assert partition.read(1, 1 << 20, reader, True)[3] is None
    assert partition.read(1, 1 << 20, REPLICA, True)[3] is not None


async def test_the_end_is_not_told_before_the_epoch_is_confirmed(partition: Partition) -> None:
    lead(partition, (1,), (1,))
    append(partition)
    partition.high_watermark = 0
    lead(partition, (1, 2), epoch=EPOCH + 1)
    with pytest.raises(KafkaError) as refusal:
        partition.visible_end(UNCOMMITTED)
    assert refusal.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    followers(partition, r2=1)
    assert partition.visible_end(UNCOMMITTED) == 1


@pytest.mark.parametrize("acks", [0, 1])
async def test_without_a_lease_a_leader_serves_only_while_all_follow(partition: Partition, acks: int) -> None:
    lead(partition, (1, 2))
    followers(partition, r2=0)
    LEASE.is_valid = False
    append(partition, acks)
    partition.read(0, 1000, UNCOMMITTED, True)
    partition.follower_fetched(2, 1, 7, SingleFetch(time.monotonic() - 60))
    with pytest.raises(KafkaError) as refusal:
        append(partition, acks)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for reader in (UNCOMMITTED, COMMITTED):
        with pytest.raises(KafkaError):
            partition.read(0, 1000, reader, True)
    append(partition, ACKS_ALL)
    assert partition.read(1, 1000, REPLICA, True)[3] is not None


def of_old(partition: Partition) -> None:
    """As if it had led for long."""
    partition._refusals.began_at -= EXCUSED_SECONDS


def sent(base_sequence: int) -> memoryview:
    shape = BatchShape(producer_id=5, producer_epoch=0, base_sequence=base_sequence)
    return memoryview(bytearray(build_batch([b"x"], shape)))


def test_a_gap_right_after_an_election_is_not_called_one(partition: Partition) -> None:
    """The batch before it may have been refused because this broker did not lead yet; both come again."""
    lead(partition, (1, 2))
    partition.append(sent(0), ACKS_ALL)
    with pytest.raises(KafkaError) as refusal:
        partition.append(sent(2), ACKS_ALL)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.append(sent(0), ACKS_ALL)[0] == 0, "a repeated one is known"
    partition.append(sent(1), ACKS_ALL)
    assert partition.append(sent(2), ACKS_ALL)[0] == 2
    of_old(partition)
    with pytest.raises(KafkaError) as gap:
        partition.append(sent(4), ACKS_ALL)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def refused(partition: Partition, batch: memoryview) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        partition.append(batch, ACKS_ALL)
    return refusal.value.code


def test_a_gap_after_too_few_replicas_is_not_called_one(partition: Partition) -> None:
    """The next request in flight comes when there are enough again; the refused batch comes once more, too."""
    lead(partition, (1,))
    of_old(partition)
    assert refused(partition, sent(0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, (1, 2))
    partition.append(sent(0), ACKS_ALL)
    lead(partition, (1,))
    assert refused(partition, sent(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, (1, 2))
    assert refused(partition, sent(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition._refusals.refused_at -= EXCUSED_SECONDS
    assert refused(partition, sent(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "it is not excused forever"
    assert partition.append(sent(1), ACKS_ALL)[0] == 1


def test_a_new_producer_does_not_begin_behind_a_refused_batch(partition: Partition) -> None:
    """It was stored before the one that came again: librdkafka reported that as delivered, and it was lost."""
    lead(partition, (1,))
    of_old(partition)
    assert refused(partition, sent(0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, (1, 2))
    assert refused(partition, sent(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.append(sent(0), ACKS_ALL)
    assert partition.append(sent(1), ACKS_ALL)[0] == 1


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_a_new_producer_does_not_begin_behind_a_batch_that_came_too_early(
    partition: Partition, replicas: tuple[int, ...]
) -> None:
    """The one before it may have come when this broker did not lead yet: of a new topic, too."""
    lead(partition, replicas, replicas)
    acks = ACKS_ALL if len(replicas) > 1 else 1
    for _ in range(2):
        with pytest.raises(KafkaError) as refusal:
            partition.append(sent(1), acks)
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.append(sent(0), acks)
    assert partition.append(sent(1), acks)[0] == 1


def test_a_forgotten_producer_continues_after_a_moment(partition: Partition) -> None:
    """Its records may have been deleted; what refuses it meanwhile does not make the moment longer."""
    lead(partition, (1, 2))
    assert refused(partition, sent(5)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    of_old(partition)
    assert partition.append(sent(5), ACKS_ALL)[0] == 0
    assert not partition._refusals.lately, "nobody looks at the clock any more"


def test_a_gap_after_a_full_disk_is_not_called_one(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    lead(partition, (1,), replicas=(1,))
    partition.append(sent(0), 1)

    def no_room(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(partition.log), "append_as_leader", no_room)
        assert refused(partition, sent(1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(partition, sent(2)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.append(sent(1), 1)[0] == 1
    assert partition.append(sent(2), 1)[0] == 2


@pytest.mark.parametrize(("base_sequence", "in_sync"), [(0, (1,)), (7, (1, 2))])
def test_a_refused_batch_is_let_go(partition: Partition, base_sequence: int, in_sync: tuple[int, ...]) -> None:
    """What explains a refusal, or is remembered of it, must not hold the request: that can be 100 MB unfolded."""
    lead(partition, (1, 2))
    of_old(partition)
    partition.append(sent(0), ACKS_ALL)
    lead(partition, in_sync)
    request = bytearray(sent(base_sequence))
    gc.disable()
    try:
        with contextlib.suppress(KafkaError):  # pytest.raises would keep its traceback
            partition.append(memoryview(request), ACKS_ALL)
        assert partition.log.end_offset == 1
        request.append(0)  # raises BufferError while anything refers to the batch
    finally:
        gc.enable()


async def test_without_a_lease_a_leader_does_not_judge_sequences(partition: Partition) -> None:
    """It may have missed what came before, and clients take that error as final."""
    lead(partition, (1, 2))
    of_old(partition)
    followers(partition, r2=0)
    gap = memoryview(bytearray(build_batch([b"x"], BatchShape(producer_id=5, producer_epoch=0, base_sequence=0))))
    partition.append(gap, ACKS_ALL)
    later = build_batch([b"x"], BatchShape(producer_id=5, producer_epoch=0, base_sequence=7))
    with pytest.raises(KafkaError) as judged:
        partition.append(memoryview(bytearray(later)), ACKS_ALL)
    assert judged.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    LEASE.is_valid = False
    partition.follower_fetched(2, 1, 7, SingleFetch(time.monotonic() - 60))
    with pytest.raises(KafkaError) as refusal:
        partition.append(memoryview(bytearray(later)), ACKS_ALL)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_after_a_failed_write_a_gap_is_not_one(partition: Partition) -> None:
    """Clients in flight took the gap for the end of their epoch, and sent what was replicated once more."""
    lead(partition, (1, 2))
    followers(partition, r2=0)
    first = build_batch([b"x"], BatchShape(producer_id=5, producer_epoch=0, base_sequence=0))
    partition.append(memoryview(bytearray(first)), ACKS_ALL)
    partition.log._resources.health.fail(OSError(5, "Input/output error"))
    later = build_batch([b"x"], BatchShape(producer_id=5, producer_epoch=0, base_sequence=7))
    with pytest.raises(KafkaError) as refusal:
        partition.append(memoryview(bytearray(later)), ACKS_ALL)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_without_a_lease_nobody_surely_leads_whom_not_all_follow(partition: Partition) -> None:
    lead(partition, (1, 2))
    followers(partition, r2=0)
    assert partition.surely_leads
    LEASE.is_valid = False
    assert partition.surely_leads
    partition.follower_fetched(2, 0, 7, SingleFetch(time.monotonic() - 60))
    assert not partition.surely_leads
    for ask in (lambda: partition.visible_end(UNCOMMITTED), lambda: partition.epoch_end(EPOCH, COMMITTED)):
        with pytest.raises(KafkaError) as refusal:
            ask()
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "where the log ends now is not known"
    assert partition.visible_end(REPLICA) == 0
    LEASE.is_valid = True
    assert partition.surely_leads


async def test_a_new_leader_does_not_tell_consumers_that_they_read_too_far(partition: Partition) -> None:
    """Its high watermark is what it last knew: consumers took it for a truncation, and read records again."""
    fill(partition, 1, 1, 1)
    follow(partition, 2)
    partition.high_watermark = 1
    lead(partition, (1, 2), epoch=3)
    assert partition.epoch_end(1, UNCOMMITTED) == (1, 3)
    append(partition)
    assert partition.high_watermark == 1
    assert partition.epoch_end(1, UNCOMMITTED) == (1, 3)


async def test_without_a_lease_an_only_replica_goes_on(partition: Partition) -> None:
    lead(partition, (1,), (1,))
    LEASE.is_valid = False
    append(partition)
    assert partition.read(0, 1000, UNCOMMITTED, True)[3] is not None


def fill(partition: Partition, *epochs: int) -> None:
    """One record in each of these epochs."""
    for epoch in epochs:
        if epoch > partition.leader_epoch:
            lead(partition, (1,), (1,), epoch)
        append(partition)


def follow(partition: Partition, epoch: int) -> None:
    partition.become_follower(PartitionImage((1, 2), 2, epoch, (2,)))


async def test_a_follower_goes_back_epoch_by_epoch_until_both_agree(partition: Partition) -> None:
    """KIP-279: leader 1 1 3, follower 1 2 2; neither knows the other's middle epoch."""
    fill(partition, 1, 2, 2)
    partition.high_watermark = 1
    follow(partition, 4)
    assert partition.log.leader_epochs.latest == 2
    partition.cut_to_leader(1, 2)
    assert partition.end_offset == 1
    assert partition.log.leader_epochs.latest == 1
    assert partition.high_watermark == 1


async def test_an_epoch_without_records_is_forgotten_too(partition: Partition) -> None:
    """A regression of others: after two empty elections the truncation never ended."""
    fill(partition, 1)
    lead(partition, (1,), (1,), 5)
    follow(partition, 6)
    assert partition.log.leader_epochs.latest == 5
    partition.cut_to_leader(1, 1)
    assert (partition.end_offset, partition.log.leader_epochs.latest) == (1, 1)


async def test_below_the_high_watermark_only_after_an_unclean_election(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    fill(partition, 1, 1, 1)
    assert partition.high_watermark == 3
    follow(partition, 2)
    partition.cut_to_leader(1, 1)
    assert (partition.end_offset, partition.high_watermark) == (1, 1)
    assert "at least 2 of them committed" in caplog.text


async def test_a_leader_says_where_a_reader_parts_from_it(partition: Partition) -> None:
    fill(partition, 1, 1, 3)
    assert partition.divergence(3, 3) is None
    assert partition.divergence(2, 1) is None
    assert partition.divergence(3, 1) == (1, 2)
    assert partition.divergence(2, 2) == (1, 2)


async def test_a_follower_takes_the_leaders_marks_within_its_own_log(partition: Partition) -> None:
    fill(partition, 1, 1, 1)
    partition.high_watermark = 0
    follow(partition, 2)
    partition.follow_marks(10, 2)
    assert (partition.high_watermark, partition.log.start_offset) == (3, 2)
    partition.follow_marks(1, 0)
    assert (partition.high_watermark, partition.log.start_offset) == (3, 2)


async def test_what_has_waited_asks_for_the_lease(partition: Partition) -> None:
    """A leader that was cut off does not learn that it was replaced: without lease and followers it says so."""
    lead(partition, (1, 2))
    followers(partition, r2=0)
    LEASE.is_valid = False
    partition.check_lease()
    partition.follower_fetched(2, 0, 7, SingleFetch(time.monotonic() - 60))
    with pytest.raises(KafkaError) as refusal:
        partition.check_lease()
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    LEASE.is_valid = True
    partition.check_lease()
