"""From a frame through the gate to its handler, and from what that gives back, or raises, to a response.

The one place where a peer's mistake becomes an error code on the wire: handlers raise `KafkaError`. An unknown
API or version closes the connection, as Kafka does, but for ApiVersions, which is how a client learns what we
speak. What fails here ends with an error, or the end of the connection, for that one request alone.

A cold handler's first step is done at once; most have nothing to wait for and need no task. Large requests are
decoded and large responses encoded in slices, with others served between (`turns`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headrace.coordination.contract import StoreError
from headrace.env.allocator import give_back_memory
from headrace.handlers import api_versions
from headrace.handlers.broker import Broker
from headrace.handlers.context import Context
from headrace.handlers.registry import APIS, Api, ColdHandler, HotHandler
from headrace.metrics.exposition import Family, counter, gauge
from headrace.metrics.requests import RequestMeter, request_families
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.server.dividing import DIVISIONS, join, parts
from headrace.server.exchange import Exchange
from headrace.server.framing import FramedPending, framed, framed_bytes
from headrace.server.gate import Framed, Guard
from headrace.server.line_limit import LineLimit
from headrace.server.releasing import elements_of, release
from headrace.server.request_memory import RequestMemory
from headrace.server.steps import rest_of
from headrace.server.turns import SLICE_SECONDS, RequestSlices, Turns
from headrace.services.reply import NOT_QUICK, CloseConnection, Pending
from headrace.wire.api_keys import ApiKey
from headrace.wire.header import parse_request_header
from headrace.wire.primitives import Cursor
from headrace.wire.schema import Request, Response
from headrace.wire.stepwise import decode_in_steps, encode_in_steps, holds_more_than
from headrace.wire.tags import skip_tags

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">hhih")

LARGE_REQUEST_BYTES = 8 * 1024
"""A longer request is decoded in slices."""
LARGE_RESPONSE_ELEMENTS = 500
"""A response that holds more is encoded in slices."""


class LaterAnswer(Pending):
    """The answer of a cold handler that had to wait, and what its steps since then have cost."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        super().__init__()
        self.spent = RequestMeter()


