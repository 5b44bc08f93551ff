from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from kafka import TopicPartition

class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4

class AlterConfigOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3

class OffsetSpec(IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3

class OffsetTimestamp(int): ...

class ConfigResource:
    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str,
        configs: Mapping[str, Any] | Sequence[str] | None = ...,
    ) -> None: ...

class KafkaAdminClient:
    def __init__(self, *, bootstrap_servers: str, request_timeout_ms: int = ...) -> None: ...
    def close(self) -> None: ...
    def list_topics(self) -> list[str]: ...
    def describe_topics(self, topics: Sequence[str] | None = ...) -> list[dict[str, Any]]: ...
    def create_topics(
        self,
        new_topics: Mapping[str, Mapping[str, Any]] | Sequence[str],
        timeout_ms: int | None = ...,
        validate_only: bool = ...,
        raise_errors: bool = ...,
    ) -> Any: ...
    def delete_topics(self, topics: Sequence[str], timeout_ms: int | None = ..., raise_errors: bool = ...) -> Any: ...
    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | Mapping[str, Any]],
        timeout_ms: int | None = ...,
        validate_only: bool = ...,
        raise_errors: bool = ...,
    ) -> Any: ...
    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], timeout_ms: int | None = ...
    ) -> dict[TopicPartition, dict[str, Any]]: ...
    def describe_configs(
        self, config_resources: Sequence[ConfigResource], include_synonyms: bool = ..., config_filter: str = ...
    ) -> dict[str, dict[str, dict[str, Any]]]: ...
    def alter_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = ...,
        raise_on_unknown: bool = ...,
        incremental: bool | None = ...,
    ) -> dict[str, dict[str, Any]]: ...
    def reset_configs(self, config_resources: Sequence[ConfigResource]) -> dict[str, dict[str, Any]]: ...
    def describe_cluster(self) -> dict[str, Any]: ...
    def describe_log_dirs(
        self, topic_partitions: Mapping[str, Sequence[int]] | Sequence[str] | None = ...
    ) -> list[dict[str, Any]]: ...
    def describe_topic_partitions(
        self, topics: Sequence[str], response_partition_limit: int = ..., cursor: Mapping[str, Any] | None = ...
    ) -> dict[str, Any]: ...
    def list_partition_offsets(
        self, topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int]
    ) -> dict[TopicPartition, Any]: ...
    def describe_producers(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Any]: ...
    def api_versions(self) -> dict[Any, tuple[int, int]]: ...
