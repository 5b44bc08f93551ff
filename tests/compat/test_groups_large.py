"""R-CON-2: a group of a hundred members settles, in both protocols; every partition has one owner."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

import pytest

from headrace.model.topics import TopicId
from headrace.testing.raw_client import frame, request_header
from headrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.schema import Request
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.group_client import RESPONSES, GroupClient, subscription

MEMBERS = 100
SETTLE_S = 90.0
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27


class Link:
    """A connection that asks one thing at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, bootstrap: str) -> Link:
        host, port = bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    def close(self) -> None:
        self._writer.close()

    async def call(self, request: Request, version: int) -> Any:
        self._correlation_id += 1
        flexible = version >= request.flexible_since
        head = request_header(request.api_key, version, self._correlation_id, "many")
        self._writer.write(frame(head + (b"\0" if flexible else b"") + request.encode(version)))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        response = RESPONSES[type(request).__name__.replace("Request", "Response")]
        return response.decode(answer, version, 5 if flexible else 4)


async def settle_classic(link: Link, group: str, topic: str) -> tuple[int, bytes]:
    """Join and sync until there is an assignment: the generation and it."""
    member_id = ""
    while True:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(topic))]
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = await link.call(request, 5)
        member_id = joined.member_id
        if joined.error_code == MEMBER_ID_REQUIRED:
            continue
        assert joined.error_code == 0, joined
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"%d" % number)
            for number, member in enumerate(joined.members)
        ]
        synced = await link.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=member_id,
                assignments=assignments,
            ),
            3,
        )
        if synced.error_code == 0 and len(await generation_of(link, group, member_id, joined)) == MEMBERS:
            return joined.generation_id, synced.assignment
        assert synced.error_code in (0, REBALANCE_IN_PROGRESS), synced


async def generation_of(link: Link, group: str, member_id: str, joined: Any) -> list[str]:
    """The members of the group, once it is stable in this generation; none if it has to join again."""
    from headrace.wire.messages.describe_groups import DescribeGroupsRequest
    from headrace.wire.messages.heartbeat import HeartbeatRequest

    beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=member_id)
    while True:
        (described,) = (await link.call(DescribeGroupsRequest(groups=[group]), 4)).groups
        if described.group_state == "Stable" and len(described.members) == MEMBERS:
            return [member.member_id for member in described.members]
        if (await link.call(beat, 3)).error_code == REBALANCE_IN_PROGRESS:
            return []
        await asyncio.sleep(0.02)


def test_classic(group_bootstrap: str, group_topic: MakeTopic, record_property: Any) -> None:
    topic, group = group_topic(MEMBERS), unique_name("many")
    with GroupClient(group_bootstrap) as client:
        client.wait_for_coordinator(group)

    async def run() -> float:
        links = await asyncio.gather(*(Link.open(group_bootstrap) for _ in range(MEMBERS)))
        began = time.monotonic()
        settled = await asyncio.gather(*(settle_classic(link, group, topic) for link in links))
        took = time.monotonic() - began
        assert len({generation for generation, _ in settled}) == 1
        assert {assignment for _, assignment in settled} == {b"%d" % number for number in range(MEMBERS)}
        for link in links:
            link.close()
        return took

    took = asyncio.run(asyncio.wait_for(run(), SETTLE_S))
    record_property("settled_s", round(took, 2))
    print(f"a classic group of {MEMBERS} members settled in {took:.2f} s")


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_consumer_protocol(
    group_bootstrap: str, group_topic: MakeTopic, record_property: Any, assignor: str
) -> None:
    topic, group = group_topic(MEMBERS), unique_name("many")
    with GroupClient(group_bootstrap) as client:
        client.wait_for_coordinator(group)
    owned: dict[int, dict[TopicId, list[int]]] = {}

    def settled() -> bool:
        places = [[place for many in assignment.values() for place in many] for assignment in owned.values()]
        # One each: the first member holds them all for a while, which covers every partition too.
        return sorted(places) == [[place] for place in range(MEMBERS)]

    async def live(link: Link, number: int) -> None:
        member_id, epoch, mine = f"member-{number}", 0, dict[TopicId, list[int]]()
        while not settled() or len(owned) < MEMBERS:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=30_000 if epoch == 0 else -1,
                subscribed_topic_names=[topic] if epoch == 0 else None,
                server_assignor=assignor if epoch == 0 else None,
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in mine.items()
                ],
            )
            response = await link.call(request, 1)
            assert response.error_code == 0, response
            epoch = response.member_epoch
            if response.assignment is not None:
                mine = {one.topic_id: one.partitions for one in response.assignment.topic_partitions}
            owned[number] = mine
            await asyncio.sleep(0.05)

    async def run() -> float:
        links = await asyncio.gather(*(Link.open(group_bootstrap) for _ in range(MEMBERS)))
        began = time.monotonic()
        await asyncio.gather(*(live(link, number) for number, link in enumerate(links)))
        took = time.monotonic() - began
        for link in links:
            link.close()
        return took

    took = asyncio.run(asyncio.wait_for(run(), SETTLE_S))
    record_property("settled_s", round(took, 2))
    print(f"a consumer group of {MEMBERS} members settled in {took:.2f} s")
