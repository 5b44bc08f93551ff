"""The benchmark's group members: when a group has settled, and what its answers count as."""

from __future__ import annotations

from bench.group_members import Exchanges, Part, assigned_partitions, assignment, is_settled


def one_each(members: int, generation: int = 3) -> dict[int, Part]:
    return {number: Part(generation, (members - 1 - number,)) for number in range(members)}


def test_a_group_where_each_member_has_its_own_partition_has_settled() -> None:
    assert is_settled(one_each(4), 4)


def test_a_missing_member_is_waited_for() -> None:
    assert not is_settled(one_each(3), 4)


def test_members_of_two_generations_have_not_settled() -> None:
    assert not is_settled({**one_each(4), 1: Part(2, (2,))}, 4)


def test_a_first_member_that_still_holds_everything_has_not_settled() -> None:
    parts = {0: Part(1, (0, 1, 2)), 1: Part(1, ()), 2: Part(1, ())}
    assert not is_settled(parts, 3)


def test_a_partition_held_twice_has_not_settled() -> None:
    assert not is_settled({0: Part(1, (0,)), 1: Part(1, (0,))}, 2)


def test_an_assignment_reads_as_it_was_written() -> None:
    assert assigned_partitions(assignment("orders", range(1, 10, 3)), "orders") == (1, 4, 7)


def test_every_answer_that_differs_from_a_good_one_is_looked_into() -> None:
    found = Exchanges()
    for answer in (b"\0", b"\0", b"\7", b"\0", b"\7"):
        found.take(0.1, answer, lambda data: data[0])
    assert found.error_codes == [7, 7]
    assert len(found.seconds) == 5
