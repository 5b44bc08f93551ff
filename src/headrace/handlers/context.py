"""What a handler is given: the broker it serves, who asks, and when to let others go first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from headrace.model.errors import ErrorCode
from headrace.security.acl import Operation, Resource

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker

ANONYMOUS = "User:ANONYMOUS"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Right:
    """What Kafka's ACLs allow on a resource. Every registration of an API names the one it needs."""

    operation: Operation
    resource: Resource


anyone: Right | None = None
cluster_describe = Right(Operation.DESCRIBE, Resource.CLUSTER)
cluster_alter = Right(Operation.ALTER, Resource.CLUSTER)
cluster_action = Right(Operation.CLUSTER_ACTION, Resource.CLUSTER)
topic_describe = Right(Operation.DESCRIBE, Resource.TOPIC)
topic_read = Right(Operation.READ, Resource.TOPIC)
topic_write = Right(Operation.WRITE, Resource.TOPIC)
topic_create = Right(Operation.CREATE, Resource.TOPIC)
topic_delete = Right(Operation.DELETE, Resource.TOPIC)
topic_alter = Right(Operation.ALTER, Resource.TOPIC)
configs_describe = Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)
configs_alter = Right(Operation.ALTER_CONFIGS, Resource.CLUSTER)
group_read = Right(Operation.READ, Resource.GROUP)
group_describe = Right(Operation.DESCRIBE, Resource.GROUP)
group_delete = Right(Operation.DELETE, Resource.GROUP)
transactional_id_describe = Right(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID)
transactional_id_write = Right(Operation.WRITE, Resource.TRANSACTIONAL_ID)


def each_once(asked: Iterable[T], name: Callable[[T], Hashable]) -> list[T]:
    """What a request asks for, without repetitions.

    A name of some bytes may be answered with a megabyte: with repetitions, one request could ask for any amount of
    memory.
    """
    found: dict[Hashable, T] = {}
    for one in asked:
        found.setdefault(name(one), one)
    return list(found.values())


class LoginStep(NamedTuple):
    """The answer to a step of a login."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    answer: bytes = b""
    session_ms: int = 0
    """How long it is valid; 0: no limit."""


class SaslConversation(Protocol):
    """The login of one connection."""

    for_ever: bool
    """Whether it is done, and never ends."""

    def handshake(self, mechanism: str) -> tuple[ErrorCode, tuple[str, ...]]:
        """Agree on a mechanism; returns an error and the available mechanisms."""
        ...

    async def authenticate(self, message: bytes) -> LoginStep: ...


class Slices(Protocol):
    """A long request lets others go first every few milliseconds: `if slices.due(): await slices.give_way()`."""

    def due(self) -> bool: ...

    async def give_way(self) -> None: ...


class Undivided:
    """For callers that only a test asks."""

    def due(self) -> bool:
        return False

    async def give_way(self) -> None: ...


UNDIVIDED = Undivided()


@dataclass(frozen=True, slots=True)
class Context:
    """One cold request's surroundings."""

    broker: Broker
    version: int
    client_id: str | None
    principal: str
    client_host: str
    listener: str
    """The name of the listener it came in on: Metadata answers with that listener's addresses."""
    slices: Slices = UNDIVIDED
    login: SaslConversation | None = None
    """How the client of a SASL listener logs in."""

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items of a long loop, with others served between."""
        for item in items:
            if self.slices.due():
                await self.slices.give_way()
            yield item


class Channel(Protocol):
    """A connection as the hot handlers see it."""

    broker: Broker
    principal: str
    client_host: str
    listener: str
