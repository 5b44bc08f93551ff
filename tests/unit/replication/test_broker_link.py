"""Questions between brokers: one that waits holds up no other, one without an answer leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.metadata.image import BrokerImage, Endpoint, MetadataImage
from headrace.replication.broker_link import BrokerLink
from headrace.replication.peers import Peers
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from headrace.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
TIMEOUT_S = 60.0


class FakePeer:
    """Answers in order, as a connection does; a request for markers waits until it may go on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.closed = False
        self._turn = asyncio.Lock()

    async def request(
        self, message: Any, answer: Any, *, highest: int = 99, timeout_s: float | None = None
    ) -> Any:
        async with self._turn:
            if self.world.failure is not None:
                raise self.world.failure
            if isinstance(message, WriteTxnMarkersRequest):
                await self.world.replicated.wait()
            return answer()

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self) -> None:
        self.replicated = asyncio.Event()
        self.failure: ClientError | None = None
        self.dialled: list[FakePeer] = []
        image = MetadataImage("c", brokers={2: BrokerImage(2, 5, (ENDPOINT,))})
        self.link = BrokerLink(Peers(self._connect, lambda: image, "PLAINTEXT"), 1)

    async def _connect(self, endpoint: Endpoint) -> Any:
        self.dialled.append(FakePeer(self))
        return self.dialled[-1]

    def write_markers(self) -> Any:
        return asyncio.ensure_future(
            self.link.ask(2, WriteTxnMarkersRequest(), WriteTxnMarkersResponse, TIMEOUT_S)
        )

    async def verify(self) -> Any:
        return await self.link.ask(2, AddPartitionsToTxnRequest(), AddPartitionsToTxnResponse, TIMEOUT_S)


async def test_markers_that_wait_hold_up_no_verification() -> None:
    world = World()
    markers = world.write_markers()
    for _ in range(5):
        await asyncio.sleep(0)
    await asyncio.wait_for(world.verify(), TIMEOUT_S)
    assert not markers.done()
    world.replicated.set()
    await markers
    await world.verify()
    assert len(world.dialled) == 2, "one connection for each kind of request"
    world.link.close()
    assert all(peer.closed for peer in world.dialled)


async def test_after_a_failure_there_is_a_new_connection() -> None:
    world = World()
    world.failure = ClientError("no answer in time")
    with pytest.raises(ClientError):
        await world.verify()
    world.failure = None
    await world.verify()
    assert [peer.closed for peer in world.dialled] == [True, False]


async def test_this_broker_is_asked_by_a_call() -> None:
    world = World()

    async def here(request: Any, version: int) -> Any:
        return "called"

    world.link.call_here = here
    answer: Any = await world.link.ask(1, WriteTxnMarkersRequest(), WriteTxnMarkersResponse, TIMEOUT_S)
    assert answer == "called"
    assert world.dialled == []
