"""Who may lead besides the in-sync set: the eligible leader replicas of a partition (KIP-966, ADR 0007).

A member that leaves the in-sync set had every committed record. It still has them for as long as nothing more is
committed, so while the set is below `min.insync.replicas` it stays *eligible*, and the leader commits nothing
while the partition's state names such a replica. As soon as enough replicas are in sync the list is emptied, in
the write that makes them enough; only then does the high watermark move on.

- Who may have lost records (an unclean return) leaves both sets. It is noted in `last_known_elr` for people who
  must choose.
- The in-sync set is never empty: if all its members may have lost records, the eligible ones take their place. If
  there are none either, there is no better choice, and the members stay.
- The last member of the set must say that it is there. It may be dead, its disk lost, and only not missed yet. So
  when the controller's decision leaves a single member, those who left stay eligible however small
  `min.insync.replicas` is, until the leader itself asks for the set that it knows (`in_sync`). A leader that asks
  to be alone has said so.
- Safety does not depend on who thinks that `min.insync.replicas` is what: the leader goes by the list. A
  controller that expects more replicas than the leader makes it wait; one that expects fewer has fewer candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from headrace.metadata.image import NO_LEADER, PartitionImage

MinInSync = Callable[[PartitionImage], int]
"""How many in-sync replicas the partition's leader needs to commit."""


def one_is_enough(_: PartitionImage) -> int:
    """The minimum without a list of eligible replicas: as if `min.insync.replicas` were 1."""
    return 1


def without_suspects(partition: PartitionImage, suspects: Collection[int]) -> PartitionImage:
    """The partition after those who may have lost records have left its sets."""
    isr = tuple(replica for replica in partition.isr if replica not in suspects)
    elr = tuple(replica for replica in partition.elr if replica not in suspects)
    if isr == partition.isr and elr == partition.elr:
        return partition
    if not isr:
        isr, elr = elr or partition.isr, ()
    return replace(partition, isr=isr, elr=elr)


ASSURED = 2
"""The size of a set that is safe although no member has confirmed that it is there: one of them is."""


def with_eligible(
    before: PartitionImage,
    after: PartitionImage,
    min_in_sync: MinInSync,
    suspects: Collection[int] = (),
    at_leaders_wish: bool = False,
) -> PartitionImage:
    """`after`, which was decided on `before`, with its eligible replicas; `before` if nothing changed."""
    elr, last_known = _eligible(before, after, suspects)
    if elr or last_known:
        needed = min_in_sync(after) if at_leaders_wish else max(min_in_sync(after), ASSURED)
        if after.leader != NO_LEADER and len(after.isr) >= needed:
            elr = last_known = ()
    if (elr, last_known) != (after.elr, after.last_known_elr):
        after = replace(after, elr=elr, last_known_elr=last_known)
    return before if after == before else after


def _eligible(
    before: PartitionImage, after: PartitionImage, suspects: Collection[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if after is before and not before.elr and not before.last_known_elr:
        return (), ()
    complete = {*before.isr, *before.elr}
    if after.leader not in complete and after.leader != NO_LEADER:
        return (), ()  # An unclean election: what it commits nobody else has.
    elr = _ordered(after, (id for id in complete if id not in suspects and id not in after.isr))
    known = {*complete, *before.last_known_elr}
    return elr, _ordered(after, known.difference(after.isr, elr))


def _ordered(partition: PartitionImage, members: Iterable[int]) -> tuple[int, ...]:
    """The members in the order of the assignment; replicas that are no longer part of it are dropped."""
    chosen = set(members)
    return tuple(replica for replica in partition.replicas if replica in chosen)
