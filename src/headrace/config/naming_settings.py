"""The rows of the table of broker settings that are about names."""

from __future__ import annotations

from headrace.config.naming import pattern_problem
from headrace.config.setting import ConfigType, Importance, Setting, UpdateMode

NAMING: tuple[Setting, ...] = (
    Setting(
        "headrace.topic.name.pattern",
        ConfigType.STRING,
        "",
        Importance.MEDIUM,
        "A regular expression that the whole name of a new topic must match; empty allows every legal name.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        check=pattern_problem,
    ),
    Setting(
        "headrace.group.name.pattern",
        ConfigType.STRING,
        "",
        Importance.MEDIUM,
        "A regular expression that the whole id of a new group must match; empty allows every id.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        check=pattern_problem,
    ),
)
