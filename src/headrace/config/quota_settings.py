"""The broker settings of quotas: how rates are averaged, and how quickly connections may be opened."""

from __future__ import annotations

from headrace.config.setting import INT_MAX, ConfigType, Importance, Setting, UpdateMode

CONNECTION_RATE = "max.connection.creation.rate"

_LISTENER_PREFIX = "listener.name."


def is_listener_rate(name: str) -> bool:
    return name.startswith(_LISTENER_PREFIX) and name.endswith(f".{CONNECTION_RATE}")


def listener_rate(listener: str) -> str:
    """The name of the setting for one listener."""
    return f"{_LISTENER_PREFIX}{listener.lower()}.{CONNECTION_RATE}"


QUOTAS: tuple[Setting, ...] = (
    Setting(
        "quota.window.num",
        ConfigType.INT,
        "2",
        Importance.LOW,
        "Number of windows that a client's rate is averaged over; a burst may use what all of them but one "
        "allow. Kafka's default is 11.",
        minimum=1,
    ),
    Setting(
        "quota.window.size.seconds",
        ConfigType.INT,
        "1",
        Importance.LOW,
        "How long such a window is.",
        minimum=1,
    ),
    Setting(
        "controller.quota.window.num",
        ConfigType.INT,
        "11",
        Importance.LOW,
        "How many windows' worth of topic changes a client can save up.",
        minimum=1,
    ),
    Setting(
        "controller.quota.window.size.seconds",
        ConfigType.INT,
        "1",
        Importance.LOW,
        "How long such a window is.",
        minimum=1,
    ),
    Setting(
        CONNECTION_RATE,
        ConfigType.INT,
        str(INT_MAX),
        Importance.MEDIUM,
        "Maximum number of new connections per second; others wait. The prefix listener.name.NAME. is "
        "for one listener.",
        minimum=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
)
