"""A Produce that is appended later and may then have to wait for replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.handlers.context import Channel
from headrace.services.reply import CloseConnection, Pending, Reply

logger = logging.getLogger(__name__)


class LaterProduce(Pending):
    __slots__ = ("_channel", "_inner", "_version")

    def __init__(self, channel: Channel, version: int) -> None:
        super().__init__()
        self._channel = channel
        self._version = version
        self._inner: Pending | None = None

    def _answer_with(self, append: Callable[[], Reply]) -> None:
        """Append now. Never raises: a failure only ends the connection."""
        try:
            reply = append()
        except Exception as error:
            self._fail(error)
        else:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        if self.done or reply is None:
            return
        if not isinstance(reply, Pending):
            self.complete(reply)
            return
        self._inner = reply
        if reply.done:
            self._arrived()
        else:
            reply.when_done(self._arrived)

    def _arrived(self) -> None:
        assert self._inner is not None
        self.complete_with(self._inner.result)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, CloseConnection):
            self.hang_up()  # with an error that does not hold the request: nobody waits for an answer to acks=0
        else:
            logger.error("A Produce failed while it waited", exc_info=error)
            self.fail(error)

    def cancel(self) -> None:
        """The connection is closed; verified batches are appended anyway."""
        if self._inner is not None:
            self._inner.cancel()
        super().cancel()
