"""What names a topic and a partition, and which names are legal."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple, NewType

from headrace.model.errors import ErrorCode, KafkaError

TopicId = NewType("TopicId", bytes)
"""Sixteen bytes, as on the wire. Bytes rather than UUID: Fetch looks topics up by it."""

NO_TOPIC_ID = TopicId(bytes(16))

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
"""The broker's internal topics: clients cannot write to them."""
SINKS_TOPIC = "__headrace_sinks"
"""What exactly-once sinks of Spark have decided; they write it themselves."""
HIDDEN_TOPICS = INTERNAL_TOPICS | {SINKS_TOPIC}
"""Reported to clients as internal: tools and patterns skip them."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_id_text(topic_id: TopicId) -> str:
    """The form Kafka prints and stores: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic_id(text: str) -> TopicId:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"not a topic id: {text!r}")
    return TopicId(raw)


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that Kafka would refuse."""
    problem = _name_problem(name)
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name: {problem}.")


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"'{name}' means a directory"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"it has {len(name)} characters, more than the limit of {MAX_TOPIC_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' has a character other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Topics that differ only in '.' and '_' collide in metric names; Kafka refuses the second."""
    return name.replace(".", "_")
