"""The tables of states, and the diagrams drawn from them."""

from __future__ import annotations

from headrace.groups.classic import ClassicGroup
from headrace.groups.states import (
    CONSUMER_NEXT,
    MEMBER_NEXT,
    NEXT,
    ConsumerGroupState,
    GroupState,
    MemberState,
    mermaid,
)


def test_the_tables_are_complete() -> None:
    assert NEXT.keys() == set(GroupState)
    assert CONSUMER_NEXT.keys() == set(ConsumerGroupState)
    assert MEMBER_NEXT.keys() == set(MemberState)


def test_every_living_state_can_end_and_every_state_can_be_reached() -> None:
    assert all(GroupState.DEAD in following for state, following in NEXT.items() if state is not GroupState.DEAD)
    reached = set().union(*NEXT.values())
    assert reached == set(GroupState)


def test_the_member_states_have_the_stored_numbers() -> None:
    assert [int(state) for state in MemberState] == [0, 1, 2, 127]


def test_a_forbidden_move_is_our_bug() -> None:
    for state in GroupState:
        for other in GroupState:
            group = ClassicGroup("g", state=state)
            if other in NEXT[state]:
                assert group.moved(other, 5).state is other
            else:
                try:
                    group.moved(other, 5)
                except AssertionError:
                    continue
                raise AssertionError(f"{state} to {other} was allowed")


def test_the_diagram() -> None:
    assert mermaid(NEXT) == (
        "stateDiagram-v2\n"
        "    [*] --> Empty\n"
        "    Empty --> PreparingRebalance\n"
        "    Empty --> Dead\n"
        "    PreparingRebalance --> Empty\n"
        "    PreparingRebalance --> CompletingRebalance\n"
        "    PreparingRebalance --> Dead\n"
        "    CompletingRebalance --> PreparingRebalance\n"
        "    CompletingRebalance --> Stable\n"
        "    CompletingRebalance --> Dead\n"
        "    Stable --> PreparingRebalance\n"
        "    Stable --> Dead\n"
        "    Dead --> [*]\n"
    )
    assert "UnrevokedPartitions --> Stable" in mermaid(MEMBER_NEXT)
    assert "Assigning --> Reconciling" in mermaid(CONSUMER_NEXT)
