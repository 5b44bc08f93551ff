"""Records that are no longer there (R-SPK-1): found, told apart, and stepped over."""

from __future__ import annotations

import pickle

import pytest

from headrace.model.topics import TopicPartition
from headrace.spark.source.data_loss import (
    DataLoss,
    NewPartitionTrimmed,
    OffsetAgedOut,
    OffsetBeyondEnd,
    PartitionBounds,
    PartitionGone,
    TopicGone,
    TopicRecreated,
    TopicsNow,
    available_now_end,
    check_range,
    check_start,
    not_yet_visible,
    raise_or_warn,
)
from headrace.spark.source.offsets import StreamOffset, initial_offset, next_offset
from headrace.spark.source.ranges import ranges_between

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": "A-id", "b": "B-id"}


def view(bounds: dict[TopicPartition, tuple[int, int]], ids: dict[str, str] | None = None) -> TopicsNow:
    topics = {partition.topic for partition in bounds}
    known = IDS if ids is None else ids
    return TopicsNow(
        {topic: known.get(topic, "") for topic in topics},
        {partition: PartitionBounds(*pair) for partition, pair in bounds.items()},
    )


Case = tuple[StreamOffset, TopicsNow, dict[TopicPartition, int], list[type[DataLoss]]]

CASES: dict[str, Case] = {
    "nothing happened": (StreamOffset({A0: 5, B0: 0}, IDS), view({A0: (0, 9), B0: (0, 0)}), {A0: 5, B0: 0}, []),
    "at the edges": (StreamOffset({A0: 3, A1: 9}, IDS), view({A0: (3, 9), A1: (3, 9)}), {A0: 3, A1: 9}, []),
    "a new partition": (StreamOffset({A0: 5}, IDS), view({A0: (0, 9), A1: (0, 4)}), {A0: 5, A1: 0}, []),
    "a new topic": (StreamOffset({A0: 5}, IDS), view({A0: (0, 9), B0: (0, 4)}), {A0: 5, B0: 0}, []),
    "a new partition without its first records": (
        StreamOffset({A0: 5}, IDS),
        view({A0: (0, 9), A1: (2, 4)}),
        {A0: 5, A1: 2},
        [NewPartitionTrimmed],
    ),
    "aged out": (StreamOffset({A0: 5}, IDS), view({A0: (7, 9)}), {A0: 7}, [OffsetAgedOut]),
    "cut off": (StreamOffset({A0: 12}, IDS), view({A0: (0, 9)}), {A0: 9}, [OffsetBeyondEnd]),
    "deleted": (StreamOffset({A0: 5, B0: 6}, IDS), view({A0: (0, 9)}), {A0: 5}, [TopicGone]),
    "everything deleted": (
        StreamOffset({A0: 5, B0: 6}, IDS),
        view({}),
        {},
        [TopicGone, TopicGone],
    ),
    "fewer partitions": (StreamOffset({A0: 5, A1: 6}, IDS), view({A0: (0, 9)}), {A0: 5}, [PartitionGone]),
    "created again, larger": (
        StreamOffset({A0: 5, A1: 6}, IDS),
        view({A0: (0, 90), A1: (0, 90)}, {"a": "new"}),
        {A0: 0, A1: 0},
        [TopicRecreated],
    ),
    "created again, smaller": (
        StreamOffset({A0: 5}, IDS),
        view({A0: (0, 2)}, {"a": "new"}),
        {A0: 0},
        [TopicRecreated],
    ),
    "created again, and trimmed since": (
        StreamOffset({A0: 5}, IDS),
        view({A0: (3, 9), A1: (4, 9)}, {"a": "new"}),
        {A0: 3, A1: 4},
        [TopicRecreated],
    ),
    "created again with fewer partitions": (
        StreamOffset({A0: 5, A1: 5}, IDS),
        view({A0: (0, 9)}, {"a": "new"}),
        {A0: 0},
        [PartitionGone, TopicRecreated],
    ),
    "created again without ids looks like a cut": (
        StreamOffset({A0: 5}),
        view({A0: (0, 2)}, {}),
        {A0: 2},
        [OffsetBeyondEnd],
    ),
    "an id that was not known before": (StreamOffset({A0: 5}), view({A0: (0, 9)}), {A0: 5}, []),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_where_a_stream_goes_on_and_what_it_lost(case: Case) -> None:
    previous, now, start, losses = case
    checked = check_start(previous, now)
    assert checked.start.positions == start
    assert [type(loss) for loss in checked.losses] == losses


def test_the_repaired_offset_knows_the_new_id() -> None:
    checked = check_start(StreamOffset({A0: 5}, IDS), view({A0: (0, 9)}, {"a": "new"}))
    assert checked.start.topic_ids["a"] == "new"


@pytest.mark.parametrize(
    ("previous", "now", "says"),
    [
        (StreamOffset({A0: 5}, IDS), view({A0: (7, 9)}), ["a-0", "offset 5", "begins at 7", "2 offsets"]),
        (StreamOffset({A0: 12}, IDS), view({A0: (0, 9)}), ["a-0", "ends at offset 9", "offset 12"]),
        (StreamOffset({B0: 6}, IDS), view({}), ["Topic b is gone", "b-0 at offset 6"]),
        (StreamOffset({A0: 5, A1: 6}, IDS), view({A0: (0, 9)}), ["a-1 at offset 6"]),
        (StreamOffset({A0: 5}, IDS), view({A0: (0, 9)}, {"a": "new"}), ["A-id", "new", "a-0 at offset 5"]),
        (StreamOffset({}, IDS), view({A0: (4, 9)}), ["a-0", "offset 4"]),
    ],
)
def test_a_loss_says_what_happened_where_and_what_to_do(
    previous: StreamOffset, now: TopicsNow, says: list[str]
) -> None:
    text = str(check_start(previous, now).losses[0])
    for part in (*says, "failOnDataLoss", "new checkpoint"):
        assert part in text


def test_failing_raises_the_first_and_names_all() -> None:
    losses = check_start(StreamOffset({A0: 5, B0: 6}, IDS), view({A0: (7, 9)})).losses
    with pytest.raises(TopicGone) as caught:
        raise_or_warn(losses, fail_on_data_loss=True)
    assert caught.value.partitions == (B0, A0)
    assert "Topic b is gone" in str(caught.value)
    assert "begins at 7" in str(caught.value)


def test_not_failing_gives_one_warning_each_and_the_same_again() -> None:
    previous, now = StreamOffset({A0: 5, B0: 6}, IDS), view({A0: (7, 9)})
    warnings = raise_or_warn(check_start(previous, now).losses, fail_on_data_loss=False)
    assert len(warnings) == 2
    assert warnings == raise_or_warn(check_start(previous, now).losses, fail_on_data_loss=False)
    assert raise_or_warn((), fail_on_data_loss=True) == []


def test_a_loss_survives_the_way_between_processes() -> None:
    loss = check_start(StreamOffset({A0: 5}, IDS), view({A0: (7, 9)})).losses[0]
    copy = pickle.loads(pickle.dumps(loss))
    assert (type(copy), str(copy), copy.partitions) == (OffsetAgedOut, str(loss), (A0,))


def test_a_log_that_seems_too_short_is_asked_for_again() -> None:
    previous = StreamOffset({A0: 12, A1: 9, B0: 50}, IDS)
    now = view({A0: (0, 9), A1: (0, 9), B0: (0, 1)}, {"a": "A-id", "b": "new"})
    assert not_yet_visible(previous, now) == [A0]


def planned(start: StreamOffset, end: StreamOffset, now: TopicsNow) -> tuple[list[tuple[int, int]], list[type]]:
    checked = check_range(start, end, now)
    ranges = ranges_between(checked.starts, checked.ends, end.topic_ids)
    return [(one.start, one.end) for one in ranges], [type(loss) for loss in checked.losses]


Plan = tuple[StreamOffset, StreamOffset, TopicsNow, list[tuple[int, int]], list[type[DataLoss]]]

PLANS: dict[str, Plan] = {
    "all there": (StreamOffset({A0: 5}, IDS), StreamOffset({A0: 8}, IDS), view({A0: (0, 9)}), [(5, 8)], []),
    "a new partition starts at its beginning": (
        StreamOffset({A0: 5}, IDS),
        StreamOffset({A0: 5, A1: 4}, IDS),
        view({A0: (0, 9), A1: (0, 9)}),
        [(0, 4)],
        [],
    ),
    "a new partition that lost its first records": (
        StreamOffset({A0: 5}, IDS),
        StreamOffset({A0: 5, A1: 4}, IDS),
        view({A0: (0, 9), A1: (2, 9)}),
        [(2, 4)],
        [NewPartitionTrimmed],
    ),
    "aged out in part": (
        StreamOffset({A0: 5}, IDS),
        StreamOffset({A0: 8}, IDS),
        view({A0: (6, 9)}),
        [(6, 8)],
        [OffsetAgedOut],
    ),
    "aged out altogether": (
        StreamOffset({A0: 5}, IDS),
        StreamOffset({A0: 8}, IDS),
        view({A0: (30, 90)}),
        [],
        [OffsetAgedOut],
    ),
    "nothing to read is nothing lost": (
        StreamOffset({A0: 5}, IDS),
        StreamOffset({A0: 5}, IDS),
        view({A0: (30, 90)}),
        [],
        [],
    ),
    "cut off since": (
        StreamOffset({A0: 5}, IDS),
        StreamOffset({A0: 8}, IDS),
        view({A0: (0, 6)}),
        [(5, 6)],
        [OffsetBeyondEnd],
    ),
    "deleted since": (StreamOffset({B0: 5}, IDS), StreamOffset({B0: 8}, IDS), view({}), [], [TopicGone]),
    "given up before": (
        StreamOffset({A0: 5, B0: 5}, IDS),
        StreamOffset({A0: 8}, IDS),
        view({A0: (0, 9)}),
        [(5, 8)],
        [],
    ),
    "created again before the end was chosen": (
        StreamOffset({A0: 50}, {"a": "old"}),
        StreamOffset({A0: 60}, {"a": "new"}),
        view({A0: (0, 90)}, {"a": "new"}),
        [(0, 60)],
        [],
    ),
    "created again since the end was chosen": (
        StreamOffset({A0: 5}, {"a": "old"}),
        StreamOffset({A0: 8}, {"a": "old"}),
        view({A0: (0, 90)}, {"a": "new"}),
        [],
        [TopicRecreated],
    ),
    "a start moved back to the end of a log that was cut off": (
        StreamOffset({A0: 50}, IDS),
        StreamOffset({A0: 9}, IDS),
        view({A0: (0, 12)}),
        [],
        [],
    ),
    "the first batch, planned again after a restart": (
        initial_offset({A0: 50}, IDS),
        next_offset(initial_offset({A0: 10}, IDS), {A0: 30}, IDS),
        view({A0: (0, 60)}),
        [(10, 30)],
        [],
    ),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_what_a_planned_batch_reads(plan: Plan) -> None:
    start, end, now, ranges, losses = plan
    assert planned(start, end, now) == (ranges, losses)


@pytest.mark.parametrize(
    ("start", "target", "bounds", "expected"),
    [
        ({A0: 5}, {A0: 9}, {A0: (0, 9)}, {A0: 9}),
        # What came after the run began is left for the next one, also new partitions.
        ({A0: 5, A1: 0}, {A0: 9}, {A0: (0, 40), A1: (0, 4)}, {A0: 9}),
        # Vanished.
        ({A0: 5}, {A0: 9, B0: 7}, {A0: (0, 40)}, {A0: 9}),
        ({}, {A0: 9}, {}, {}),
        # Cut off below the target, or below the start.
        ({A0: 5}, {A0: 9}, {A0: (0, 7)}, {A0: 7}),
        ({A0: 5}, {A0: 9}, {A0: (0, 2)}, {A0: 5}),
        # Aged out beyond the target.
        ({A0: 30}, {A0: 9}, {A0: (30, 40)}, {A0: 30}),
    ],
)
def test_a_run_to_the_end_goes_no_further_than_its_target(
    start: dict[TopicPartition, int],
    target: dict[TopicPartition, int],
    bounds: dict[TopicPartition, tuple[int, int]],
    expected: dict[TopicPartition, int],
) -> None:
    assert available_now_end(start, target, view(bounds)) == expected


def test_a_run_to_the_end_ends_when_a_topic_vanishes_on_the_way() -> None:
    """Spark stops a run when the answer is the start unchanged; the vanished topic must not hold it up."""
    target = {A0: 9, B0: 7}
    start = StreamOffset({A0: 9, B0: 3}, IDS)
    now = view({A0: (0, 20)})
    repaired = check_start(start, now).start
    ends = available_now_end(repaired.positions, target, now)
    assert next_offset(start, ends, now.topic_ids) is start
