"""The server-side assignors, by example and by property (R-CON-3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.groups.assignors import ASSIGNORS, Members, MemberSpec, PartitionCounts, assign_range, assign_uniform
from headrace.groups.events import Assignment
from headrace.model.topics import TopicId
from headrace.testing.group_shell import topic

IDS = [topic(name, 0).id for name in "abcd"]


def slots(assignment: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic_id, number) for topic_id, numbers in assignment.items() for number in numbers}


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Members, PartitionCounts]:
    """Members with some topics each, who own what they could own: at most one owner for a partition."""
    counts = {topic_id: draw(st.integers(0, 9)) for topic_id in IDS}
    member_ids = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    subscription = st.frozensets(st.sampled_from(IDS), min_size=1)
    common = draw(subscription)
    topics = {member_id: common if alike else draw(subscription) for member_id in member_ids}
    owned: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in member_ids}
    for topic_id, count in counts.items():
        for number in range(count + 1):
            owner = draw(st.sampled_from([None, *member_ids]))
            if owner is not None:
                owned[owner].setdefault(topic_id, set()).add(number)
    members = {
        member_id: MemberSpec(
            topics[member_id],
            {topic_id: frozenset(numbers) for topic_id, numbers in owned[member_id].items()},
            draw(st.sampled_from([None, f"i{member_id}"])),
        )
        for member_id in member_ids
    }
    return members, counts


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(groups())
@settings(max_examples=80, deadline=None)
def test_every_subscribed_partition_has_exactly_one_subscriber(
    name: str, group: tuple[Members, PartitionCounts]
) -> None:
    members, counts = group
    result = ASSIGNORS[name](members, counts)
    assert result.keys() == members.keys()
    given_out = [slot for assignment in result.values() for slot in slots(assignment)]
    subscribed = {topic_id for spec in members.values() for topic_id in spec.topics}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {(topic_id, number) for topic_id in subscribed for number in range(counts[topic_id])}
    for member_id, assignment in result.items():
        assert assignment.keys() <= members[member_id].topics
        assert all(assignment.values())


@given(groups(alike=True))
@settings(max_examples=80, deadline=None)
def test_uniform_balances_and_moves_as_little_as_possible(group: tuple[Members, PartitionCounts]) -> None:
    members, counts = group
    result = assign_uniform(members, counts)
    sizes = sorted(map(size, result.values()))
    assert sizes[-1] - sizes[0] <= 1
    topics = next(iter(members.values())).topics
    total = sum(counts[topic_id] for topic_id in topics)
    share, extra = divmod(total, len(members))
    could_keep = sorted(
        (
            len([slot for slot in slots(spec.assigned) if slot[0] in topics and slot[1] < counts[slot[0]]])
            for spec in members.values()
        ),
        reverse=True,
    )
    best = sum(min(had, share + (index < extra)) for index, had in enumerate(could_keep))
    kept = sum(len(slots(result[id]) & slots(spec.assigned)) for id, spec in members.items())
    assert kept == best


@given(groups())
@settings(max_examples=80, deadline=None)
def test_uniform_leaves_no_single_move_that_would_help(group: tuple[Members, PartitionCounts]) -> None:
    members, counts = group
    result = assign_uniform(members, counts)
    for giver, assignment in result.items():
        for topic_id in assignment:
            for taker, spec in members.items():
                if topic_id in spec.topics:
                    assert size(assignment) - size(result[taker]) <= 1, (giver, taker)


@given(groups())
@settings(max_examples=60, deadline=None)
def test_uniform_changes_nothing_the_second_time(group: tuple[Members, PartitionCounts]) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    again = {id: MemberSpec(spec.topics, first[id], spec.instance_id) for id, spec in members.items()}
    assert assign_uniform(again, counts) == first


@given(groups())
@settings(max_examples=60, deadline=None)
def test_range_gives_ranges_whose_sizes_differ_by_one(group: tuple[Members, PartitionCounts]) -> None:
    members, counts = group
    result = assign_range(members, counts)
    for topic_id in {topic_id for spec in members.values() for topic_id in spec.topics}:
        parts = [result[id].get(topic_id, frozenset()) for id, spec in members.items() if topic_id in spec.topics]
        sizes = sorted(map(len, parts))
        assert sizes[-1] - sizes[0] <= 1
        assert all(max(part) - min(part) + 1 == len(part) for part in parts if part)


def test_range_keeps_the_same_numbers_of_topics_together_static_members_first() -> None:
    both = frozenset(IDS[:2])
    members = {"z": MemberSpec(both, {}, "one"), "a": MemberSpec(both, {}), "b": MemberSpec(both, {})}
    result = assign_range(members, {IDS[0]: 3, IDS[1]: 3})
    assert {id: assignment[IDS[0]] for id, assignment in result.items()} == {
        "z": frozenset({0}),
        "a": frozenset({1}),
        "b": frozenset({2}),
    }
    assert all(assignment[IDS[0]] == assignment[IDS[1]] for assignment in result.values())


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_nobody_gets_nothing(name: str) -> None:
    assert ASSIGNORS[name]({}, {}) == {}
    assert ASSIGNORS[name]({"m": MemberSpec(frozenset(), {})}, {}) == {"m": {}}
