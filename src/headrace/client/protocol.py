"""Kafka's protocol as a client speaks it on one connection, without I/O: bytes in, bytes out, nothing waits here.

    request   -> a ticket and the frame to send        post -> the frame of a request without an answer
    writable  -> where received bytes go               received -> the frames that are complete, with their tickets
    decode    -> the answer as a message               handshake -> what is said before the first request

Two kinds of connection drive it: `client.connection` on an event loop, `spark.client.connection` with a blocking
socket. They differ only in how they wait. What TLS or SASL add lies below `received` and inside `handshake`.

A broker answers the requests of a connection in their order; an answer out of order is a `ProtocolError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from headrace.client.address import Address
from headrace.client.errors import ConnectionLost, RequestTimedOut, kafka_error
from headrace.client.framing import LENGTH, FrameReader
from headrace.client.login import ClientLogin
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.security.scram import AuthenticationFailed
from headrace.wire.api_keys import ApiKey
from headrace.wire.header import parse_response_header, request_header
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

NO_VERSION_LIMIT = 1 << 15


class Ticket(NamedTuple):
    """A request that was made and not yet answered."""

    correlation_id: int
    message: type[Request]
    version: int
    timeout_s: float
    """How long its answer is waited for, once somebody waits."""


class AnswerFrame(NamedTuple):
    ticket: Ticket
    frame: memoryview


Outgoing = tuple[Ticket, bytearray]
Handshake = Generator[Outgoing, memoryview, None]
"""Yields what is to be sent, and takes the frame that answers it."""


class ClientProtocol:
    __slots__ = (
        "_client_id",
        "_frames",
        "_last_correlation_id",
        "_new_frame",
        "_outstanding",
        "address",
        "session_ms",
        "versions",
    )

    def __init__(
        self, address: Address, client_id: str, frames: FrameReader, new_frame: type[bytearray] = bytearray
    ) -> None:
        self.address = address
        self.versions: Mapping[int, range] = {}
        self.session_ms = 0
        """How long the login is valid; 0: no limit."""
        """What the broker said it has: API key -> versions."""
        self._client_id = client_id
        self._frames = frames
        self._new_frame = new_frame
        self._last_correlation_id = 0
        self._outstanding: deque[Ticket] = deque()

    @property
    def first_bytes(self) -> bytes:
        return self._frames.head

    @property
    def outstanding(self) -> int:
        """Requests that were made and have no answer yet."""
        return len(self._outstanding)

    def is_next(self, ticket: Ticket) -> bool:
        """Whether the next answer is to this request."""
        return bool(self._outstanding) and self._outstanding[0] is ticket

    # --- requests

    def version_for(self, message: type[Request], highest: int = NO_VERSION_LIMIT) -> int:
        """The highest version of a request that both sides have."""
        theirs = self.versions.get(message.api_key, range(0))
        version = min(theirs.stop - 1, message.versions.stop - 1, highest)
        if version < max(theirs.start, message.versions.start):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} has no version of {_name(message)} that this client speaks",
            )
        return version

    def request(self, message: Request, version: int, timeout_s: float) -> Outgoing:
        """The frame of a request, whose answer is expected from now on."""
        frame = self.post(message, version)
        ticket = Ticket(self._last_correlation_id, type(message), version, timeout_s)
        self._outstanding.append(ticket)
        return ticket, frame

    def post(self, message: Request, version: int) -> bytearray:
        """The frame of a request that is not answered (Produce with acks=0)."""
        self._last_correlation_id += 1
        out = self._new_frame(LENGTH.size)
        out += request_header(message.api_key, version, self._last_correlation_id, self._client_id)
        message.encode_into(out, version)
        LENGTH.pack_into(out, 0, len(out) - LENGTH.size)
        return out

    # --- answers

    def writable(self) -> memoryview:
        """Where the socket puts what comes next."""
        return self._frames.writable()

    def received(self, count: int) -> list[AnswerFrame]:
        """The answers that `count` more bytes have completed. A frame stays valid for as long as it is held."""
        return [self._answer(frame) for frame in self._frames.received(count)]

    def _answer(self, frame: memoryview) -> AnswerFrame:
        correlation_id = LENGTH.unpack_from(frame)[0] if len(frame) >= LENGTH.size else None
        if not self._outstanding or correlation_id != self._outstanding[0].correlation_id:
            expected = self._outstanding[0].correlation_id if self._outstanding else "none"
            raise ProtocolError(f"{self.address} answered request {correlation_id}, not {expected}")
        return AnswerFrame(self._outstanding.popleft(), frame)

    def decode(self, ticket: Ticket, frame: memoryview, answer: type[R]) -> R:
        _, position = parse_response_header(frame, ticket.message.api_key, ticket.version)
        return answer.decode(frame, ticket.version, position)

    # --- the beginning

    def handshake(self, timeout_s: float) -> Handshake:
        """Asks what the broker has, in the newest version it may know; an old one answers in v0 (KIP-511)."""
        message = ApiVersionsRequest(client_software_name="headrace", client_software_version="0")
        newest = ApiVersionsRequest.versions.stop - 1
        ticket, out = self.request(message, newest, timeout_s)
        frame = yield ticket, out
        _, position = parse_response_header(frame, ApiKey.API_VERSIONS, newest)
        if int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            ticket, out = self.request(message, 0, timeout_s)
            frame = yield ticket, out
        _, position = parse_response_header(frame, ApiKey.API_VERSIONS, ticket.version)
        self.versions = _versions_in(bytes(frame[position:]), ticket.version)

    def log_in(self, login: ClientLogin, timeout_s: float) -> Handshake:
        """Says who we are (KIP-152); SASL_AUTHENTICATION_FAILED if the broker does not believe it."""
        ticket, out = self.request(SaslHandshakeRequest(mechanism=login.mechanism), 1, timeout_s)
        agreed = self.decode(ticket, (yield ticket, out), SaslHandshakeResponse)
        if agreed.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(agreed.mechanisms)
            raise kafka_error(agreed.error_code, f"The broker does not offer {login.mechanism}, only {offered}.")
        if agreed.error_code:
            raise kafka_error(agreed.error_code, "This listener does not use SASL: remove SASL from the settings.")
        conversation = login.begin()
        message = next(conversation)
        try:
            while True:
                request = SaslAuthenticateRequest(auth_bytes=message)
                ticket, out = self.request(request, self.version_for(SaslAuthenticateRequest), timeout_s)
                answer = self.decode(ticket, (yield ticket, out), SaslAuthenticateResponse)
                if answer.error_code:
                    raise kafka_error(answer.error_code, answer.error_message)
                self.session_ms = answer.session_lifetime_ms
                message = conversation.send(answer.auth_bytes)
        except StopIteration:
            return
        except AuthenticationFailed as error:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"The broker cannot be trusted: {error}."
            ) from None

    # --- failures

    def lost(self) -> ConnectionLost:
        return ConnectionLost(self.address)

    def timed_out(self, ticket: Ticket) -> RequestTimedOut:
        return RequestTimedOut(self.address, _name(ticket.message), ticket.timeout_s)


def next_step(handshake: Handshake, frame: memoryview | None = None) -> Outgoing | None:
    """What is to be sent next, given the answer to what was sent before; None: it is done."""
    try:
        return next(handshake) if frame is None else handshake.send(frame)
    except StopIteration:
        return None


@lru_cache(maxsize=8)
def _versions_in(body: bytes, version: int) -> Mapping[int, range]:
    """Every connection to a cluster begins with the same answer."""
    response = ApiVersionsResponse.decode(body, version)
    if response.error_code:
        raise kafka_error(response.error_code, "the broker refused ApiVersions")
    return {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys}


def _name(message: type[Request]) -> str:
    return message.__name__.removesuffix("Request")
