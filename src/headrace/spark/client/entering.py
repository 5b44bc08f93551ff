"""A connection to one of several addresses, whichever answers: `client.entering` for code that blocks.

Each attempt has a thread, which waits at most as long as a connection may take to open. One that succeeds after
another was taken closes its connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from headrace.client.address import Address
from headrace.client.entering import HEAD_START_S
from headrace.client.errors import CannotReach, NoneReachable
from headrace.spark.client.connection import BlockingConnection


def first_to_answer(
    addresses: Collection[Address], connect: Callable[[Address], BlockingConnection]
) -> BlockingConnection:
    """The first connection that is open; NoneReachable, with every reason in order, if none can be."""
    left = deque(addresses)
    attempts: dict[Future[BlockingConnection], Address] = {}
    failures: dict[Address, CannotReach] = {}
    threads = ThreadPoolExecutor(len(addresses))
    try:
        while left or attempts:
            if left:
                address = left.popleft()
                attempts[threads.submit(connect, address)] = address
            done, _ = wait(attempts, HEAD_START_S if left else None, FIRST_COMPLETED)
            for attempt in [one for one in attempts if one in done]:
                address = attempts.pop(attempt)
                try:
                    return attempt.result()
                except CannotReach as failure:
                    failures[address] = failure
        raise NoneReachable([failures[address] for address in addresses])
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_close)
        threads.shutdown(wait=False)


def _close(attempt: Future[BlockingConnection]) -> None:
    if attempt.exception() is None:
        attempt.result().close()
