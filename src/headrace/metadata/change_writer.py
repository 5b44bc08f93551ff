"""How a controller writes changes to the store: fenced by its epoch, and announced to all brokers (D5).

Changes are written as one `multi`, which
- checks the version of `/controller_epoch`, so that a controller that was replaced cannot write,
- adds the next entry of `/changes`, from which all brokers, this one included, learn of it.
Many changes are several such writes, each of them complete by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.coordination.contract import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Store,
    Unknown,
)
from headrace.metadata.changes import (
    Change,
    changed_acls,
    changed_brokers,
    changed_groups,
    changed_partitions,
    changed_quotas,
    changed_states,
    changed_topics,
    changed_users,
    operations,
)
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.layout import BROKER_IDS, CHANGES, CONTROLLER_EPOCH, change_path, decode_json, encode_json
from headrace.metadata.writes import in_writes
from headrace.model.errors import ErrorCode, KafkaError

KEPT_CHANGES = 64
"""Entries of `/changes`; a broker that is further behind reads everything again."""
MAX_TRIMMED = 8
"""Old entries dropped with one write."""
MAX_PARTITIONS_PER_WRITE = 2_000
"""Everybody waits for a write; besides, the store takes about a megabyte at once (`writes`)."""


@dataclass(frozen=True, slots=True)
class Term:
    """From one election to the loss of the role."""

    epoch: int
    epoch_version: int


class Deposed(Exception):
    """Another broker was elected: nothing was written."""


class ChangeWriter:
    def __init__(self, store: Store, metadata: ClusterMetadata) -> None:
        self._store = store
        self._metadata = metadata
        self._writes = 0
        """Begun so far: with the epoch, the name of each."""

    async def write(self, term: Term, changes: Sequence[Change]) -> bool:
        """Write the changes, in several writes if need be. After one that fails, earlier ones stay in effect.

        False if they were decided on an image that was behind the store. Raises `Deposed`, `StoreError`, or
        REQUEST_TIMED_OUT if the result is not known.
        """
        for part in in_writes(changes, MAX_PARTITIONS_PER_WRITE):
            if not await self._commit(term, part):
                return False
        return True

    async def _commit(self, term: Term, changes: Sequence[Change]) -> bool:
        sequence = self._metadata.sequence + 1
        write = self._writes = self._writes + 1
        try:
            await self._store.multi(self._operations(term, sequence, write, changes))
        except Unknown:
            await self._confirm(term, sequence, write)
        except (BadVersion, NodeExists, NoNode, NotEmpty) as error:
            if error.path == CONTROLLER_EPOCH:
                raise Deposed from error
            await self._metadata.catch_up(CHANGES, BROKER_IDS)  # who is suspected is known with the brokers
            return False
        await self._metadata.catch_up(CHANGES)
        return True

    def _operations(self, term: Term, sequence: int, write: int, changes: Sequence[Change]) -> list[Op]:
        entry = encode_json(
            controller_epoch=term.epoch,
            write=write,
            topics=changed_topics(changes),
            brokers=changed_brokers(changes),
            groups=changed_groups(changes),
            acls=changed_acls(changes),
            users=changed_users(changes),
            quotas=changed_quotas(changes),
            partitions=changed_partitions(changes),
            states=changed_states(changes, term.epoch),
        )
        ops: list[Op] = [Check(CONTROLLER_EPOCH, term.epoch_version), Create(change_path(sequence), entry)]
        oldest = self._metadata.oldest_sequence
        if oldest:
            surplus = range(oldest, min(sequence - KEPT_CHANGES + 1, oldest + MAX_TRIMMED))
            ops += [Delete(change_path(old)) for old in surplus]
        for change in changes:
            ops += operations(change, term.epoch)
        return ops

    async def _confirm(self, term: Term, sequence: int, write: int) -> None:
        """After an unknown result: return if this write is there; an earlier unknown one may be in its place."""
        node = await self._store.get(change_path(sequence))
        entry = decode_json(node) if node is not None else {}
        if (entry.get("controller_epoch"), entry.get("write")) != (term.epoch, write):
            raise unknown_result()


def unknown_result() -> KafkaError:
    detail = "The coordination store failed during the write: whether it happened is not known."
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail)
