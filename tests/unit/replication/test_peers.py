"""When a broker counts as dead by what its port says."""

from __future__ import annotations

import pytest

from headrace.client.address import Address
from headrace.client.errors import CannotReach, Reason
from headrace.metadata.image import BrokerImage, Endpoint, MetadataImage
from headrace.replication.peers import Peer, Peers

ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")


class World:
    """One other broker, whose port answers, refuses or is silent."""

    def __init__(self) -> None:
        self.says: Reason | None = None
        self.dead: list[BrokerImage] = []
        self.broker = BrokerImage(2, 5, (ENDPOINT,))
        self.peers = Peers(self.connect, self.image, "PLAINTEXT", self.dead.append)

    def image(self) -> MetadataImage:
        return MetadataImage("c", brokers={2: self.broker})

    async def connect(self, endpoint: Endpoint) -> Peer:
        if self.says is not None:
            raise CannotReach(Address(endpoint.host, endpoint.port), self.says)
        return None  # type: ignore[return-value]

    async def dial(self, says: Reason | None) -> None:
        self.says = says
        if says is None:
            await self.peers.dial(2)
        else:
            with pytest.raises(CannotReach):
                await self.peers.dial(2)


async def test_a_port_that_refuses_after_it_answered_is_told_once() -> None:
    world = World()
    await world.dial(None)
    await world.dial(Reason.REFUSED)
    await world.dial(Reason.REFUSED)
    assert world.dead == [world.broker]


async def test_one_that_never_answered_or_is_silent_is_left_to_its_session() -> None:
    world = World()
    await world.dial(Reason.REFUSED)
    await world.dial(None)
    await world.dial(Reason.SILENT)
    await world.dial(Reason.CLOSED)
    assert world.dead == []


async def test_a_later_registration_must_have_answered_itself() -> None:
    world = World()
    await world.dial(None)
    world.broker = BrokerImage(2, 6, (ENDPOINT,))
    await world.dial(Reason.REFUSED)
    assert world.dead == []
