"""The topics of the cluster as far as groups need them: name, id, number of partitions.

A view is a value, rebuilt by the shell when the metadata image changes. What is computed from it (the hash of a
set of topics, the names a pattern matches) is remembered inside it, so a heartbeat costs a look-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.groups.regex import matching_names
from headrace.model.topics import TopicId


@dataclass(frozen=True, slots=True)
class GroupTopic:
    name: str
    id: TopicId
    partition_count: int


class TopicsView:
    __slots__ = ("_hashes", "_matches", "by_id", "by_name", "version")

    def __init__(self, topics: Iterable[GroupTopic] = (), version: int = 0) -> None:
        """`version` is stored with resolved patterns, for people to read."""
        self.by_name = {topic.name: topic for topic in topics}
        self.by_id = {topic.id: topic for topic in self.by_name.values()}
        self.version = version
        self._hashes: dict[frozenset[str], int] = {}
        self._matches: dict[str, frozenset[str]] = {}

    def ids_of(self, names: Iterable[str]) -> frozenset[TopicId]:
        """The ids of the names that exist."""
        return frozenset(self.by_name[name].id for name in names if name in self.by_name)

    def hash_of(self, names: frozenset[str]) -> int:
        """A signed 64-bit number that changes when one of them is created, deleted or extended; 0 for no
        topics."""
        known = self._hashes.get(names)
        if known is None:
            known = self._hashes[names] = self._compute_hash(names)
        return known

    def matching(self, pattern: str) -> frozenset[str]:
        """The names that a subscription pattern matches; INVALID_REGULAR_EXPRESSION if it is not valid."""
        known = self._matches.get(pattern)
        if known is None:
            known = self._matches[pattern] = matching_names(pattern, self.by_name)
        return known

    def _compute_hash(self, names: frozenset[str]) -> int:
        existing = sorted(name for name in names if name in self.by_name)
        if not existing:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for name in existing:
            topic = self.by_name[name]
            digest.update(f"{name}:{topic.id.hex()}:{topic.partition_count};".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)
