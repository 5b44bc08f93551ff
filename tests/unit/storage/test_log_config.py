"""A log's settings by Kafka's names, with Kafka's defaults."""

from __future__ import annotations

from headrace.records.compression import Codec
from headrace.storage.log_config import LogConfig


def test_defaults_are_kafkas() -> None:
    config = LogConfig.from_settings({})
    assert config == LogConfig()
    assert (config.segment_bytes, config.segment_ms, config.index_interval_bytes) == (1 << 30, 604_800_000, 4096)
    assert (config.retention_ms, config.retention_bytes, config.max_message_bytes) == (604_800_000, -1, 1_048_588)
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert (config.deletes, config.compacted, config.append_time, config.codec) == (True, False, False, None)


def test_settings_by_name() -> None:
    config = LogConfig.from_settings(
        {
            "segment.bytes": 5,
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "zstd",
            "compression.zstd.level": 7,
            "follower.replication.throttled.replicas": "*",
        }
    )
    assert config.segment_bytes == 5
    assert config.cleanup_policy == frozenset({"compact", "delete"})
    assert config.append_time
    assert config.codec == Codec.ZSTD
    assert config.compression_level(Codec.ZSTD) == 7
    assert config.compression_level(Codec.SNAPPY) is None
    assert LogConfig.from_settings({"cleanup.policy": ["compact"]}).compacted
    assert LogConfig.from_settings({"compression.type": "uncompressed"}).codec == Codec.NONE
