"""Committed offsets, and those that wait for the end of their transaction. Only `apply` changes them.

Of two commits of one partition the later in the log wins. An offset committed in a transaction counts from where
it stands in the log, not from where the transaction ends, so a plain commit that came between is not undone by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.groups.events import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OffsetCommitted,
    OffsetDeleted,
    OffsetRecord,
    TransactionEnded,
)
from headrace.model.topics import TopicPartition

_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python: every commit comes here."""


class StoredOffset(NamedTuple):
    commit: OffsetCommitted
    sequence: int
    """The order of its record among all that were applied."""

    def expired(self, base_timestamp_ms: int, now_ms: int, retention_ms: int) -> bool:
        if self.commit.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= self.commit.expire_timestamp_ms
        return now_ms - base_timestamp_ms >= retention_ms


class OffsetStore:
    __slots__ = ("_committed", "_pending", "_sequence")

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, StoredOffset]]] = {}
        self._sequence = 0

    def get(self, group_id: str, partition: TopicPartition) -> OffsetCommitted | None:
        stored = self._committed.get(group_id, {}).get(partition)
        return None if stored is None else stored.commit

    def of_group(self, group_id: str) -> dict[TopicPartition, StoredOffset]:
        """Committed ones; not to be changed."""
        return self._committed.get(group_id, {})

    def group_ids(self) -> set[str]:
        pending = (group_id for groups in self._pending.values() for group_id in groups)
        return set(self._committed).union(pending)

    def pending_partitions(self, group_id: str) -> set[TopicPartition]:
        return {partition for groups in self._pending.values() for partition in groups.get(group_id, ())}

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(partition in groups.get(group_id, ()) for groups in self._pending.values())

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self._pending.values())

    def all_partitions(self) -> Iterator[tuple[str, TopicPartition]]:
        for group_id in sorted(self.group_ids()):
            for partition in sorted(self.of_group(group_id).keys() | self.pending_partitions(group_id)):
                yield group_id, partition

    def apply(self, event: OffsetRecord) -> None:
        match event:
            case OffsetCommitted():
                self.apply_commit(event)
            case OffsetDeleted():
                self._apply_delete(event)
            case TransactionEnded():
                self._apply_end(event)

    def replace_group(self, group_id: str, found: OffsetStore) -> None:
        """Take a group's positions as they were found in the log.

        Sequences stay comparable: what was found was applied here too, after at least as many others.
        """
        for groups in (self._committed, *self._pending.values()):
            groups.pop(group_id, None)
        if group_id in found._committed:
            self._committed[group_id] = found._committed[group_id]
        for producer_id, groups in found._pending.items():
            if group_id in groups:
                self._pending.setdefault(producer_id, {})[group_id] = groups[group_id]

    def apply_commit(self, event: OffsetCommitted) -> None:
        self._sequence += 1
        group_id, topic, partition, _, _, _, _, _, _, producer_id = event  # at once: field by field is slow
        groups = self._committed
        if producer_id != NO_PRODUCER_ID:
            groups = self._pending.setdefault(producer_id, {})
        offsets = groups.get(group_id)
        if offsets is None:
            offsets = groups[group_id] = {}
        place = _new_tuple(TopicPartition, (topic, partition))
        offsets[place] = _new_tuple(StoredOffset, (event, self._sequence))

    def _apply_delete(self, event: OffsetDeleted) -> None:
        partition = TopicPartition(event.topic, event.partition)
        for groups in (self._committed, *self._pending.values()):
            offsets = groups.get(event.group_id)
            if offsets is not None:
                offsets.pop(partition, None)
                if not offsets:
                    del groups[event.group_id]

    def _apply_end(self, event: TransactionEnded) -> None:
        groups = self._pending.pop(event.producer_id, {})
        if not event.committed:
            return
        for group_id, offsets in groups.items():
            committed = self._committed.setdefault(group_id, {})
            for partition, stored in offsets.items():
                existing = committed.get(partition)
                if existing is None or existing.sequence < stored.sequence:
                    committed[partition] = stored
