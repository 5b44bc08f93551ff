"""What the handlers of group APIs share: who asks, and what everybody may do with a group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from headrace.groups.errors import GroupRequest
from headrace.groups.messages import ClientIdentity, GroupReply
from headrace.handlers.context import Context
from headrace.services.groups.answer import Answer
from headrace.services.reply import Pending
from headrace.wire.schema import Response

# Kafka's numbers of ACL operations: read, delete, describe, and the settings of the group. Without ACLs all may.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_REQUESTED = -(1 << 31)

R = TypeVar("R", bound=GroupReply)
Rs = TypeVar("Rs", bound=Response)


class PendingAnswer(Pending, ABC):
    """A body that the coordinator's reply will complete, without a task."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def when_done(self, deliver: Callable[[], None]) -> None:
        super().when_done(deliver)
        self._answer.then(self._replied)

    def _replied(self, reply: GroupReply) -> None:
        """Called by the coordinator, which must not be affected by failures here."""
        self.complete_with(self.body_of, reply)

    @abstractmethod
    def body_of(self, reply: Any) -> bytes: ...


class PendingReply(PendingAnswer, Generic[Rs]):
    """Encoded by the schema, and awaitable for callers without a connection."""

    __slots__ = ("_response_of", "_version")

    def __init__(self, answer: Answer, response_of: Callable[[Any], Rs], version: int) -> None:
        super().__init__(answer)
        self._response_of = response_of
        self._version = version

    def body_of(self, reply: Any) -> bytes:
        return self._response_of(reply).encode(self._version)

    def __await__(self) -> Generator[Any, None, Rs]:
        reply = yield from self._answer.__await__()
        return self._response_of(reply)


def begin(
    ctx: Context, request: GroupRequest, kind: type[R], response_of: Callable[[R], Rs]
) -> Rs | PendingReply[Rs]:
    """Ask the coordinator; the response itself if the answer is there at once, as it is to most heartbeats."""
    reply = ctx.broker.groups.begin(request)
    if type(reply) is Answer:
        return PendingReply(reply, response_of, ctx.version)
    assert isinstance(reply, kind), reply
    return response_of(reply)


def client_of(ctx: Context) -> ClientIdentity:
    """Kafka shows the host as Java does: a name, which we do not look up, then a slash, then the address."""
    return ClientIdentity(ctx.client_id or "", f"/{ctx.client_host}")
