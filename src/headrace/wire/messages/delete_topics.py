"""DeleteTopics (20): remove topics and their data.

v3 TOPIC_DELETION_DISABLED may appear; v4 flexible; v5 error messages and throttling (KIP-599); v6 by name or by
id.
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import INT16, INT32, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class DeleteTopicState(Struct):
    name: str | None = field(STRING, nullable=0, default=None)
    topic_id: TopicId = field(UUID)


class DeleteTopicsRequest(Request, key=20, versions=range(1, 7), flexible=4):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), since=6, ignorable=False)
    topic_names: list[str] = field(array(STRING), until=5)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, nullable=6)
    topic_id: TopicId = field(UUID, since=6)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=5, nullable=0, default=None)


class DeleteTopicsResponse(Response, key=20, versions=range(1, 7), flexible=4):
    throttle_time_ms: int = field(INT32)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
