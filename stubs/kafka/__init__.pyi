"""Types of the calls of kafka-python that we use."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kafka.admin import KafkaAdminClient as KafkaAdminClient
from kafka.cluster import ClusterMetadata

class TopicPartition(NamedTuple):
    topic: str
    partition: int

class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int

class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int

class FutureRecordMetadata:
    def get(self, timeout: float | None = ...) -> RecordMetadata: ...
    def succeeded(self) -> bool: ...
    def failed(self) -> bool: ...

class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

class Partitioner(Protocol):
    def partition(self, topic: str, key: bytes | None, cluster: ClusterMetadata) -> int: ...

class KafkaProducer:
    def __init__(
        self,
        *,
        bootstrap_servers: str,
        client_id: str = ...,
        acks: int | str = ...,
        compression_type: str | None = ...,
        enable_idempotence: bool = ...,
        retries: int | float = ...,
        batch_size: int = ...,
        linger_ms: int = ...,
        max_block_ms: int = ...,
        max_request_size: int = ...,
        max_in_flight_requests_per_connection: int = ...,
        request_timeout_ms: int = ...,
        delivery_timeout_ms: float = ...,
        retry_backoff_ms: int = ...,
        reconnect_backoff_ms: int = ...,
        reconnect_backoff_max_ms: int = ...,
        partitioner: Partitioner = ...,
        transactional_id: str | None = ...,
    ) -> None: ...
    def init_transactions(self) -> None: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def abort_transaction(self) -> None: ...
    def send(
        self,
        topic: str,
        value: bytes | None = ...,
        key: bytes | None = ...,
        headers: list[tuple[str, bytes]] | None = ...,
        partition: int | None = ...,
        timestamp_ms: int | None = ...,
    ) -> FutureRecordMetadata: ...
    def flush(self, timeout: float | None = ...) -> None: ...
    def partitions_for(self, topic: str) -> set[int]: ...
    def close(self, timeout: float | None = ...) -> None: ...

class OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str
    leader_epoch: int

class ConsumerRebalanceListener:
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> object: ...
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> object: ...

class KafkaConsumer:
    _coordinator: Any
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str,
        group_id: str | None = ...,
        auto_offset_reset: str = ...,
        enable_auto_commit: bool = ...,
        fetch_max_wait_ms: int = ...,
        max_partition_fetch_bytes: int = ...,
        fetch_max_bytes: int = ...,
        isolation_level: str = ...,
        group_instance_id: str | None = ...,
        session_timeout_ms: int = ...,
        heartbeat_interval_ms: int = ...,
        auto_commit_interval_ms: int = ...,
        metadata_max_age_ms: int = ...,
        retry_backoff_ms: int = ...,
    ) -> None: ...
    def subscribe(
        self,
        topics: Sequence[str] = ...,
        pattern: str | None = ...,
        listener: ConsumerRebalanceListener | None = ...,
    ) -> None: ...
    def assignment(self) -> set[TopicPartition]: ...
    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata] | None = ...) -> None: ...
    def commit_async(self, offsets: dict[TopicPartition, OffsetAndMetadata] | None = ...) -> object: ...
    def committed(self, partition: TopicPartition) -> int | None: ...
    def assign(self, partitions: Sequence[TopicPartition]) -> None: ...
    def topics(self) -> set[str]: ...
    def partitions_for_topic(self, topic: str) -> set[int] | None: ...
    def poll(
        self, timeout_ms: int = ..., max_records: int | None = ...
    ) -> dict[TopicPartition, list[ConsumerRecord]]: ...
    def position(self, partition: TopicPartition, timeout_ms: int | None = ...) -> int: ...
    def highwater(self, partition: TopicPartition) -> int | None: ...
    def pause(self, *partitions: TopicPartition) -> None: ...
    def paused(self) -> set[TopicPartition]: ...
    def resume(self, *partitions: TopicPartition) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def seek_to_beginning(self, *partitions: TopicPartition) -> None: ...
    def seek_to_end(self, *partitions: TopicPartition) -> None: ...
    def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...
    def close(self, autocommit: bool = ..., timeout_ms: int | None = ...) -> None: ...
