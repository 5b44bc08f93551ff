"""TxnOffsetCommit in every version: positions that count with their transaction, and who is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.handlers.transactors import SETTINGS, Client, until

NONE = ErrorCode.NONE
GROUP = "g"
VERSION_2 = 5
"""Of TxnOffsetCommit: from here on the client leaves it to the broker to add the group's partition."""


@pytest.fixture
async def bench(bench_with: Any) -> AsyncIterator[Any]:
    async with bench_with(SETTINGS) as running:
        await running.create_topic("t", 3)
        await running.call(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 4)
        await running.broker.groups.ensure_topic()
        yield running


@pytest.fixture
async def client(bench: Any) -> Client:
    client = Client(bench)
    await client.init()
    return client


async def add_offsets(client: Client) -> None:
    producer = client.producer
    request = AddOffsetsToTxnRequest(
        transactional_id=client.id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    assert (await client.bench.call(request, 3)).error_code == NONE


async def commit(client: Client, offset: int = 5, version: int = 3, partition: int = 0, **more: Any) -> ErrorCode:
    position = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="m"
    )
    fields = {
        "transactional_id": client.id,
        "group_id": GROUP,
        "producer_id": client.producer.producer_id,
        "producer_epoch": client.producer.epoch,
        "topics": [TxnOffsetCommitRequestTopic(name="t", partitions=[position])],
        **more,
    }
    response = await client.bench.call(TxnOffsetCommitRequest(**fields), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def fetched(client: Client, require_stable: bool = True) -> tuple[ErrorCode, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
    response = await client.bench.call(OffsetFetchRequest(groups=groups, require_stable=require_stable), 8)
    (row,) = response.groups[0].topics[0].partitions
    return ErrorCode(row.error_code), row.committed_offset


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_positions_count_with_the_transaction(client: Client, version: int, committed: bool) -> None:
    if version < VERSION_2:
        await add_offsets(client)
    assert await commit(client, version=version) is NONE
    assert await commit(client, offset=6, version=version) is NONE
    assert await fetched(client) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert await fetched(client, require_stable=False) == (NONE, -1)
    assert (await client.end(committed, version=5 if version >= VERSION_2 else 4)).error_code == NONE
    await client.until_state("CompleteCommit" if committed else "CompleteAbort")
    assert await fetched(client) == (NONE, 6 if committed else -1)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_an_older_client_must_have_added_the_group(client: Client, version: int, code: ErrorCode) -> None:
    await client.add(0)
    assert await commit(client, version=version) is code
    assert await fetched(client) == (NONE, -1)


@pytest.mark.parametrize("version", [4, VERSION_2])
async def test_a_wrong_epoch_does_not_keep_the_right_one_out(client: Client, version: int) -> None:
    await add_offsets(client)
    assert await commit(client, version=version, producer_epoch=9) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await commit(client, version=version, transactional_id="nobody", producer_epoch=9) in (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert await commit(client, version=version) is NONE


async def test_positions_that_come_late_join_nothing(client: Client) -> None:
    await add_offsets(client)
    assert await commit(client, version=4) is NONE
    await client.end(False)
    await client.until_state("CompleteAbort")
    assert await commit(client, offset=9, version=4) is ErrorCode.TRANSACTION_ABORTABLE
    assert await fetched(client) == (NONE, -1)


async def test_positions_of_an_earlier_epoch_are_refused(client: Client) -> None:
    before = client.producer
    assert await commit(client, version=VERSION_2) is NONE
    await client.end(version=5)
    await client.until_state("CompleteCommit")
    late = await commit(client, offset=9, version=VERSION_2, producer_epoch=before.epoch)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await fetched(client) == (NONE, 5)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"generation_id": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"transactional_id": "another"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 9}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_id": 12345}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
    ids=str,
)
async def test_bad_input(client: Client, fields: dict[str, Any], code: ErrorCode) -> None:
    assert await commit(client, version=VERSION_2, **fields) is code
    assert await fetched(client) == (NONE, -1)


async def test_a_member_of_the_past_is_fenced(client: Client) -> None:
    """KIP-447: the group has another member by now, so that one without a place in it is a zombie."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    joined = await client.bench.call(join, 3)
    generation = joined.generation_id
    zombie = await commit(client, version=VERSION_2, generation_id=generation - 1, member_id=joined.member_id)
    assert zombie is ErrorCode.ILLEGAL_GENERATION
    unknown = await commit(client, version=VERSION_2, generation_id=generation, member_id="who")
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID
    ours = await commit(client, version=VERSION_2, generation_id=generation, member_id=joined.member_id)
    assert ours is NONE


async def test_pending_positions_can_be_deleted(client: Client) -> None:
    assert await commit(client, version=VERSION_2) is NONE
    deleted = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    )
    assert (await client.bench.call(deleted, 0)).error_code == NONE
    assert await fetched(client) == (NONE, -1)
    await client.end(version=5)
    await client.until_state("CompleteCommit")
    assert await fetched(client) == (NONE, -1)


async def test_pending_positions_are_found_again(client: Client) -> None:
    """By a coordinator that reads the log anew."""
    assert await commit(client, version=VERSION_2) is NONE
    groups = client.bench.broker.groups
    shard = groups.shard(GROUP)
    shard.distrust([GROUP])

    async def refusal() -> ErrorCode | None:
        refused: ErrorCode | None = shard.refusal(GROUP)
        return refused

    await until(refusal, lambda refused: refused is None)
    assert groups.coordinator(GROUP).offsets.is_pending(GROUP, TopicPartition("t", 0))
    await client.end(version=5)
    await client.until_state("CompleteCommit")
    assert await fetched(client) == (NONE, 5)
