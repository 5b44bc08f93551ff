"""`headrace quota`: who may use how much."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_CHANGE = "headrace.cli.quota.change"

quota = group(
    "quota",
    "Quotas: list, describe, set and delete them.",
    {
        "list": (f"{_CHANGE}:list_command", "List the quotas that are set."),
        "describe": (f"{_CHANGE}:describe", "Show which quotas apply to a client."),
        "set": (f"{_CHANGE}:set_command", "Set quotas of users, client ids and addresses."),
        "delete": (f"{_CHANGE}:delete", "Remove quotas."),
    },
)
