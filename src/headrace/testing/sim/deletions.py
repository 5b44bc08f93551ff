"""Where logs start, and why: a record goes by a rule, and what was deleted for good stays deleted.

In some topics records are deleted: by DeleteRecords, by retention, by compaction. Their replicas are looked at
each time the start of a log has moved:

- It moves up to where somebody asked with DeleteRecords, or over batches that retention lets go of by the clock
  and the settings of that broker, or to where the log of another replica starts. Never back.
- What was deleted with an acknowledged DeleteRecords is in no in-sync replica, and in none that joins later. Log
  starts are written down now and then, so a replica that was killed may bring some of it back
  (docs/guarantees.md): from its start on nothing is expected of what it has again.
- After a clean stop a log starts where it did.
- Only a replica that is copied again starts over, which may be before: one of a compacted topic that was away for
  long. It is neither in sync nor eligible to lead.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.replication.partition import Partition
from headrace.storage.log_config import LogConfig
from headrace.testing.sim.brokers import Machine
from headrace.testing.sim.ledger import Ledger
from headrace.testing.sim.store import WatchedStore
from headrace.testing.sim.world import World


@dataclass(frozen=True, slots=True)
class _Seen:
    """A replica when it was last looked at."""

    start: int
    end: int
    config: LogConfig


class Deletions:
    def __init__(self, world: World, store: WatchedStore, ledger: Ledger) -> None:
        self._world = world
        self._store = store
        self._ledger = ledger
        self.highest: dict[TopicPartition, int] = {}
        """Where any replica has ever started: records before that may be gone."""
        self.floors: dict[TopicPartition, int] = {}
        """Up to where an acknowledged DeleteRecords holds."""
        self._asked: dict[TopicPartition, int] = {}
        self._seen: dict[Partition, _Seen] = {}
        self._last: dict[tuple[int, int, bytes, int], int] = {}
        """Where the log of a broker started when it was last looked at, by how often it had started uncleanly."""
        self._returned: dict[TopicPartition, list[tuple[float, int]]] = {}
        """When a replica came back that may lead, and where its log starts."""
        self._doubtful: list[tuple[TopicPartition, int, str]] = []
        """Starts that no rule explains, unless another replica has moved too."""

    # -- what clients do

    def ask(self, place: TopicPartition, offset: int) -> None:
        """Somebody is about to delete everything below an offset."""
        self._asked[place] = max(offset, self._asked.get(place, 0))

    def acknowledge(self, place: TopicPartition, offset: int, asked: float) -> None:
        """It is done, and was asked for at that time."""
        back = [start for time, start in self._returned.get(place, []) if time >= asked]
        self.floors[place] = max(min([offset, *back]), self.floors.get(place, 0))

    def may_be_gone(self, place: TopicPartition, offset: int) -> bool:
        return offset < self.highest.get(place, 0)

    # -- what replicas have

    def look_at(self, machine: Machine, process: str, partition: Partition) -> None:
        place, log = partition.topic_partition, partition.log
        name = f"{process} {place}"
        before, now = self._seen.get(partition), _Seen(log.start_offset, log.end_offset, log.config)
        if before is None:
            self._look_at_new(machine, name, partition)
        elif now.start < before.start and not self._may_start_over(machine, partition):
            self._world.violated(f"{name}: the log started at {before.start}, and starts at {now.start}")
        elif now.start > before.start and not self._is_by_rule(machine, partition, before):
            self._doubtful.append((place, now.start, f"{name}: the log starts at {now.start}, not {before.start}"))
        else:
            self.highest[place] = max(now.start, self.highest.get(place, 0))
        self._seen[partition] = now
        self._last[machine.id, machine.unclean_starts, partition.topic_id, place.partition] = now.start
        state = self._store.states.get((place.topic, place.partition))
        floor = self.floors.get(place, 0)
        if state is not None and machine.id in state.isr and now.start < floor:
            self._world.violated(f"{name}: the log starts at {now.start}; all below {floor} was deleted")

    def _look_at_new(self, machine: Machine, name: str, partition: Partition) -> None:
        """A process has begun, or a copy."""
        place, start = partition.topic_partition, partition.log.start_offset
        key = place.topic, place.partition
        stopped_at = self._last.get((machine.id, machine.unclean_starts, partition.topic_id, place.partition), 0)
        is_copied = key in self._store.moved or self._may_start_over(machine, partition)
        if start < stopped_at and not is_copied:
            self._world.violated(f"{name}: the log starts at {start}, and at {stopped_at} before a clean stop")
        state = self._store.states.get(key)
        if state is not None and machine.id in state.complete:
            self._returned.setdefault(place, []).append((self._world.loop.time(), start))
            self.floors[place] = min(start, self.floors.get(place, 0))

    def _may_start_over(self, machine: Machine, partition: Partition) -> bool:
        place = partition.topic_partition
        state = self._store.states.get((place.topic, place.partition))
        return partition.log.config.compacted and state is not None and machine.id not in state.complete

    def settle(self) -> None:
        """All replicas have been looked at: who has moved by no rule has followed another one."""
        doubtful, self._doubtful = self._doubtful, []
        for place, start, what in doubtful:
            if start > self.highest.get(place, 0):
                self._world.violated(f"{what}, by no rule")

    def _is_by_rule(self, machine: Machine, partition: Partition, before: _Seen) -> bool:
        place, log = partition.topic_partition, partition.log
        if log.start_offset <= max(self._asked.get(place, 0), self.highest.get(place, 0)):
            return True
        return any(
            _retains_no_more(self._ledger, partition, before.start, _wall_ms(machine), config)
            for config in (before.config, log.config)
        )


def _wall_ms(machine: Machine) -> int:
    assert machine.node is not None
    return machine.node._env.clock.wall_ms()


def _retains_no_more(ledger: Ledger, partition: Partition, start: int, now_ms: int, config: LogConfig) -> bool:
    """Whether retention lets go of everything from `start` to where the log starts now."""
    if "delete" not in config.cleanup_policy:
        return False
    log = partition.log
    gone = [
        batch
        for batch in ledger.of(partition).batches.values()
        if batch.end_offset > start and batch.base_offset < log.start_offset
    ]
    left = log.size
    for batch in sorted(gone, reverse=True):
        too_old = 0 <= config.retention_ms < now_ms - parse_header(batch.data).max_timestamp
        too_many = 0 <= config.retention_bytes <= left or (config.retention_bytes >= 0 and config.compacted)
        if not (too_old or too_many):
            return False
        left += len(batch.data)
    return True
