"""The checker of drills finds each kind of mistake."""

from __future__ import annotations

from headrace.testing.history import UNKNOWN_OFFSET, Ack, History, Verdict, value_of


def history(read: dict[int, list[bytes]], acks: list[Ack]) -> History:
    made = History(acks)
    for partition, values in read.items():
        for offset, value in enumerate(values):
            made.note_read(partition, offset, value)
    return made


A0, A1, A2, B0 = value_of(0, 0), value_of(0, 1), value_of(0, 2), value_of(1, 0)


def verdict(read: dict[int, list[bytes]], acks: list[Ack]) -> tuple[int, int, int, int]:
    found = history(read, acks).judge()
    return found.acked_missing, found.duplicates, found.order_violations, found.conflicts


def test_all_is_well() -> None:
    acks = [Ack(0, 0, A0), Ack(0, 2, A1)]
    assert verdict({0: [A0, B0, A1]}, acks) == (0, 0, 0, 0)
    assert history({0: [A0, B0, A1]}, acks).judge() == Verdict(2, 3, 0, 0, 0, 0)
    assert history({0: [A0]}, [Ack(0, 0, A0)]).judge().is_clean


def test_an_acknowledged_value_that_is_gone() -> None:
    assert verdict({0: [A0]}, [Ack(0, 0, A0), Ack(0, 1, A1)]) == (1, 0, 0, 0)


def test_a_value_twice() -> None:
    assert verdict({0: [A0, A1], 1: [A1]}, []) == (0, 1, 0, 0)


def test_a_value_after_a_later_one() -> None:
    assert verdict({0: [A1, A0, A2]}, []) == (0, 0, 1, 0)


def test_another_value_where_one_was_acknowledged() -> None:
    assert verdict({0: [B0, A0]}, [Ack(0, 0, A0)]) == (0, 0, 0, 1)


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    assert verdict({0: [A0, A1]}, [Ack(0, 0, A0)]) == (0, 0, 0, 0)


def test_what_an_unclean_election_lost_is_counted_apart() -> None:
    made = history({0: [A0, B0]}, [Ack(0, 0, A0), Ack(0, 1, A1)])
    assert made.judge().acked_missing == 1
    found = made.judge({0: 1})
    assert found.is_clean
    assert found.lost_by_intention == 1
    assert not made.judge({0: 2}).is_clean


def test_what_was_read_meanwhile_stays() -> None:
    made = history({0: [A0, A1]}, [])
    made.note_seen(0, 0, A0)
    made.note_seen(0, 0, A0)
    assert made.judge().is_clean
    made.note_seen(0, 1, B0)
    assert made.judge().conflicts == 1
    made.note_seen(0, 1, A1)
    assert made.judge().conflicts == 2, "one value, then another"
    made.note_seen(0, 2, A2)
    assert made.judge().conflicts == 3
    assert made.judge({0: 1}).conflicts == 1, "what an unclean election lost may have been read"


def test_an_ack_without_an_offset_must_be_somewhere() -> None:
    there = [Ack(0, UNKNOWN_OFFSET, A0)]
    assert verdict({0: [A0]}, there) == (0, 0, 0, 0)
    assert verdict({0: [A1]}, there) == (1, 0, 0, 0)
    assert history({0: [A0]}, there).kept_after_all({}) == 0


def test_problems_are_told_in_words() -> None:
    history = History(
        acks=[Ack(0, 0, b"a:0"), Ack(0, 1, b"a:1"), Ack(0, UNKNOWN_OFFSET, b"a:3"), Ack(0, 9, b"a:2")],
        read={0: {0: b"a:0", 1: b"a:3", 2: b"a:2", 3: b"b:0", 4: b"b:0"}},
    )
    assert history.problems() == [
        "b'b:0' is there at [(0, 3), (0, 4)]",
        "b'a:1' was acknowledged at 0, 1 and is missing",
        "b'a:2' was acknowledged at 0, 9 and is at [(0, 2)]",
        "b'a:2' at 0, 2 comes too late",
        "b'b:0' at 0, 4 comes too late",
    ]
    assert History(acks=[Ack(0, 0, b"a:0")], read={0: {0: b"a:0"}}).problems() == []
