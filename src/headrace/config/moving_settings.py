"""The rows of the table of broker settings that are about who leads, and about moving partitions."""

from __future__ import annotations

from headrace.config.setting import LONG_MAX, ConfigType, Importance, Setting, UpdateMode

MOVING: tuple[Setting, ...] = (
    Setting(
        "cordoned.log.dirs",
        ConfigType.LIST,
        "",
        Importance.MEDIUM,
        "Data directories that get no new replicas; * means all of them, so that the broker gets none.",
        update_mode=UpdateMode.PER_BROKER,
    ),
    Setting(
        "controlled.shutdown.enable",
        ConfigType.BOOLEAN,
        "true",
        Importance.MEDIUM,
        "Whether a broker that stops hands its partitions over to others first.",
    ),
    Setting(
        "auto.leader.rebalance.enable",
        ConfigType.BOOLEAN,
        "true",
        Importance.HIGH,
        "Whether partitions go back to their preferred leader, the first replica, once it is in sync again.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        ConfigType.LONG,
        "300",
        Importance.HIGH,
        "How often the controller gives leadership back to preferred leaders.",
        1,
    ),
    Setting(
        "leader.replication.throttled.rate",
        ConfigType.LONG,
        str(LONG_MAX),
        Importance.MEDIUM,
        "Bytes per second that this broker sends to throttled replicas which are not in sync.",
        1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    Setting(
        "follower.replication.throttled.rate",
        ConfigType.LONG,
        str(LONG_MAX),
        Importance.MEDIUM,
        "Bytes per second that this broker fetches for its throttled replicas which are not in sync.",
        1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
)