class Dispatcher:
    slice_seconds = SLICE_SECONDS

    def __init__(self, broker: Broker, max_request_bytes: int, max_queued_bytes: int = -1) -> None:
        self.broker = broker
        self.max_request_bytes = max_request_bytes
        self.unproven_bytes: Mapping[str, int] = {}
        """The same before a login, by the names of the listeners that have one."""
        clock = broker.env.clock
        self.memory = RequestMemory(max_queued_bytes, clock, self.give_back_memory)
        self.turns = Turns(clock)
        self.lines = LineLimit(clock, log)
        self._guard: Guard | None = None
        self.audit: Callable[[Api, ColdHandler], ColdHandler] | None = None
        """Set before the guard; it reports changes."""
        self._apis = APIS
        self.meters = {key: RequestMeter() for key in APIS}
        self.monotonic = clock.monotonic
        self.now = 0.0
        """When the latest request was done, or the first of a turn began: each is measured from there."""
        self._hot: dict[int, tuple[HotHandler, int, int, int, RequestMeter]] = {}
        """What a hot request needs to know of its API, together."""
        self.set_guard(None)
        self._running: set[asyncio.Task[None]] = set()
        self._giving_back: asyncio.Future[None] | None = None

    def set_guard(self, guard: Guard | None) -> None:
        """Every request passes it from now on. Without one, everybody may do everything."""
        self._guard = guard
        self._hot = {
            key: (handle, api.versions[0], api.versions[-1], api.flexible_since, self.meters[key])
            for key, api in APIS.items()
            if (handle := _hot_handler(api, guard)) is not None
        }
        self._apis = {key: self._guarded(api) for key, api in APIS.items()}

    def _guarded(self, api: Api) -> Api:
        if api.cold is None:
            return api
        cold = api.cold if self._guard is None else self._guard.cold(api, api.cold)
        cold = cold if self.audit is None else self.audit(api, cold)
        return api if cold is api.cold else replace(api, cold=cold)

    def dispatch(self, exchange: Exchange, frame: memoryview) -> Framed:
        try:
            key, version, correlation, client_id_size = _HEADER.unpack_from(frame)
        except struct.error:
            raise ProtocolError("a request header is cut off") from None
        hot = self._hot.get(key)
        if hot is None:
            return self._dispatch_cold(exchange, frame, key, version)
        handle, first, last, flexible_since, meter = hot
        if not first <= version <= last:
            raise ProtocolError(f"{APIS[key].name} v{version} is not supported")
        meter.requests += 1
        meter.request_bytes += len(frame)
        flexible = version >= flexible_since
        position = 10 + client_id_size if client_id_size > 0 else 10
        if flexible:
            try:
                position = skip_tags(frame, position) if frame[position] else position + 1
            except IndexError:
                raise ProtocolError("a request header is cut off") from None
        body = handle(exchange, version, frame, position)
        reply: Framed
        if type(body) is bytes:
            reply = framed_bytes(body, correlation, flexible)
            meter.response_bytes += len(reply)
        elif type(body) is list:
            reply = framed(body, correlation, flexible, meter)
        elif body is NOT_QUICK:
            meter.requests -= 1
            meter.request_bytes -= len(frame)
            return self._dispatch_cold(exchange, frame, key, version)
        else:
            reply = None
            if body is not None:
                exclusive = body.exclusive or APIS[key].hot is None
                reply = FramedPending(body, correlation, flexible, exclusive, meter)
        now = self.monotonic()
        meter.busy_seconds += now - self.now
        self.now = now
        return reply

    def _dispatch_cold(self, exchange: Exchange, frame: memoryview, key: int, version: int) -> Framed:
        api = self._apis.get(key)
        if api is None or api.request is None:
            raise ProtocolError(f"API {key} is not known")
        meter = self.meters[key]
        meter.requests += 1
        meter.request_bytes += len(frame)
        if version not in api.versions:
            return self._unsupported_version(frame, api, version)
        header = parse_request_header(frame)
        context = Context(
            broker=self.broker,
            version=version,
            client_id=header.client_id,
            principal=exchange.principal,
            client_host=exchange.client_host,
            listener=exchange.listener,
            slices=RequestSlices(self.turns, self.now),
            login=self._guard.login(exchange) if self._guard is not None else None,
        )
        flexible = version >= api.flexible_since and key != ApiKey.API_VERSIONS
        body = self._handle_cold(exchange, api, context, frame, header.body)
        if self._guard is not None:
            body = self._guard.leave(exchange, api, context, body, self.monotonic() - self.now)
        reply: Framed
        if type(body) is bytes:
            reply = framed_bytes(body, header.correlation_id, flexible)
            meter.response_bytes += len(reply)
        else:
            assert isinstance(body, Pending)
            reply = FramedPending(body, header.correlation_id, flexible, True, meter)
        now = self.monotonic()
        meter.busy_seconds += now - self.now
        self.now = now
        return reply

    def _handle_cold(
        self, exchange: Exchange, api: Api, context: Context, frame: memoryview, position: int
    ) -> bytes | Pending:
        assert api.request is not None
        assert api.cold is not None
        work: Response | Awaitable[Response]
        try:
            if self._guard is not None:
                self._guard.enter(exchange, api, len(frame))
            if len(frame) > LARGE_REQUEST_BYTES:
                cursor = Cursor(frame, position, api.request.max_elements)
                work = _handle_large(api, context, decode_in_steps(api.request, cursor, context.version), cursor)
            else:
                work = api.cold(context, api.request.decode(frame, context.version, position))
        except ProtocolError:
            raise
        except Exception as error:
            work = self._failure(api, context.version, error)
        if isinstance(work, Response) and not holds_more_than(work, LARGE_RESPONSE_ELEMENTS):
            return self._encoded(api, context.version, work)
        if isinstance(work, Pending):
            return work
        steps = self._respond(api, context, work)
        try:
            waits_for = steps.send(None)
        except StopIteration as end:
            return bytes(end.value)
        return self._answer_later(steps, waits_for, self.meters[api.key])

    async def _respond(self, api: Api, context: Context, work: Response | Awaitable[Response]) -> bytes:
        try:
            response = work if isinstance(work, Response) else await work
            if holds_more_than(response, LARGE_RESPONSE_ELEMENTS):
                body = await _encoded_in_slices(response, context)
                elements = await elements_of(response, context.slices)
                del response, work
                await release(elements, context.slices)
                return body
        except (ProtocolError, CloseConnection):
            raise
        except Exception as error:
            response = self._failure(api, context.version, error)
        return self._encoded(api, context.version, response)

    def _answer_later(self, steps: Coroutine[Any, Any, bytes], waits_for: object, meter: RequestMeter) -> Pending:
        pending = LaterAnswer()

        async def answer() -> None:
            try:
                body = await rest_of(steps, waits_for, pending.spent, self.monotonic)
            except Exception as error:
                meter.add_times(pending.spent)
                pending.fail(error)
            else:
                meter.add_times(pending.spent)
                if not pending.done:  # else the connection is gone
                    pending.complete(body)

        task = asyncio.get_running_loop().create_task(answer())
        # The loop itself keeps only weak references to tasks.
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return pending

    def give_back_memory(self) -> None:
        """After a burst, by a thread."""
        self._giving_back = self.broker.env.start_blocking(give_back_memory)

    async def drain(self, seconds: float) -> None:
        """Let the requests that are being handled finish, for so long at most."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    def families(self) -> Iterator[Family]:
        """What `/metrics` shows of all this."""
        yield from request_families({api.name: self.meters[key] for key, api in APIS.items()})
        yield gauge(
            "headrace_queued_request_bytes",
            "Bytes of requests not handled yet.",
            self.memory.reserved + self.memory.grown,
        )
        yield counter(
            "headrace_request_slices_total",
            "Times that work yielded to other connections.",
            self.turns.slices,
        )

    def _unsupported_version(self, frame: memoryview, api: Api, version: int) -> bytes:
        if api.key != ApiKey.API_VERSIONS:
            raise ProtocolError(f"{api.name} v{version} is not supported")
        _, _, correlation, _ = _HEADER.unpack_from(frame)
        return framed_bytes(api_versions.unsupported_version_response().encode(0), correlation, flexible=False)

    def _encoded(self, api: Api, version: int, response: Response) -> bytes:
        try:
            return response.encode(version)
        except Exception as error:
            self._say_failure(api, version, "its response could not be encoded", error)
            return self._error_response(api, version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)).encode(version)

    def _failure(self, api: Api, version: int, error: Exception) -> Response:
        """What a request that could not be done is answered with."""
        self.meters[api.key].errors += 1
        if isinstance(error, CloseConnection):
            raise error
        if isinstance(error, StoreError):
            error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"The coordination store could not be reached: {error}"
            )
        if isinstance(error, KafkaError):
            return self._error_response(api, version, error)
        self._say_failure(api, version, f"{type(error).__name__}: {error}", error)
        return self._error_response(api, version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _say_failure(self, api: Api, version: int, why: str, error: Exception) -> None:
        self.lines.say(logging.ERROR, "%s failed", why, f"{api.name} v{version}", error)

    def _error_response(self, api: Api, version: int, error: KafkaError) -> Response:
        """A response that says only what went wrong; where the API has no place for that, the connection ends."""
        assert api.response is not None
        if not api.response.has_field("error_code", version):
            raise CloseConnection(f"{api.name} was refused with {error}, which its response cannot say")
        values: dict[str, object] = {"error_code": error.code}
        if api.response.has_field("error_message", version):
            values["error_message"] = error.message
        return api.response(**values)


def _hot_handler(api: Api, guard: Guard | None) -> HotHandler | None:
    if guard is None:
        return api.hot or api.quick
    if api.hot is not None:
        return guard.hot(api, api.hot)
    return None if api.quick is None else guard.quick(api, api.quick)


async def _handle_large(
    api: Api, context: Context, steps: Generator[None, None, Request], cursor: Cursor
) -> Response:
    """Decode in slices, then handle: in parts, where that can be."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            request: Request = end.value
            break
        if context.slices.due():
            cursor.keep()
            await context.slices.give_way()
    response = await _handled_in_parts(api, context, request)
    elements = await elements_of(request, context.slices)
    del request
    await release(elements, context.slices)
    return response


async def _handled_in_parts(api: Api, context: Context, request: Request) -> Response:
    division = DIVISIONS.get(ApiKey(api.key))
    if division is None or not getattr(request, division.asked):
        return await _handled(api, context, request)
    whole: Response | None = None
    for part, goes_on in parts(request, division):
        response = await _handled(api, context, part)
        if whole is None:
            whole = response
        elif getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
            return response
        else:
            join(whole, response, division, goes_on)
        if context.slices.due():
            await context.slices.give_way()
    assert whole is not None
    return whole


async def _handled(api: Api, context: Context, request: Request) -> Response:
    assert api.cold is not None
    work = api.cold(context, request)
    return work if isinstance(work, Response) else await work


async def _encoded_in_slices(response: Response, context: Context) -> bytes:
    out = bytearray()
    for _ in encode_in_steps(response, out, context.version):
        if context.slices.due():
            await context.slices.give_way()
    return bytes(out)
