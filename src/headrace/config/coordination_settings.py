"""The broker settings of coordination: how long a broker's session lives without renewal."""

from __future__ import annotations

from headrace.config.setting import INT_MAX, ConfigType, Importance, Setting

MEDIUM = Importance.MEDIUM
INT = ConfigType.INT

COORDINATION: tuple[Setting, ...] = (
    Setting(
        "broker.session.timeout.ms",
        INT,
        "6000",
        MEDIUM,
        "How long a broker stays part of the cluster without renewing its lease; a dead process on the same "
        "machine is seen at once. Kafka's default is 9000.",
        500,
        INT_MAX,
    ),
    Setting(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        MEDIUM,
        "How often a broker renews its lease; never less often than three times in a session's timeout.",
        50,
    ),
)
