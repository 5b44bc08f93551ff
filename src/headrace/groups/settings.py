"""The broker's settings that the group state machines obey, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.groups.assignors import DEFAULT_ASSIGNORS

NO_LIMIT = 2**31 - 1
WEEK_MS = 7 * 24 * 60 * 60 * 1000


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: which way a living group may change its protocol."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = NO_LIMIT
    """group.max.size"""
    new_member_join_timeout_ms: int = 300_000
    """How long a member that joins for the first time may wait for the rebalance; no setting in Kafka."""
    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms"""
    consumer_heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms"""
    consumer_assignment_interval_ms: int = 1_000
    """group.consumer.assignment.interval.ms (KIP-1263)"""
    consumer_max_size: int = NO_LIMIT
    """group.consumer.max.size"""
    consumer_assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """group.consumer.assignors: the first is the default."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """group.consumer.migration.policy"""
    offset_metadata_max_bytes: int = 4096
    """offset.metadata.max.bytes"""
    offsets_retention_ms: int = WEEK_MS
    """offsets.retention.minutes"""
