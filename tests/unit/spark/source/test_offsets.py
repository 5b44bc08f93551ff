"""A stream's offset and its JSON (R-SPK-1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.model.topics import TopicPartition
from headrace.spark.source.offsets import (
    OffsetFormatError,
    StreamOffset,
    initial_offset,
    next_offset,
    offset_from_json,
    planned_start,
)

A0, A2, A10, B0 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("a", 10), TopicPartition("b", 0)
IDS = {"a": "A-id", "b": "B-id"}


def through_checkpoint(offset: StreamOffset) -> StreamOffset:
    return offset_from_json(json.loads(json.dumps(offset.to_json())))


def test_the_text_does_not_depend_on_the_order_of_anything() -> None:
    one = StreamOffset({B0: 1, A10: 2, A2: 3, A0: 4}, {"b": "B-id", "a": "A-id"}, {A2: 1, A0: 0})
    other = StreamOffset({A0: 4, A2: 3, A10: 2, B0: 1}, {"a": "A-id", "b": "B-id"}, {A0: 0, A2: 1})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert json.dumps(one.to_json()) == (
        '{"a": {"0": 4, "2": 3, "10": 2}, "b": {"0": 1}, "@ids": {"a": "A-id", "b": "B-id"}, '
        '"@start": {"a": {"0": 0, "2": 1}}}'
    )


@pytest.mark.parametrize(
    "offset",
    [
        StreamOffset({}),
        StreamOffset({A0: 5}),
        StreamOffset({A0: 5, B0: 2**60}, IDS),
        initial_offset({A0: 5, B0: 6}, IDS),
        initial_offset({}, {}),
    ],
)
def test_an_offset_survives_the_checkpoint(offset: StreamOffset) -> None:
    assert through_checkpoint(offset) == offset


def test_an_offset_of_sparks_kafka_format_is_read() -> None:
    assert offset_from_json({"a": {"0": 12}}) == StreamOffset({A0: 12})


def test_ids_of_topics_that_are_not_read_and_unknown_ids_are_left_out() -> None:
    assert StreamOffset({A0: 1, B0: 2}, {"a": "A-id", "b": "", "c": "C-id"}).to_json()["@ids"] == {"a": "A-id"}


@pytest.mark.parametrize(
    "given",
    [
        {"a": 5},
        {"a": {"zero": 5}},
        {"a": {"0": "5"}},
        {"a": {"0": True}},
        {"a": {"0": 5}, "@ids": {"a": 5}},
        {"a": {"0": 5}, "@ids": []},
        {"a": {"0": 5}, "@start": 7},
    ],
)
def test_anything_else_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OffsetFormatError):
        offset_from_json(given)


def test_when_nothing_is_new_the_answer_is_the_offset_given() -> None:
    start = StreamOffset({A0: 5, B0: 6}, IDS, {A0: 1, B0: 1})
    assert next_offset(start, {B0: 6, A0: 5}, IDS) is start


def test_learning_an_id_is_nothing_new() -> None:
    start = StreamOffset({A0: 5})
    assert next_offset(start, {A0: 5}, {"a": "A-id"}) is start
    assert next_offset(start, {A0: 6}, {"a": "A-id"}).topic_ids == {"a": "A-id"}


def test_a_topic_created_again_is_new_even_at_the_same_offset() -> None:
    start = StreamOffset({A0: 0}, {"a": "old"})
    assert next_offset(start, {A0: 0}, {"a": "new"}) == StreamOffset({A0: 0}, {"a": "new"})


def test_a_new_partition_is_new_even_when_empty() -> None:
    start = StreamOffset({A0: 5}, IDS)
    assert next_offset(start, {A0: 5, A2: 0}, IDS).positions == {A0: 5, A2: 0}


def test_a_partition_out_of_sight_is_nothing_new_and_dropped_when_others_move() -> None:
    start = StreamOffset({A0: 5, B0: 6}, IDS)
    assert next_offset(start, {A0: 5}, {"a": "A-id"}) is start
    moved = next_offset(start, {A0: 7}, {"a": "A-id"})
    assert moved.to_json() == {"a": {"0": 7}, "@ids": {"a": "A-id"}}


def test_a_start_that_had_to_be_moved_back_is_new() -> None:
    assert next_offset(StreamOffset({A0: 100}, IDS), {A0: 40}, IDS).positions == {A0: 40}


def test_the_first_batch_starts_where_it_first_did_however_often_the_query_restarts() -> None:
    """The trap: with startingOffsets=latest a restart gets another initial offset."""
    end = through_checkpoint(next_offset(initial_offset({A0: 10}, IDS), {A0: 30}, IDS))
    asked_again = through_checkpoint(initial_offset({A0: 50}, IDS))
    assert planned_start(asked_again, end).positions == {A0: 10}


def test_an_empty_first_batch_keeps_the_start_too() -> None:
    first = initial_offset({A0: 10}, IDS)
    end = next_offset(first, {A0: 10}, IDS)
    assert end is first
    asked_again = initial_offset({A0: 50}, IDS)
    assert planned_start(asked_again, end).positions == end.positions == {A0: 10}
    second = next_offset(end, {A0: 12}, IDS)
    assert planned_start(asked_again, second).positions == {A0: 10}


def test_after_the_first_batch_its_start_is_forgotten() -> None:
    first_end = next_offset(initial_offset({A0: 10}, IDS), {A0: 30}, IDS)
    assert first_end.first_start == {A0: 10}
    second_end = next_offset(first_end, {A0: 31}, IDS)
    assert second_end.first_start is None
    assert planned_start(first_end, second_end).positions == {A0: 30}


def test_a_batch_without_data_after_the_first_does_not_read_the_first_again() -> None:
    """Spark plans such batches from an offset to itself, to move watermarks."""
    first_end = next_offset(initial_offset({A0: 10}, IDS), {A0: 30}, IDS)
    assert planned_start(first_end, next_offset(first_end, {A0: 30}, IDS)).positions == {A0: 30}
