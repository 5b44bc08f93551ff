"""One member's steps towards its target, as a table (KIP-848)."""

from __future__ import annotations

import pytest

from headrace.groups.consumer import ConsumerMember
from headrace.groups.events import Assignment
from headrace.groups.reconcile import reconcile
from headrace.groups.states import MemberState
from headrace.model.errors import ErrorCode, KafkaError
from headrace.testing.group_shell import topic

T = topic("t", 9).id


def of(*numbers: int) -> Assignment:
    return {T: frozenset(numbers)} if numbers else {}


STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


@pytest.mark.parametrize(
    ("state", "epoch", "assigned", "revoking", "target", "taken", "owned", "expected"),
    [
        # Nothing to do.
        (STABLE, 5, of(1), of(), of(1), (), None, (STABLE, 5, of(1), of())),
        # A new epoch with the same target.
        (STABLE, 4, of(1), of(), of(1), (), None, (STABLE, 5, of(1), of())),
        # Something new that is free.
        (STABLE, 4, of(1), of(), of(1, 2), (), None, (STABLE, 5, of(1, 2), of())),
        # Something new that another has.
        (STABLE, 4, of(1), of(), of(1, 2, 3), (2,), None, (UNRELEASED, 5, of(1, 3), of())),
        (STABLE, 4, of(1), of(), of(1, 2), (2,), None, (UNRELEASED, 5, of(1), of())),
        # Something to give up: the epoch stays until it has.
        (STABLE, 4, of(1, 2), of(), of(1, 3), (), None, (UNREVOKED, 4, of(1), of(2))),
        # It never had it: straight on.
        (STABLE, 4, of(1, 2), of(), of(1, 3), (), of(1), (STABLE, 5, of(1, 3), of())),
        # It has not said that it gave up, or says that it did not.
        (UNREVOKED, 4, of(1), of(2), of(1, 3), (), None, (UNREVOKED, 4, of(1), of(2))),
        (UNREVOKED, 4, of(1), of(2), of(1, 3), (), of(1, 2), (UNREVOKED, 4, of(1), of(2))),
        # It gave up: on to the target.
        (UNREVOKED, 4, of(1), of(2), of(1, 3), (), of(1), (STABLE, 5, of(1, 3), of())),
        # It gave up and the target has moved on meanwhile: one epoch at a time.
        (UNREVOKED, 3, of(1, 4), of(2), of(1, 3), (), of(1, 4), (UNREVOKED, 4, of(1), of(4))),
        # What it waited for is free now, or is not.
        (UNRELEASED, 5, of(1), of(), of(1, 2), (), None, (STABLE, 5, of(1, 2), of())),
        (UNRELEASED, 5, of(1), of(), of(1, 2), (2,), None, (UNRELEASED, 5, of(1), of())),
        (UNRELEASED, 4, of(1, 6), of(), of(1, 2), (), None, (UNREVOKED, 4, of(1), of(6))),
    ],
)
def test_a_step(
    state: MemberState,
    epoch: int,
    assigned: Assignment,
    revoking: Assignment,
    target: Assignment,
    taken: tuple[int, ...],
    owned: Assignment | None,
    expected: tuple[MemberState, int, Assignment, Assignment],
) -> None:
    member = ConsumerMember("m", epoch, epoch - 1, state, assigned=assigned, revoking=revoking)
    owners = {(T, number): "other" for number in taken}
    after = reconcile(member, 5, target, owners, owned)
    assert (after.state, after.epoch, after.assigned, after.revoking) == expected
    assert after.previous_epoch == (epoch if after.epoch != epoch else epoch - 1)


def test_an_unknown_state_must_start_from_nothing() -> None:
    member = ConsumerMember("m", 4, 3, MemberState.UNKNOWN, assigned=of(1))
    for owned in (None, of(1)):
        with pytest.raises(KafkaError) as raised:
            reconcile(member, 5, of(1), {}, owned)
        assert raised.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(member, 5, of(1), {}, {}).epoch == 5
