"""The way into a cluster of which some hosts are gone."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client import entering
from headrace.client.address import Address
from headrace.client.connection import ClientConnection, ClientSettings, open_connection
from headrace.client.entering import first_to_answer
from headrace.client.errors import CannotReach, NoneReachable, Reason
from tests.unit.client.conftest import Serve, broker

NOWHERE = Address("127.0.0.1", 1)
SETTINGS = ClientSettings(connect_timeout_s=30.0)


async def connect(address: Address) -> ClientConnection:
    return await open_connection(address, SETTINGS)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The connection is accepted, and that is all."""
    await reader.read()


async def test_a_silent_broker_is_not_waited_for(serve: Serve) -> None:
    gone, there = await serve(silent), await serve(broker(lambda *_: None, {}))
    ended: list[Address] = []

    async def noted(address: Address) -> ClientConnection:
        try:
            return await open_connection(address, ClientSettings(connect_timeout_s=10.0))
        except CannotReach:
            ended.append(address)
            raise

    connection = await first_to_answer([gone, there], noted)
    assert (connection.address, ended) == (there, [])
    connection.close()


async def test_the_first_address_has_a_head_start(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "HEAD_START_S", 30.0)
    first, second = await serve(broker(lambda *_: None, {})), await serve(broker(lambda *_: None, {}))
    tried: list[Address] = []

    async def noted(address: Address) -> ClientConnection:
        tried.append(address)
        return await connect(address)

    connection = await first_to_answer([first, second], noted)
    assert (connection.address, tried) == (first, [first])
    connection.close()


async def test_a_refusal_needs_no_head_start(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "HEAD_START_S", 30.0)
    there = await serve(broker(lambda *_: None, {}))
    async with asyncio.timeout(20):
        connection = await first_to_answer([NOWHERE, there], connect)
    connection.close()


async def test_of_several_that_answer_together_one_stays_open(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entering, "HEAD_START_S", 0.0)
    places = [await serve(broker(lambda *_: None, {})) for _ in range(3)]
    opened: list[ClientConnection] = []
    all_open = asyncio.Event()

    async def together(address: Address) -> ClientConnection:
        opened.append(await connect(address))
        if len(opened) == len(places):
            all_open.set()
        await all_open.wait()
        return next(one for one in opened if one.address == address)

    won = await first_to_answer(places, together)
    await asyncio.sleep(0.05)  # until the loop has told the connections
    assert [one.closed for one in opened if one is not won] == [True, True]
    assert not won.closed
    won.close()


async def test_reasons_come_in_the_order_of_the_addresses() -> None:
    order = [Address("127.0.0.1", 3), Address("127.0.0.1", 1), Address("127.0.0.1", 2)]

    async def refused(address: Address) -> ClientConnection:
        await asyncio.sleep(0.01 * address.port)
        raise CannotReach(address, Reason.REFUSED)

    with pytest.raises(NoneReachable) as caught:
        await first_to_answer(order, refused)
    assert [failure.address for failure in caught.value.failures] == order


async def test_other_errors_end_the_attempt_at_once() -> None:
    async def broken(address: Address) -> ClientConnection:
        raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault of ours"):
        await first_to_answer([NOWHERE, Address("127.0.0.1", 2)], broken)
