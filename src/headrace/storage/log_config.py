"""The settings of one log: a topic's own where it has them, the broker's defaults elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.env import Rng
from headrace.records.compression import CODEC_NAMES, Codec

NEVER_MS = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1000
UNLIMITED = -1
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Each field is the topic setting of the same name with dots, with Kafka's default."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = NEVER_MS
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_insync_replicas: int = 1
    flush_messages: int = NEVER_MS
    flush_ms: int = NEVER_MS
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    headrace_record_validation_enable: bool = False
    looks_into_records: bool = field(init=False)
    """Whether every record of every batch must be looked at: see `record_checks`."""
    as_sent: bool = field(init=False)
    """Whether batches are stored just as clients send them: nothing to stamp, to recompress or to look into."""

    def __post_init__(self) -> None:
        oldest_counts = self.message_timestamp_before_max_ms != NEVER_MS and not self.append_time
        looks = oldest_counts or self.compacted or self.headrace_record_validation_enable
        object.__setattr__(self, "looks_into_records", looks)
        plain = self.message_timestamp_type == CREATE_TIME and self.compression_type == "producer"
        object.__setattr__(self, "as_sent", plain and not looks)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> LogConfig:
        """From parsed values by Kafka's names; names that are not a log's are left to others."""
        known = {spec.name.replace("_", "."): spec.name for spec in fields(cls) if spec.init}
        values = {known[name]: value for name, value in settings.items() if name in known}
        if "cleanup_policy" in values:
            values["cleanup_policy"] = _policies(values["cleanup_policy"])
        return cls(**values)

    @property
    def append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    def jittered_roll_ms(self, rng: Rng) -> int:
        """The age at which a segment is closed, a random bit before its time. What is active is not compacted."""
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms
        return roll_ms - (rng.randrange(min(self.segment_jitter_ms, roll_ms)) if self.segment_jitter_ms > 0 else 0)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def codec(self) -> Codec | None:
        """The codec that batches must be stored in; None to keep the producer's."""
        return CODEC_NAMES.get(self.compression_type)

    def compression_level(self, codec: int) -> int | None:
        levels = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(Codec(codec))


def _policies(value: str | frozenset[str] | list[str] | tuple[str, ...]) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else value
    return frozenset(name.strip() for name in names if name.strip())
