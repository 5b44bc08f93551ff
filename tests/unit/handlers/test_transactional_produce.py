"""A Produce of a transaction that waits for its coordinator."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import cast

from headrace.handlers.context import Channel
from headrace.handlers.transactional_produce import TransactionalProduce
from headrace.services.reply import CloseConnection, Reply


class Refused(TransactionalProduce):
    async def _verified_and_appended(self) -> Reply:
        raise CloseConnection("a Produce with acks=0 failed")


async def test_a_refused_one_without_an_answer_is_let_go() -> None:
    """Nobody asks for its result. By its error it held itself, and its copy of the request, which can be large."""
    frame = bytearray(b"request")
    pending = Refused(cast(Channel, None), 9, memoryview(frame), 0, nullcontext())
    gc.disable()
    try:
        await pending.run()
        assert pending.done
        del pending
        frame.append(0)  # raises BufferError while anything refers to it
    finally:
        gc.enable()
