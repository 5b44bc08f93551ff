"""A connection to one of several addresses, whichever answers.

They are tried in their order. A host that is gone does not refuse a connection, it is silent, and so is a broker
that hangs: after a head start, the next address is tried beside it. Whoever types a command because a machine
has died should not wait for that machine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable

from headrace.client.address import Address
from headrace.client.connection import ClientConnection
from headrace.client.errors import CannotReach, NoneReachable

HEAD_START_S = 0.5

Opener = Callable[[Address], Coroutine[None, None, ClientConnection]]
Attempt = asyncio.Task[ClientConnection]


async def first_to_answer(addresses: Collection[Address], connect: Opener) -> ClientConnection:
    """The first connection that is open; NoneReachable, with every reason in order, if none can be."""
    left = deque(addresses)
    attempts: dict[Attempt, Address] = {}
    failures: dict[Address, CannotReach] = {}
    try:
        while left or attempts:
            if left:
                address = left.popleft()
                attempts[asyncio.create_task(connect(address))] = address
            patience_s = HEAD_START_S if left else None
            done, _ = await asyncio.wait(attempts, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [one for one in attempts if one in done]:
                address = attempts.pop(attempt)
                try:
                    return attempt.result()
                except CannotReach as failure:
                    failures[address] = failure
        raise NoneReachable([failures[address] for address in addresses])
    finally:
        await _give_up(attempts)


async def _give_up(attempts: Iterable[Attempt]) -> None:
    """End the attempts that are no longer needed, also those that succeed just now."""
    for attempt in attempts:
        attempt.cancel()
    for found in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(found, ClientConnection):
            found.close()
