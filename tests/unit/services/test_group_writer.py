"""R-CON-3: a decision is told of once its records are where the promise says, and not before."""

from __future__ import annotations

from typing import cast

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.groups.events import OffsetCommitted
from headrace.model.errors import ErrorCode
from headrace.records.batch import parse_header
from headrace.records.reader import read_records
from headrace.replication.partition import Partition
from headrace.services.groups.records import decode_batch
from headrace.services.groups.settings import ShellSettings, shell_settings
from headrace.services.groups.writer import MAX_BATCH_BYTES, DecisionWriter
from tests.unit.services.fakes import FakeClock, FakePartition

TIMEOUT_MS = 5_000


class Outcome:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def stored(self) -> None:
        self.heard.append("stored")

    def failed(self, error: ErrorCode) -> None:
        self.heard.append(f"failed {error.name}")

    def delayed(self, error: ErrorCode) -> None:
        self.heard.append(f"delayed {error.name}")

    def lost(self) -> None:
        self.heard.append("lost")


class Desk:
    def __init__(self, follows: bool = True, codec: int = 0, linger_ms: int = -1) -> None:
        self.clock = FakeClock()
        self.partition = FakePartition(follows)
        settings = ShellSettings(codec, TIMEOUT_MS, load_buffer_bytes=1_000, append_linger_ms=linger_ms)
        self.writer = DecisionWriter(self.clock, cast(Partition, self.partition), settings)

    def write(self, *offsets: int, metadata: str = "") -> Outcome:
        events = tuple(OffsetCommitted("g", "t", 0, offset, -1, metadata, 9) for offset in offsets)
        outcome = Outcome()
        self.writer.write(events, self.clock.wall_ms(), outcome)
        return outcome

    def stored_offsets(self) -> list[list[int]]:
        return [
            [event.offset for event in decode_batch(memoryview(batch)) if isinstance(event, OffsetCommitted)]
            for batch in self.partition.batches
        ]


def test_one_turn_is_one_batch() -> None:
    desk = Desk()
    outcomes = [desk.write(1), desk.write(2, 3), desk.write(4)]
    assert [outcome.heard for outcome in outcomes] == [[], [], []]
    desk.clock.turn()
    assert [outcome.heard for outcome in outcomes] == [["stored"]] * 3
    last = desk.write(5)
    desk.clock.turn()
    assert last.heard == ["stored"]
    assert desk.stored_offsets() == [[1, 2, 3, 4], [5]]


def test_the_records_have_the_time_of_the_decision() -> None:
    desk = Desk()
    desk.write(1)
    desk.clock.turn()
    (record,) = read_records(desk.partition.batches[0])
    assert record.timestamp == desk.clock.wall_ms()


@pytest.mark.parametrize("codec", range(5))
def test_codecs(codec: int) -> None:
    desk = Desk(codec=codec)
    desk.write(*range(100))
    desk.clock.turn()
    assert parse_header(desk.partition.batches[0]).codec == codec
    assert desk.stored_offsets() == [list(range(100))]


def test_a_batch_is_never_larger_than_the_topic_allows() -> None:
    desk = Desk()
    outcomes = [desk.write(number, metadata="x" * 4000) for number in range(500)]
    desk.clock.turn()
    assert all(outcome.heard == ["stored"] for outcome in outcomes)
    assert len(desk.partition.batches) > 1
    assert max(len(batch) for batch in desk.partition.batches) <= desk.partition.log.config.max_message_bytes
    assert [offset for batch in desk.stored_offsets() for offset in batch] == list(range(500))


def test_waits_for_the_replicas() -> None:
    desk = Desk(follows=False)
    first, second = desk.write(1), desk.write(2)
    desk.clock.turn()
    third = desk.write(3)
    desk.clock.turn()
    desk.partition.replicate(1)
    assert first.heard == second.heard == third.heard == [], "half a batch is none"
    desk.partition.replicate(2)
    assert (first.heard, second.heard, third.heard) == (["stored"], ["stored"], [])
    desk.partition.replicate(3)
    assert third.heard == ["stored"]
    assert not desk.partition.waiters
    desk.clock.advance(60)
    assert third.heard == ["stored"]


def test_nobody_is_kept_waiting_but_what_happens_happens() -> None:
    desk = Desk(follows=False)
    early = desk.write(1)
    desk.clock.turn()
    desk.clock.advance(2)
    late = desk.write(2)
    desk.clock.turn()
    desk.clock.advance(3.1)
    assert (early.heard, late.heard) == (["delayed REQUEST_TIMED_OUT"], [])
    desk.clock.advance(2)
    assert late.heard == ["delayed REQUEST_TIMED_OUT"]
    desk.clock.advance(60)
    desk.partition.replicate(2)
    assert early.heard == late.heard == ["delayed REQUEST_TIMED_OUT", "stored"]


