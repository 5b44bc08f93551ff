"""The rights of one request's principal: what rules get, and what they return.

A rule looks at a decoded request before its handler does. It removes what the principal may not do, and adds the
errors for that to the handler's response; or it answers by itself, and the handler is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId
from headrace.security.acl import Operation, Resource
from headrace.security.authorizer import Rights
from headrace.wire.schema import Response

T = TypeVar("T")
Completion = Callable[[Any], None]
"""Adds the results for what was removed from the request to the handler's response."""
Ruling = Response | Completion | None
Rule = Callable[["Asking", Any], Ruling]

NOT_THIS_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOT_THIS_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NOT_THIS_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NOT_ON_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

Denied = Callable[[Rights, Operation, Resource, str], None]


class Asking:
    __slots__ = ("_denied", "_image", "makes_topics", "rights", "version")

    def __init__(
        self,
        rights: Rights,
        image: Callable[[], MetadataImage],
        version: int,
        denied: Denied,
        *,
        makes_topics: bool,
    ) -> None:
        """`denied` is called for every refusal. `makes_topics`: whether a request for a topic may create it."""
        self.makes_topics = makes_topics
        self.rights = rights
        self._image = image
        self.version = version
        self._denied = denied

    @property
    def image(self) -> MetadataImage:
        """The current image: a response may name topics that were created while the request waited."""
        return self._image()

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        allowed = self.rights.may(operation, resource, name)
        if not allowed:
            self._denied(self.rights, operation, resource, name)
        return allowed

    def topic(self, operation: Operation, name: str) -> bool:
        return self.may(operation, Resource.TOPIC, name)

    def group(self, operation: Operation, name: str) -> bool:
        return self.may(operation, Resource.GROUP, name)

    def transaction(self, operation: Operation, name: str) -> bool:
        return self.may(operation, Resource.TRANSACTIONAL_ID, name)

    def cluster(self, operation: Operation) -> bool:
        return self.may(operation, Resource.CLUSTER, "kafka-cluster")

    def require_cluster(self, operation: Operation) -> None:
        if not self.cluster(operation):
            raise refusal(NOT_ON_CLUSTER)

    def sees(self, name: str) -> bool:
        """Whether a list may contain the topic: lists of everything just omit what is not allowed."""
        return self.rights.may(Operation.DESCRIBE, Resource.TOPIC, name)

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self.image.topics_by_id.get(TopicId(topic_id))
        return None if topic is None else topic.name

    def topic_or_id(self, operation: Operation, name: str | None, topic_id: TopicId) -> bool:
        """Check the topic by name or by id. An unknown id is left to the handler, which reports it."""
        if topic_id != NO_TOPIC_ID:
            name = self.name_of(topic_id)
        return name is None or self.topic(operation, name)

    def operations(self, resource: Resource, name: str, bits: int) -> int:
        """The allowed ones among the operations in `bits`."""
        possible = [operation for operation in Operation if bits >> operation & 1]
        return sum(1 << operation for operation in possible if self.rights.may(operation, resource, name))


def refusal(code: ErrorCode) -> KafkaError:
    return KafkaError(code, MESSAGES[code])


MESSAGES = {
    NOT_THIS_TOPIC: "Not authorized to access this topic.",
    NOT_THIS_GROUP: "Not authorized to access this group.",
    NOT_THIS_TRANSACTION: "Not authorized to use this transactional id.",
    NOT_ON_CLUSTER: "Not authorized to do this on the cluster.",
}


def completed(left: object, complete: Completion, response: type[Response]) -> Ruling:
    """The ruling for the rest of a request. The handler of an empty one is not called: it might create
    something."""
    if left:
        return complete
    answer = response()
    complete(answer)
    return answer


def split(items: Iterable[T], allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The allowed items, and the others."""
    yes: list[T] = []
    no: list[T] = []
    for item in items:
        (yes if allowed(item) else no).append(item)
    return yes, no
