"""Replies that come later hold nothing once they have ended."""

from __future__ import annotations

import contextlib
import gc
import weakref

from headrace.services.reply import CloseConnection, Pending


class Request(Pending):
    """With what it was asked."""

    def run(self) -> None:
        try:
            raise CloseConnection("it cannot be answered")
        except CloseConnection as error:
            self.fail(error)


def test_a_reply_that_failed_is_let_go_once_that_was_told() -> None:
    """Its error has a traceback, and the frames of that hold it: a circle that waits for the collector."""
    pending = Request()
    reference = weakref.ref(pending)
    pending.run()
    gc.disable()
    try:
        with contextlib.suppress(CloseConnection):
            pending.result()
        del pending
        assert reference() is None
    finally:
        gc.enable()
