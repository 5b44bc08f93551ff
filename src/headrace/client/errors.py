"""What can go wrong between a client and a cluster. Errors with a Kafka code are `model.errors.KafkaError`."""

from __future__ import annotations

from enum import StrEnum

from headrace.client.address import Address
from headrace.model.errors import ErrorCode, KafkaError


class Reason(StrEnum):
    """Why a broker could not be talked to, in words."""

    REFUSED = "nothing listens there (connection refused)"
    UNKNOWN_HOST = "the host name is not known"
    NO_ROUTE = "there is no way to that host"
    SILENT = "no answer in time"
    CLOSED = "the connection was closed without an answer"
    HTTP = "an HTTP server answers there, not a Kafka broker"
    TLS = "that port speaks TLS, and this client spoke plain text"
    NOT_KAFKA = "what answers there does not speak Kafka's protocol"
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


def kafka_error(code: int, message: str | None = None) -> KafkaError:
    """The error of a response; a code that is newer than our table keeps its number."""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {code}" + (f": {message}" if message else "")
        )
