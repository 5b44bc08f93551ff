"""The states of groups and members, with complete tables of what may follow what.

`mermaid` draws a table for the docs, so that a diagram cannot differ from the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TypeVar


class GroupState(Enum):
    """A group of the classic protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Mapping[GroupState, frozenset[GroupState]] = {
    # No members; offsets may be kept. The first member starts the initial delay.
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # Members are told to rejoin and wait; ends when all have, or with the rebalance timeout.
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    # The generation is settled, members wait for the leader's assignment.
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    # Every member has its assignment.
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # Deleted, expired, changed into a consumer group, or no longer coordinated here: no way back.
    GroupState.DEAD: frozenset(),
}
assert NEXT.keys() == set(GroupState)


class ConsumerGroupState(Enum):
    """A group of the consumer protocol (KIP-848); derived from its epochs, never stored."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


CONSUMER_NEXT: Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]] = {
    # No members.
    ConsumerGroupState.EMPTY: frozenset(
        {
            ConsumerGroupState.ASSIGNING,
            ConsumerGroupState.RECONCILING,
            ConsumerGroupState.STABLE,
            ConsumerGroupState.DEAD,
        }
    ),
    # The group epoch is ahead of the target assignment; the next heartbeat computes one.
    ConsumerGroupState.ASSIGNING: frozenset(
        {
            ConsumerGroupState.RECONCILING,
            ConsumerGroupState.STABLE,
            ConsumerGroupState.EMPTY,
            ConsumerGroupState.DEAD,
        }
    ),
    # Members move towards the target: give up first, then take over.
    ConsumerGroupState.RECONCILING: frozenset(
        {
            ConsumerGroupState.ASSIGNING,
            ConsumerGroupState.STABLE,
            ConsumerGroupState.EMPTY,
            ConsumerGroupState.DEAD,
        }
    ),
    # Every member has what the target gives it.
    ConsumerGroupState.STABLE: frozenset(
        {
            ConsumerGroupState.ASSIGNING,
            ConsumerGroupState.RECONCILING,
            ConsumerGroupState.EMPTY,
            ConsumerGroupState.DEAD,
        }
    ),
    # Deleted, or changed into a classic group.
    ConsumerGroupState.DEAD: frozenset(),
}
assert CONSUMER_NEXT.keys() == set(ConsumerGroupState)


class MemberState(IntEnum):
    """A member of a consumer group; the numbers are stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


MEMBER_NEXT: Mapping[MemberState, frozenset[MemberState]] = {
    # Has all that the target of its epoch gives it.
    MemberState.STABLE: frozenset({MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}),
    # Was asked to give partitions up and has not said yet that it did.
    MemberState.UNREVOKED_PARTITIONS: frozenset({MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS}),
    # Waits for partitions that others have not given up.
    MemberState.UNRELEASED_PARTITIONS: frozenset({MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS}),
    # Written by a newer coordinator: the member must give up everything and join again.
    MemberState.UNKNOWN: frozenset(
        {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
    ),
}
assert MEMBER_NEXT.keys() == set(MemberState)

State = TypeVar("State", GroupState, ConsumerGroupState, MemberState)


def mermaid(table: Mapping[State, frozenset[State]]) -> str:
    """The table as a mermaid state diagram, always in the same order."""
    order = {state: index for index, state in enumerate(table)}
    lines = ["stateDiagram-v2", f"    [*] --> {_label(next(iter(table)))}"]
    for state, following in table.items():
        if not following:
            lines.append(f"    {_label(state)} --> [*]")
        lines.extend(
            f"    {_label(state)} --> {_label(other)}" for other in sorted(following, key=order.__getitem__)
        )
    return "\n".join(lines) + "\n"


def _label(state: GroupState | ConsumerGroupState | MemberState) -> str:
    if isinstance(state, MemberState):
        return "".join(word.capitalize() for word in state.name.split("_"))
    return str(state.value)
