"""`headrace group`: consumer groups, their offsets and their lag."""

from __future__ import annotations

from headrace.cli.common.lazy import group as noun

_SHOW = "headrace.cli.group.show"
_CHANGE = "headrace.cli.group.change"

group = noun(
    "group",
    "Consumer groups: list, describe, watch lag, move or delete offsets.",
    {
        "list": (f"{_SHOW}:list_command", "List the groups; --lag shows their lag."),
        "describe": (f"{_SHOW}:describe", "Show groups: offsets, lag, members, state."),
        "watch": ("headrace.cli.group.watch:watch", "Watch the lag of groups, live."),
        "config": ("headrace.cli.group.config:config", "Show or change the settings of a group."),
        "seek": (f"{_CHANGE}:seek", "Move the offsets of a group: earliest, latest, an offset, a time."),
        "delete": (f"{_CHANGE}:delete", "Delete groups, or their offsets in some topics."),
    },
)
