"""What can go wrong between a client and a cluster. Errors with a Kafka code are `model.errors.KafkaError`."""

from __future__ import annotations

import socket
from enum import StrEnum

from headrace.client.address import Address
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.tls import TlsFault


class Reason(StrEnum):
    """Why a broker could not be talked to, in words."""

    REFUSED = "nothing listens there (connection refused)"
    UNKNOWN_HOST = "the host name is not known"
    NO_ROUTE = "there is no route to that host"
    SILENT = "no answer in time"
    CLOSED = "the connection was closed without an answer"
    HTTP = "an HTTP server answers there, not a Kafka broker"
    TLS = "that port expects TLS, but this client used plain text"
    NO_TLS = "that port does not use TLS, but this client does"
    UNTRUSTED = "its certificate is not accepted"
    TLS_REFUSED = "the TLS connection was refused"
    TLS_CLOSED = "the connection was closed during the TLS handshake"
    NOT_KAFKA = "the server there does not speak Kafka's protocol"
    OTHER = "the connection failed"


class ClientError(Exception):
    """Something between us and the cluster failed."""


class CannotReach(ClientError):
    """No conversation with a broker: which address, and why. `broker_id` when the cluster named that address."""

    def __init__(self, address: Address, reason: Reason, detail: str = "", broker_id: int | None = None) -> None:
        self.address = address
        self.reason = reason
        self.detail = detail
        self.broker_id = broker_id
        super().__init__(f"{address}: {reason.value}" + (f" ({detail})" if detail else ""))


class NoneReachable(ClientError):
    """None of the bootstrap servers could be reached."""

    def __init__(self, failures: list[CannotReach]) -> None:
        assert failures
        self.failures = failures
        super().__init__("; ".join(str(failure) for failure in failures))


class ConnectionLost(ClientError):
    """A connection ended while answers were outstanding: whether the requests took effect is not known."""

    def __init__(self, address: Address) -> None:
        self.address = address
        super().__init__(f"the connection to {address} was lost")


class RequestTimedOut(ClientError):
    """A broker did not answer in time."""

    def __init__(self, address: Address, what: str, seconds: float) -> None:
        self.address = address
        super().__init__(f"{address} did not answer {what} in {seconds:g} s")


Outcome = KafkaError | None
"""How it went for one of several things that were asked for: None is well."""


def connect_failure(address: Address, error: OSError, timeout_s: float, broker_id: int | None) -> CannotReach:
    """Why there is no connection."""
    said = str(error).lower()
    if (failed := tls_failure(error)) is not None:
        reason, detail = failed
    elif isinstance(error, TimeoutError):
        reason, detail = Reason.SILENT, f"{timeout_s:g} s"
    elif isinstance(error, socket.gaierror):
        reason, detail = Reason.UNKNOWN_HOST, error.strerror or ""
    elif isinstance(error, ConnectionRefusedError) or "refused" in said or "111" in said:
        # Several addresses behind one name, each refused, come as one plain OSError.
        reason, detail = Reason.REFUSED, ""
    elif isinstance(error, ConnectionResetError | ConnectionAbortedError):
        # A connection that was made and then closed before it could be used: only a handshake comes in between.
        reason, detail = Reason.TLS_CLOSED, ""
    else:
        reason = Reason.NO_ROUTE if "unreachable" in said else Reason.OTHER
        detail = error.strerror or str(error)
    return CannotReach(address, reason, detail, broker_id)


def tls_failure(error: BaseException | None) -> tuple[Reason, str] | None:
    """Why there is no TLS; None if it is not about that."""
    import ssl  # only needed for a mistake

    if isinstance(error, TlsFault):
        return Reason.OTHER, str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Reason.UNTRUSTED, error.verify_message
    if not isinstance(error, ssl.SSLError):
        return None
    said = error.reason or ""
    if said in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return Reason.NO_TLS, ""
    return Reason.TLS_REFUSED, said.lower().replace("_", " ") or str(error)


def reason_of(error: Exception) -> Reason:
    """Why there was no conversation on a connection, as far as the error tells."""
    if isinstance(error, ConnectionLost):
        return Reason.CLOSED
    return Reason.SILENT if isinstance(error, RequestTimedOut) else Reason.NOT_KAFKA


def kafka_error(code: int, message: str | None = None) -> KafkaError:
    """The error of a response; a code that is newer than our table keeps its number."""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {code}" + (f": {message}" if message else "")
        )
