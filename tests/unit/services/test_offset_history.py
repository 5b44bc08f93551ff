"""R-OPS-8: the age of a position, from a curve that stays short."""

from __future__ import annotations

import random

from headrace.services.offset_history import MAX_PLACES, OffsetHistory


def test_nothing_is_behind_the_end() -> None:
    history = OffsetHistory(10, 1_000)
    assert history.passed_at(10, 5_000, 5_000, 10) == 5_000
    assert history.passed_at(12, 5_000, 5_000, 10) == 5_000


def test_a_position_is_as_old_as_the_moment_when_it_stopped_being_the_end() -> None:
    history = OffsetHistory(0, 0)
    history.note(100, 60_000, 61_000)
    # Ten minutes of silence later.
    assert history.passed_at(0, 660_000, 661_000, 100) == 60_000
    assert history.passed_at(50, 660_000, 661_000, 100) == 60_500
    assert history.passed_at(99, 660_000, 661_000, 100) == 60_990


def test_between_two_looks_the_end_is_where_it_is_now() -> None:
    history = OffsetHistory(100, 0)
    assert history.passed_at(100, 5_000, 5_600, 160) == 5_000
    assert history.passed_at(130, 5_000, 5_600, 160) == 5_300


def test_what_was_before_is_not_known_until_it_is_told() -> None:
    history = OffsetHistory(100, 10_000)
    assert history.passed_at(40, 10_000, 12_000, 100) is None
    history.note_older(40, 2_000)
    assert history.passed_at(40, 10_000, 12_000, 100) == 2_000
    assert history.passed_at(70, 10_000, 12_000, 100) == 6_000
    history.note_older(20, 99_000)
    assert history.passed_at(20, 10_000, 12_000, 100) == 2_000, "a record's clock may be wrong"


def test_a_log_that_was_cut_begins_anew() -> None:
    history = OffsetHistory(100, 0)
    history.note(50, 1_000, 2_000)
    assert history.first_offset == history.end_offset == 50
    assert history.passed_at(10, 2_000, 2_500, 50) is None


def test_a_clock_that_goes_back_does_no_harm() -> None:
    history = OffsetHistory(0, 10_000)
    history.note(10, 4_000, 5_000)
    history.note(20, 5_000, 12_000)
    passed = [history.passed_at(offset, 12_000, 13_000, 20) for offset in range(20)]
    assert None not in passed
    assert passed == sorted(passed, key=lambda time: time or 0)


def test_it_stays_short_and_ages_stay_right() -> None:
    """A week of bursts and pauses, with an end that is compared with the truth."""
    rng = random.Random(5)
    history = OffsetHistory(0, 0)
    truth: list[tuple[int, int]] = [(0, 0)]
    now, end = 0, 0
    while now < 7 * 24 * 3_600_000:
        pause = rng.choice([1_000, 1_000, 1_000, 1_000, 30_000, 600_000])
        before, now = now + pause - 1_000, now + pause
        end += rng.randrange(1, 500)
        history.note(end, before, now)
        truth.append((before, end))
        assert len(history) <= MAX_PLACES
    for passed, first_after in rng.sample(truth[1:-1], 300):
        # The record just below `first_after` came within a second after `passed`.
        found = history.passed_at(first_after - 1, now, now, end)
        assert found is not None
        assert abs(found - passed) <= 1_000 + 0.15 * (now - passed)


def test_an_idle_partition_takes_no_room() -> None:
    history = OffsetHistory(7, 0)
    assert len(history) == 1
    history.note(8, 3_600_000, 3_601_000)
    assert len(history) == 3
