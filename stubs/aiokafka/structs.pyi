from typing import NamedTuple

class TopicPartition(NamedTuple):
    topic: str
    partition: int

class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None

class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int | None

class ConsumerRecord:
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
