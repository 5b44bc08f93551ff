"""Large decisions are cut into writes that every store takes (R-REP-3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Check, Op, check_size
from headrace.coordination.memory import MemoryCluster
from headrace.env.real import real_env
from headrace.metadata.change_writer import MAX_PARTITIONS_PER_WRITE, ChangeWriter, Term
from headrace.metadata.changes import (
    Change,
    PartitionsAdded,
    PartitionsChanged,
    PartitionsRemoved,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller, NewPartitions, TopicCreation
from headrace.metadata.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from headrace.metadata.layout import TOPICS
from headrace.metadata.writes import MAX_TOPIC_NODE_BYTES, in_writes, listed_bytes
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId

ENV = real_env()
LARGE = 2**31 - 1
LONG = "t" * 249
TERM = Term(LARGE, LARGE)


def test_large_decisions_are_cut_into_writes_that_are_right_by_themselves() -> None:
    partition = PartitionImage((1,), 1, 0, (1,))
    topic = TopicImage("t", TopicId(bytes(16)), (partition,) * 25)
    writes = list(in_writes([TopicCreated(topic)], 10))
    assert [len(write) for write in writes] == [1, 1, 1]
    first, second, third = (write[0] for write in writes)
    assert isinstance(first, TopicCreated)
    assert len(first.topic.partitions) == 10
    assert isinstance(second, PartitionsAdded)
    assert isinstance(third, PartitionsAdded)
    assert [(added.first, len(added.topic.partitions)) for added in (second, third)] == [(10, 20), (20, 25)]
    changed = PartitionsChanged("t", dict.fromkeys(range(12), partition))
    small = PartitionsChanged("u", {0: partition})
    writes = list(in_writes([changed, small, small], 10))
    assert [[len(c.partitions) for c in write if isinstance(c, PartitionsChanged)] for write in writes] == [
        [5],
        [5],
        [2, 1, 1],
    ]


def test_fifty_thousand_partitions_fit() -> None:
    """docs/planning.md says so."""
    topic = TopicImage("t", TopicId(bytes(16)), partitions(50_000, 3, 1, is_busy=False))
    assert sum(map(listed_bytes, topic.partitions)) <= MAX_TOPIC_NODE_BYTES
    for write in in_writes([PartitionsAdded(topic, 45_000)], MAX_PARTITIONS_PER_WRITE):
        check_size(Written(10**9, 2 * 10**9).operations(write))


def test_a_large_topic_loses_its_last_partitions_first() -> None:
    topic = TopicImage("t", TopicId(bytes(16)), (PartitionImage((1,), 1, 0, (1,)),) * 25)
    first, second, third = (write[0] for write in in_writes([TopicDeleted(topic)], 10))
    assert isinstance(first, PartitionsRemoved)
    assert isinstance(second, PartitionsRemoved)
    assert isinstance(third, TopicDeleted)
    assert [(len(part.topic.partitions), part.end) for part in (first, second)] == [(20, 25), (10, 20)]
    assert len(third.topic.partitions) == 10


class Written:
    """A writer that only makes the operations of its writes."""

    def __init__(self, oldest: int, sequence: int) -> None:
        self._metadata = self
        self.oldest_sequence, self.sequence = oldest, sequence

    def operations(self, changes: Sequence[Change]) -> list[Op]:
        return ChangeWriter._operations(self, TERM, self.sequence, LARGE, changes)  # type: ignore[arg-type]


def partitions(count: int, factor: int, first_id: int, is_busy: bool) -> tuple[PartitionImage, ...]:
    """Busy: with everything in their states that there may be, and the largest numbers."""
    ids = tuple(range(first_id, first_id + factor))
    if not is_busy:
        return (PartitionImage(ids, ids[0], 0, ids, 0, 1),) * count
    isr, rest = ids[:1], ids[1:]
    busy = PartitionImage(ids, ids[0], LARGE, isr, LARGE, 2**53, ids, ids, elr=rest, last_known_elr=rest)
    return (busy,) * count


def change_of(kind: str, topic: TopicImage) -> Change:
    match kind:
        case "create":
            return TopicCreated(topic)
        case "delete":
            return TopicDeleted(topic)
        case "grow":
            return PartitionsAdded(topic, len(topic.partitions) // 2)
        case "change":
            return PartitionsChanged(topic.name, dict(enumerate(topic.partitions)))
        case _:
            return TopicConfigured(topic.name, CONFIGS)


CONFIGS = {"retention.ms": "1" * 500, "cleanup.policy": '"' * 500}


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(("create", "delete", "grow", "change", "configure")),
    topics=st.sampled_from((1, 2, 40, 700)),
    count=st.sampled_from((1, 3, 60, 2_500)),
    name_length=st.integers(5, 249),
    factor=st.integers(1, 12),
    first_id=st.sampled_from((1, 998, LARGE - 20)),
    is_busy=st.booleans(),
)
def test_no_write_is_too_large(
    kind: str, topics: int, count: int, name_length: int, factor: int, first_id: int, is_busy: bool
) -> None:
    count = count if topics <= 2 else min(count, 3)
    changes: list[Change] = []
    for number in range(topics):
        rows = partitions(count, factor, first_id, is_busy)
        topic = TopicImage(f"{number:0{name_length}d}", TopicId(bytes(16)), rows, CONFIGS if topics < 50 else {})
        changes.append(change_of(kind, topic))
    whole = [op.path for op in Written(0, 0).operations(changes) if not isinstance(op, Check)]
    written: dict[str, None] = {}
    for write in in_writes(changes, MAX_PARTITIONS_PER_WRITE):
        ops = Written(10**9, 2 * 10**9).operations(write)
        check_size(ops)
        written.update((op.path, None) for op in ops if not isinstance(op, Check))
    assert set(whole) - {whole[0]} <= written.keys()


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    store = MemoryCluster(ENV).connect()
    metadata = ClusterMetadata(ENV, store)
    await metadata.start()
    controller = Controller(ENV, store, metadata, 1, BrokerConfig.build())
    await controller.register_broker(BrokerImage(1, 0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)))
    await controller.start()
    yield controller
    await controller.close()
    await metadata.close()
    await store.close()


@pytest.mark.parametrize(("name", "count"), [("short", 6_000), (LONG, 2_000)])
async def test_a_topic_of_many_partitions_is_created_and_deleted(
    controller: Controller, name: str, count: int
) -> None:
    (created,) = await controller.create_topics([TopicCreation(name, num_partitions=count)])
    assert isinstance(created, TopicImage), created
    assert len(controller._metadata.image.topics[name].partitions) == count
    (deleted,) = await controller.delete_topics([name])
    assert isinstance(deleted, TopicImage), deleted
    assert name not in controller._metadata.image.topics
    assert await controller._store.children(TOPICS) == []


async def test_a_topic_whose_node_would_be_too_large_is_refused(controller: Controller) -> None:
    (created,) = await controller.create_topics([TopicCreation("t", num_partitions=1)])
    assert isinstance(created, TopicImage)
    count = MAX_TOPIC_NODE_BYTES // 15 + 2
    large = TopicImage("t", created.id, created.partitions * (count - 1), {})
    controller._metadata._image = controller._metadata.image.with_topics([large], [])
    (refused,) = await controller.create_partitions([NewPartitions("t", count)], validate_only=True)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_PARTITIONS
