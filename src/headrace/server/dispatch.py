"""From a frame to the handler of its API, and from what that gives back, or raises, to a response.

The one place where a peer's mistake becomes an error code on the wire: handlers raise `KafkaError`. An unknown
API or version closes the connection, as Kafka does, but for ApiVersions, which is how a client learns what we
speak.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable

from headrace.handlers import api_versions
from headrace.handlers.broker import Broker
from headrace.handlers.context import Context
from headrace.handlers.registry import APIS, Api
from headrace.handlers.reply import CloseConnection, Pending, Piece
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.server.connection import Connection
from headrace.server.framing import FramedPending, framed, framed_bytes
from headrace.server.request_memory import RequestMemory
from headrace.wire.api_keys import ApiKey
from headrace.wire.header import parse_request_header
from headrace.wire.schema import Response
from headrace.wire.tags import skip_tags

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">hhih")


class Dispatcher:
    def __init__(self, broker: Broker, max_request_bytes: int, max_queued_bytes: int = -1) -> None:
        self.broker = broker
        self.max_request_bytes = max_request_bytes
        self.memory = RequestMemory(max_queued_bytes)
        self.requests = dict.fromkeys(APIS, 0)
        """How many requests of each API came in."""
        self._hot = {key: api for key, api in APIS.items() if api.hot is not None}
        self._running: set[asyncio.Task[None]] = set()

    def dispatch(self, connection: Connection, frame: memoryview) -> bytes | list[Piece] | FramedPending | None:
        try:
            key, version, correlation, client_id_size = _HEADER.unpack_from(frame)
        except struct.error:
            raise ProtocolError("a request header is cut off") from None
        api = self._hot.get(key)
        if api is None:
            return self._dispatch_cold(connection, frame, key, version)
        if version not in api.versions:
            raise ProtocolError(f"{api.name} v{version} is not supported")
        self.requests[key] += 1
        flexible = version >= api.flexible_since
        position = 10 + client_id_size if client_id_size > 0 else 10
        if flexible:
            try:
                position = skip_tags(frame, position) if frame[position] else position + 1
            except IndexError:
                raise ProtocolError("a request header is cut off") from None
        reply = api.hot(connection, version, frame, position)  # type: ignore[misc]  # only hot ones are in there
        if type(reply) is bytes:
            return framed_bytes(reply, correlation, flexible)
        if type(reply) is list:
            return framed(reply, correlation, flexible)
        return None if reply is None else FramedPending(reply, correlation, flexible, exclusive=False)

    def _dispatch_cold(
        self, connection: Connection, frame: memoryview, key: int, version: int
    ) -> bytes | FramedPending:
        api = APIS.get(key)
        if api is None or api.request is None:
            raise ProtocolError(f"API {key} is not known")
        self.requests[key] += 1
        if version not in api.versions:
            return self._unsupported_version(frame, api, version)
        header = parse_request_header(frame)
        request = api.request.decode(frame, version, header.body)
        context = Context(
            broker=self.broker,
            version=version,
            client_id=header.client_id,
            principal=connection.principal,
            client_host=connection.client_host,
            listener=connection.listener,
        )
        assert api.cold is not None
        flexible = version >= api.flexible_since and key != ApiKey.API_VERSIONS
        response: Response | None
        try:
            work = api.cold(context, request)
            if not isinstance(work, Response):
                return FramedPending(
                    self._answer_later(api, version, work), header.correlation_id, flexible, exclusive=True
                )
            response = work
        except Exception as error:
            response = _failure(api, version, error)
        if response is None:
            raise CloseConnection("a request could not be answered")
        return framed_bytes(response.encode(version), header.correlation_id, flexible)

    def _answer_later(self, api: Api, version: int, work: Awaitable[Response]) -> Pending:
        pending = Pending()
        task = asyncio.get_running_loop().create_task(self._answer(api, version, work, pending))
        # The loop itself keeps only weak references to tasks.
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return pending

    async def drain(self, seconds: float) -> None:
        """Let the requests that are being handled finish, for so long at most."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def _answer(self, api: Api, version: int, work: Awaitable[Response], pending: Pending) -> None:
        response: Response | None
        try:
            response = await work
        except Exception as error:
            response = _failure(api, version, error)
        if pending.done:
            return  # the connection is gone
        if response is None:
            pending.hang_up()
        else:
            pending.complete(response.encode(version))

    def _unsupported_version(self, frame: memoryview, api: Api, version: int) -> bytes:
        if api.key != ApiKey.API_VERSIONS:
            raise ProtocolError(f"{api.name} v{version} is not supported")
        _, _, correlation, _ = _HEADER.unpack_from(frame)
        return framed_bytes(api_versions.unsupported_version_response().encode(0), correlation, flexible=False)


def _failure(api: Api, version: int, error: Exception) -> Response | None:
    """What a request that could not be done is answered with."""
    if isinstance(error, KafkaError):
        return _error_response(api, error)
    log.error("%s v%d failed", api.name, version, exc_info=error)
    return _error_response(api, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _error_response(api: Api, error: KafkaError) -> Response | None:
    """A response that says only what went wrong; None where the API has no place for that."""
    assert api.response is not None
    fields = api.response.field_names()
    if "error_code" not in fields:
        log.warning("%s was refused with %s, which its response cannot say", api.name, error)
        return None
    values: dict[str, object] = {"error_code": error.code}
    if "error_message" in fields:
        values["error_message"] = error.message
    return api.response(**values)
