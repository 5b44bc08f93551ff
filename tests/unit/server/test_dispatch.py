"""Cold handlers that answer at once, later, or not at all: what the connection is given for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.coordination.contract import Unknown
from headrace.env.real import real_env
from headrace.handlers import load_all
from headrace.handlers.registry import APIS, Api, ColdHandler, HotHandler
from headrace.model.errors import ErrorCode, KafkaError
from headrace.server.dispatch import Dispatcher
from headrace.server.exchange import Exchange
from headrace.server.framing import FramedPending
from headrace.server.gate import ColdBody
from headrace.services.reply import CloseConnection
from headrace.wire.header import request_header
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

load_all()
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
        monkeypatch.setitem(APIS, HEARTBEAT, replace(APIS[HEARTBEAT], cold=cold, quick=None))
        dispatcher = Dispatcher(cast(Any, SimpleNamespace(env=real_env())), max_request_bytes=1000)
        connection = SimpleNamespace(principal="p", client_host="h", listener="l")
        frame = request_header(HEARTBEAT, VERSION, CORRELATION, "c") + HeartbeatRequest(group_id="g").encode(
            VERSION
        )
        return dispatcher.dispatch(cast(Exchange, connection), memoryview(frame))

    return run


def error_of(framed: bytes) -> int:
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    assert int.from_bytes(framed[4:8], "big") == CORRELATION
    return HeartbeatResponse.decode(framed, VERSION, HEAD).error_code


def test_a_store_that_cannot_be_asked_is_told_as_a_time_out(dispatch: Callable[[Cold], Any]) -> None:
    def fails(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        raise Unknown("/", "the answer was lost")

    assert error_of(dispatch(fails)) == ErrorCode.REQUEST_TIMED_OUT


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
async def test_a_refusal_and_a_fault_of_ours_are_answered(
    dispatch: Callable[[Cold], Any], error: Exception, code: ErrorCode
) -> None:
    def refuse(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        raise error

    assert error_of(dispatch(refuse)) == code


async def test_an_answer_that_takes_time_holds_its_place(dispatch: Callable[[Cold], Any]) -> None:
    async def later(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=25)

    waiting = dispatch(later)
    assert isinstance(waiting, FramedPending)
    assert waiting.exclusive
    done: list[bool] = []
    waiting.pending.when_done(lambda: done.append(True))
    await turns()
    assert done
    assert error_of(b"".join(cast(list[bytes], waiting.framed(0.0)))) == 25


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_response_without_a_place_for_the_error_ends_the_connection(
    dispatch: Callable[[Cold], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    monkeypatch.setattr(HeartbeatResponse, "has_field", classmethod(lambda cls, name, version: False))
    with pytest.raises(CloseConnection):
        dispatch(refuse)


async def test_a_response_that_cannot_be_encoded_is_answered_with_an_error(
    dispatch: Callable[[Cold], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Once its connection hung for ever."""

    def broken(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=cast(int, "not a number"))

    async def broken_later(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return broken(context, request)

    assert error_of(dispatch(broken)) == ErrorCode.UNKNOWN_SERVER_ERROR
    waiting = dispatch(broken_later)
    await turns()
    assert error_of(b"".join(cast(list[bytes], waiting.framed(0.0)))) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "could not be encoded" in caplog.text


async def test_one_that_not_even_an_error_fits_ends_the_connection(
    dispatch: Callable[[Cold], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=cast(int, "not a number"))

    monkeypatch.setattr(HeartbeatResponse, "has_field", classmethod(lambda cls, name, version: False))
    waiting = dispatch(broken)
    await turns()
    assert waiting.done
    with pytest.raises(CloseConnection):
        waiting.framed(0.0)


async def test_an_answer_that_needs_no_waiting_needs_no_task(dispatch: Callable[[Cold], Any]) -> None:
    async def at_once(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=25)

    assert error_of(dispatch(at_once)) == 25


class Porter:
    """A guard that notes who passes, and refuses on request."""

    def __init__(self, refusal: KafkaError | None = None) -> None:
        self._refusal = refusal
        self.entered: list[tuple[str, object]] = []
        self.handled: list[str] = []

    def login(self, exchange: Exchange) -> None: ...

    def enter(self, exchange: Exchange, api: Api, request_bytes: int) -> None:
        assert request_bytes > 0
        self.entered.append((api.name, api.authorize))
        if self._refusal is not None:
            raise self._refusal

    def cold(self, api: Api, handle: ColdHandler) -> ColdHandler:
        def handled(context: Any, request: Any) -> Any:
            self.handled.append(api.name)
            return handle(context, request)

        return handled

    def leave(self, exchange: Exchange, api: Api, context: Any, body: ColdBody, seconds: float) -> ColdBody:
        assert seconds >= 0
        return body

    def quick(self, api: Api, handle: HotHandler) -> None: ...

    def hot(self, api: Api, handle: HotHandler) -> HotHandler:
        def refused(exchange: Exchange, version: int, frame: memoryview, position: int) -> Any:
            self.enter(exchange, api, len(frame))

        return refused


def guarded_dispatcher(porter: Porter) -> Dispatcher:
    load_all()
    dispatcher = Dispatcher(cast(Any, SimpleNamespace(env=real_env())), max_request_bytes=1000)
    dispatcher.set_guard(porter)
    return dispatcher


CONNECTION = cast(Exchange, SimpleNamespace(principal="p", client_host="h", listener="l", broker=None))


@pytest.mark.parametrize("key", sorted(APIS))
async def test_every_request_passes_the_gate(key: int) -> None:
    """Hot or cold, nothing is handled before the guard was asked, with the right that its API needs."""
    porter = Porter(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    version = APIS[key].versions[-1]
    frame = memoryview(request_header(key, version, CORRELATION, "c") + bytes(50))
    with contextlib.suppress(CloseConnection, KafkaError):
        guarded_dispatcher(porter).dispatch(CONNECTION, frame)
    assert porter.entered == [(APIS[key].name, APIS[key].authorize)]
    assert porter.handled == []


async def test_a_refused_request_is_answered_and_measured() -> None:
    dispatcher = guarded_dispatcher(Porter(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    frame = request_header(HEARTBEAT, VERSION, CORRELATION, "c") + HeartbeatRequest(group_id="g").encode(VERSION)
    answer = dispatcher.dispatch(CONNECTION, memoryview(frame))
    assert error_of(cast(bytes, answer)) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    meter = dispatcher.meters[HEARTBEAT]
    assert (meter.requests, meter.errors) == (1, 1)
    assert (meter.request_bytes, meter.response_bytes) == (len(frame), len(cast(bytes, answer)))
    assert meter.busy_seconds > 0


async def test_what_waits_is_measured_as_waiting(dispatch: Callable[[Cold], Any]) -> None:
    async def later(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse()

    waiting = dispatch(later)
    meter = waiting._meter
    await turns()
    busy = meter.busy_seconds
    assert busy > 0
    waiting.since = 5.0
    waiting.framed(7.5)
    assert meter.busy_seconds == busy
    assert 2.4 < meter.wait_seconds <= 2.5
    assert meter.response_bytes > 0
