"""Cold handlers that answer at once, later, or not at all: what the connection is given for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.handlers.reply import CloseConnection
from headrace.model.errors import ErrorCode, KafkaError
from headrace.server.connection import Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.framing import FramedPending
from headrace.wire.header import request_header
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT = HeartbeatRequest.api_key
VERSION = 4
CORRELATION = 77
HEAD = 4 + 4 + 1
"""Length, correlation id, tagged fields of the header."""

Cold = Callable[[Any, HeartbeatRequest], HeartbeatResponse | Awaitable[HeartbeatResponse]]


@pytest.fixture
def dispatch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cold], Any]:
    load_all()

    def run(cold: Cold) -> Any:
        monkeypatch.setitem(APIS, HEARTBEAT, replace(APIS[HEARTBEAT], cold=cold))
        dispatcher = Dispatcher(cast(Any, None), max_request_bytes=1000)
        connection = SimpleNamespace(principal="p", client_host="h", listener="l")
        frame = request_header(HEARTBEAT, VERSION, CORRELATION, "c") + HeartbeatRequest(group_id="g").encode(
            VERSION
        )
        return dispatcher.dispatch(cast(Connection, connection), memoryview(frame))

    return run


def error_of(framed: bytes) -> int:
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    assert int.from_bytes(framed[4:8], "big") == CORRELATION
    return HeartbeatResponse.decode(framed, VERSION, HEAD).error_code


def test_an_answer_that_is_there_needs_no_task(dispatch: Callable[[Cold], Any]) -> None:
    """There is no running loop here, so a task could not even be made."""
    assert error_of(dispatch(lambda context, request: HeartbeatResponse(error_code=27))) == 27


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refusal_and_a_fault_of_ours_are_answered(
    dispatch: Callable[[Cold], Any], error: Exception, code: ErrorCode
) -> None:
    def refuse(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        raise error

    assert error_of(dispatch(refuse)) == code


async def test_an_answer_that_takes_time_holds_its_place(dispatch: Callable[[Cold], Any]) -> None:
    async def later(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=25)

    waiting = dispatch(later)
    assert isinstance(waiting, FramedPending)
    assert waiting.exclusive
    done: list[bool] = []
    waiting.pending.when_done(lambda: done.append(True))
    await turns()
    assert done
    assert error_of(b"".join(cast(list[bytes], waiting.framed()))) == 25


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_response_without_a_place_for_the_error_ends_the_connection(
    dispatch: Callable[[Cold], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    monkeypatch.setattr(HeartbeatResponse, "field_names", classmethod(lambda cls: ("throttle_time_ms",)))
    with pytest.raises(CloseConnection):
        dispatch(refuse)