def test_a_failed_append_fails_all_of_its_batch() -> None:
    desk = Desk()
    desk.partition.failure = ErrorCode.KAFKA_STORAGE_ERROR
    outcomes = [desk.write(1), desk.write(2)]
    desk.clock.turn()
    assert [outcome.heard for outcome in outcomes] == [["failed KAFKA_STORAGE_ERROR"]] * 2
    desk.partition.failure = None
    after = desk.write(3)
    desk.clock.turn()
    assert after.heard == ["stored"]


@pytest.mark.parametrize("change", ["resigned", "next epoch"])
def test_nothing_is_appended_after_the_lead_is_lost(change: str) -> None:
    desk = Desk()
    outcome = desk.write(1)
    if change == "resigned":
        desk.partition.is_leader = False
    else:
        desk.partition.leader_epoch += 1
    desk.clock.turn()
    assert outcome.heard == ["failed NOT_LEADER_OR_FOLLOWER"]
    assert desk.partition.batches == []


def test_close_lets_everybody_go() -> None:
    desk = Desk(follows=False)
    appended = desk.write(1)
    desk.clock.turn()
    queued = desk.write(2)
    desk.writer.close()
    assert appended.heard == queued.heard == ["failed NOT_LEADER_OR_FOLLOWER"]
    desk.clock.turn()
    desk.partition.replicate(1)
    desk.clock.advance(60)
    assert appended.heard == queued.heard == ["failed NOT_LEADER_OR_FOLLOWER"]
    assert len(desk.partition.batches) == 1


def test_a_leader_that_was_replaced_completes_nothing() -> None:
    desk = Desk(follows=False)
    outcome = desk.write(1)
    desk.clock.turn()
    desk.partition.is_leader = False
    desk.partition.replicate(1)
    assert outcome.heard == []


def test_a_log_that_failed_keeps_nobody_waiting() -> None:
    """A sync that failed: what is on the device is unknown, and nothing of it is acknowledged."""
    desk = Desk(follows=False)
    outcome = desk.write(1)
    desk.clock.turn()
    desk.partition.log.failure = OSError("the disk is gone")
    desk.partition.replicate(0)
    assert outcome.heard == ["failed KAFKA_STORAGE_ERROR"]
    assert not desk.partition.waiters


@pytest.mark.parametrize(("given", "linger_ms"), [({}, -1), ({"group.coordinator.append.linger.ms": "7"}, 7)])
def test_the_linger_is_the_brokers_setting(given: dict[str, str], linger_ms: int) -> None:
    assert shell_settings(BrokerConfig.build(flags=given)).append_linger_ms == linger_ms


def test_a_linger_collects_over_many_turns() -> None:
    desk = Desk(linger_ms=5)
    first = desk.write(1)
    desk.clock.turn()
    desk.clock.advance(0.004)
    second = desk.write(2)
    assert (first.heard, second.heard, desk.partition.batches) == ([], [], [])
    desk.clock.advance(0.001)
    assert (first.heard, second.heard, desk.stored_offsets()) == (["stored"], ["stored"], [[1, 2]])
    desk.write(3)
    desk.clock.advance(0.005)
    assert desk.stored_offsets() == [[1, 2], [3]]


def test_a_full_batch_does_not_linger() -> None:
    desk = Desk(linger_ms=1_000)
    limit = desk.partition.log.config.max_message_bytes
    outcomes = [desk.write(1), desk.write(2, metadata="x" * min(limit, MAX_BATCH_BYTES))]
    assert [outcome.heard != [] for outcome in outcomes] == [True, True]
    assert not [timer for timer in desk.clock.timers if not timer.cancelled]


def test_without_a_linger_each_decision_is_a_batch() -> None:
    desk = Desk(linger_ms=0)
    assert (desk.write(1).heard, desk.write(2).heard) == (["stored"], ["stored"])
    assert desk.stored_offsets() == [[1], [2]]


def test_what_lingers_when_the_leader_changes_is_not_written() -> None:
    desk = Desk(linger_ms=5)
    outcome = desk.write(1)
    desk.partition.leader_epoch += 1
    desk.clock.advance(0.005)
    assert (outcome.heard, desk.partition.batches) == (["failed NOT_LEADER_OR_FOLLOWER"], [])


def test_an_append_that_raises_is_told_to_all_that_shared_it() -> None:
    desk = Desk()
    outcomes = [desk.write(1), desk.write(2)]
    desk.partition.append_own = None  # type: ignore[assignment]  # calling it is our bug
    desk.clock.turn()
    assert [outcome.heard for outcome in outcomes] == [["lost"], ["lost"]]
