"""Sources and sinks against a broker in this process: killed at every step, and what they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import pytest

from headrace.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.fetching import Fetched, RecordReader
from headrace.client.groups import fetch_offsets
from headrace.client.producer import Producer, ProducerSettings
from headrace.client.transactional_producer import TransactionalProducer
from headrace.connect import (
    ColumnSchema,
    ConfigOption,
    ConnectorConfig,
    ConnectorError,
    Position,
    Sink,
    SinkRecord,
    SinkTask,
    Source,
    SourceBatch,
    SourceRecord,
    SourceTask,
    TopicSchema,
    TryAgain,
)
from headrace.connect.definition import ConnectorDefinition
from headrace.connect.options import parse_config
from headrace.connect.runner import Runner
from headrace.connect.sink_run import SinkInput
from headrace.connect.store import STATE_PARTITION, read_state, state_record
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord
from headrace.testing.connectors import (
    committed_records,
    committed_values,
    killed_everywhere,
    run_killed,
    run_to_the_end,
    steps_of,
)


class Lists(Source):
    """Reads lists that grow; a number 0 in them ends what belongs together."""

    summary = "Reads lists."
    options = (ConfigOption("topic", "text", "Where to.", "numbers"),)
    idle_pause_s = 0.0
    data: ClassVar[dict[str, list[int]]] = {}
    confirmed: ClassVar[dict[str, int]] = {}
    before_poll: ClassVar[list[Callable[[], None]]] = []

    def tasks(self) -> Sequence[str]:
        return sorted(self.data)

    def open(self, task: str, position: Position | None) -> SourceTask:
        return ListTask(self, task, 0 if position is None else position["next"])


class ListTask(SourceTask):
    def __init__(self, owner: Lists, task: str, start: int) -> None:
        self._owner = owner
        self._task = task
        self._next = start

    def poll(self) -> SourceBatch | None:
        if self._owner.before_poll:
            self._owner.before_poll.pop()()
        items = self._owner.data[self._task]
        if self._next == len(items):
            return None
        chunk = items[self._next : self._next + 2]
        self._next += len(chunk)
        topic = self._owner.config.text("topic")
        records = [SourceRecord(topic, f"{self._task}{item}".encode(), self._task.encode()) for item in chunk]
        whole = 0 in chunk or self._next == len(items)
        schema = TopicSchema(topic, (ColumnSchema("n", "integer" if 9 not in chunk else "text"),))
        return SourceBatch(records, {"next": self._next} if whole else None, [schema])

    def committed(self, position: Position) -> None:
        self._owner.confirmed[self._task] = position["next"]


class Table(Sink):
    """Keeps records in a dictionary together with their positions, all or nothing."""

    summary = "Keeps records."
    rows: ClassVar[list[bytes]] = []
    stored: ClassVar[dict[TopicPartition, int] | None] = {}

    def open(
        self, task: str, partitions: Sequence[TopicPartition], schemas: Mapping[str, TopicSchema]
    ) -> SinkTask:
        return TableTask(self)


class TableTask(SinkTask):
    def __init__(self, owner: Table) -> None:
        self._owner = owner

    def positions(self) -> Mapping[TopicPartition, int] | None:
        return None if self._owner.stored is None else dict(self._owner.stored)

    def write(self, records: Sequence[SinkRecord], positions: Mapping[TopicPartition, int]) -> None:
        self._owner.rows.extend(record.value or b"" for record in records)
        if self._owner.stored is not None:
            self._owner.stored.update(positions)


@pytest.fixture(autouse=True)
def _empty() -> None:
    Lists.data, Lists.confirmed, Lists.before_poll = {"a": []}, {}, []
    Table.rows, Table.stored = [], {}


def lists(name: str = "lists", **config: object) -> ConnectorDefinition:
    return ConnectorDefinition(name, "Lists", Lists(name, parse_config(Lists.options, config)))


def table(*topics: str, tasks: int = 1, from_latest: bool = False) -> ConnectorDefinition:
    given = SinkInput(topics, from_latest=from_latest, tasks=tasks)
    return ConnectorDefinition("table", "Table", Table("table", ConnectorConfig({})), sink_input=given)


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def test_a_source_killed_at_every_step_loses_and_repeats_nothing(cluster: Cluster) -> None:
    Lists.data = {"a": [], "b": []}

    async def feed(number: int) -> None:
        Lists.data["a"] += [5, number + 10, number + 100, 0, 7]
        Lists.data["b"] += [number, 0]

    kills = await killed_everywhere(cluster, lists(), feed)
    assert kills >= len(steps_of(lists())) + 4  # some steps come once in a run
    found = await committed_records(cluster, "numbers")
    for task, items in Lists.data.items():
        mine = [record.value for record in found if record.key == task.encode()]
        assert mine == [f"{task}{item}".encode() for item in items]
    assert Lists.confirmed == {task: len(items) for task, items in Lists.data.items()}


async def test_the_kit_finds_a_source_whose_position_is_wrong(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ListTask.poll

    def poll(task: ListTask) -> SourceBatch | None:
        batch = right(task)
        if batch is None or batch.position is None:
            return batch
        return batch._replace(position={"next": batch.position["next"] - 1})

    monkeypatch.setattr(ListTask, "poll", poll)

    async def feed(number: int) -> None:
        Lists.data["a"] += [number + 1, 0]

    await killed_everywhere(cluster, lists(), feed, times=(1,))
    assert len(await committed_values(cluster, "numbers")) > len(Lists.data["a"])


async def test_what_belongs_together_is_seen_together(cluster: Cluster) -> None:
    Lists.data = {"a": [1, 2, 3, 4, 5, 0]}
    assert await run_killed(cluster, lists(), "sent", 2)
    await run_to_the_end(cluster, lists())
    assert await committed_values(cluster, "numbers") == [b"a1", b"a2", b"a3", b"a4", b"a5", b"a0"]


async def test_the_older_of_two_runs_ends(cluster: Cluster) -> None:
    def take_over() -> None:
        """In the thread of the task, between its batches."""

        async def start() -> None:
            async with Cluster(cluster.env, cluster.bootstrap) as other:
                await TransactionalProducer(other, "headrace.connector.lists").start()

        asyncio.run(start())

    Lists.data = {"a": [1, 2, 3, 0]}
    Lists.before_poll = [take_over, lambda: None]
    with pytest.raises(ConnectorError, match="another run of the connector lists has taken over"):
        await run_to_the_end(cluster, lists())
    await run_to_the_end(cluster, lists())
    assert await committed_values(cluster, "numbers") == [b"a1", b"a2", b"a3", b"a0"]


async def test_what_passes_is_tried_again_and_counted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connect.runner.FIRST_PAUSE_S", 0.01)
    Lists.data = {"a": [1, 2, 0]}
    Lists.before_poll = [raising(OSError("the disk is away")), raising(TryAgain("the connection was lost"))]
    runner = Runner(cluster, lists(), once=True)
    await runner.run()
    assert runner.counts.restarts == 2
    assert runner.counts.records == 3
    assert await committed_values(cluster, "numbers") == [b"a1", b"a2", b"a0"]
    status = (await read_state(cluster))["status/lists"]
    assert (status["state"], status["records"], status["restarts"]) == ("finished", 3, 2)


async def test_a_mistake_of_the_user_ends_the_run(cluster: Cluster) -> None:
    Lists.before_poll = [raising(ConnectorError("the password is wrong"))]
    with pytest.raises(ConnectorError, match="the password is wrong"):
        await Runner(cluster, lists(), once=True).run()
    status = (await read_state(cluster))["status/lists"]
    assert (status["state"], status["problem"]) == ("failed", "the password is wrong")


async def test_a_run_is_stopped_between_transactions(cluster: Cluster) -> None:
    Lists.data = {"a": [1, 2, 3, 4, 5, 6, 7, 8]}

    def stop(step: str) -> None:
        if step == "sent":
            runner.stop()

    runner = Runner(cluster, lists(), at=stop)
    await runner.run()
    assert await committed_values(cluster, "numbers") == []  # without a position it could not have been continued
    await run_to_the_end(cluster, lists())
    assert len(await committed_values(cluster, "numbers")) == 8


async def test_schemas_are_stored_and_their_changes_counted(cluster: Cluster) -> None:
    Lists.data = {"a": [1, 0]}
    await run_to_the_end(cluster, lists())
    stored = {"topic": "numbers", "columns": [{"name": "n", "type": "integer", "key": False}]}
    assert (await read_state(cluster))["schema/numbers"] == stored
    Lists.data["a"] += [9, 0]
    runner = Runner(cluster, lists(), once=True)
    await runner.run()
    assert runner.counts.schema_changes == 1
    assert (await read_state(cluster))["schema/numbers"]["columns"][0]["type"] == "text"


async def test_an_open_transaction_of_another_connector_hides_no_position(cluster: Cluster) -> None:
    Lists.data = {"a": [1, 0]}
    await run_to_the_end(cluster, lists())
    other = TransactionalProducer(cluster, "headrace.connector.other")
    await other.start()
    await other.send({STATE_PARTITION: [state_record("position/other/0", {"next": 1}, 0)]})
    Lists.data["a"] += [2, 0]
    await run_to_the_end(cluster, lists())
    await run_to_the_end(cluster, lists())
    state = await read_state(cluster)
    assert state["position/lists/a"] == {"next": 4}
    assert "position/other/0" not in state
    assert await committed_values(cluster, "numbers") == [b"a1", b"a0", b"a2", b"a0"]


async def fill(cluster: Cluster, number: int) -> None:
    producer = Producer(cluster, "in")
    await producer.start()
    await producer.send([NewRecord(f"{number}.{index}".encode(), str(index).encode()) for index in range(6)])


async def test_partitions_that_are_added_later_are_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connect.sink_run.LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("headrace.connect.runner.FIRST_PAUSE_S", 0.01)
    await create_topics(cluster, [NewTopic("in", 1)])
    runner = Runner(cluster, table("in"))
    running = asyncio.ensure_future(runner.run())
    await fill(cluster, 0)
    while len(Table.rows) < 6:
        await asyncio.sleep(0.01)
    await create_partitions(cluster, "in", 3)
    while not runner.counts.restarts:
        await asyncio.sleep(0.01)
    await fill(cluster, 1)
    while len(Table.rows) < 12:
        await asyncio.sleep(0.01)
    runner.stop()
    await running
    assert len({place.partition for place in Table.stored or {}}) > 1


@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_sink_killed_at_every_step_loses_and_repeats_nothing(cluster: Cluster, tasks: int) -> None:
    await create_topics(cluster, [NewTopic("in", 2)])
    kills = await killed_everywhere(cluster, table("in", tasks=tasks), lambda number: fill(cluster, number))
    assert kills >= len(steps_of(table("in")))
    assert sorted(Table.rows) == sorted(value or b"" for value in await committed_values(cluster, "in"))
    assert await fetch_offsets(cluster, "connector-table") == Table.stored


async def test_a_topic_that_was_made_again_is_not_taken_for_read(cluster: Cluster) -> None:
    await create_topics(cluster, [NewTopic("in", 1)])
    await fill(cluster, 0)
    await run_to_the_end(cluster, table("in"))
    await delete_topics(cluster, ["in"])
    await create_topics(cluster, [NewTopic("in", 1)])
    with pytest.raises(ConnectorError, match=r"in-0 ends at offset 0, .* deleted and created again"):
        await run_to_the_end(cluster, table("in"))


async def test_a_sink_without_positions_of_its_own_uses_those_of_a_group(cluster: Cluster) -> None:
    await create_topics(cluster, [NewTopic("in", 2)])
    Table.stored = None
    await fill(cluster, 0)
    await run_to_the_end(cluster, table("in"))
    await fill(cluster, 1)
    await run_to_the_end(cluster, table("in"))
    assert sorted(Table.rows) == sorted(value or b"" for value in await committed_values(cluster, "in"))


async def send_to(cluster: Cluster, place: TopicPartition, value: bytes) -> None:
    producer = Producer(cluster, place.topic, ProducerSettings(partition=place.partition))
    await producer.start()
    await producer.send([NewRecord(value)])


@pytest.mark.parametrize("own_positions", [True, False])
async def test_a_sink_that_starts_at_the_latest_record_loses_none_after_that(
    cluster: Cluster, own_positions: bool
) -> None:
    """What comes while it is down before it has written anything, and what is in a partition that is added."""
    Table.stored = {} if own_positions else None
    await create_topics(cluster, [NewTopic("numbers", 1)])
    await send_to(cluster, TopicPartition("numbers", 0), b"before")
    definition = table("numbers", from_latest=True)
    await run_to_the_end(cluster, definition)
    await send_to(cluster, TopicPartition("numbers", 0), b"down")
    await create_partitions(cluster, "numbers", 2)
    await send_to(cluster, TopicPartition("numbers", 1), b"added")
    await run_to_the_end(cluster, definition)
    assert sorted(Table.rows) == [b"added", b"down"]


async def test_a_source_waits_for_its_positions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is throttled answers a read with nothing, although there is more."""
    Lists.data = {"a": [1, 0]}
    await run_to_the_end(cluster, lists())
    really = RecordReader.poll
    answers = [True]

    async def poll(self: RecordReader) -> list[Fetched]:
        return [] if answers and answers.pop() else await really(self)

    monkeypatch.setattr(RecordReader, "poll", poll)
    assert (await read_state(cluster))["position/lists/a"] == {"next": 2}

    async def nothing(self: RecordReader) -> list[Fetched]:
        return []

    monkeypatch.setattr(RecordReader, "poll", nothing)
    with pytest.raises(TryAgain, match="cannot be read beyond 0"):
        await read_state(cluster)
