"""`headrace user`: who can log in with SCRAM."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_CHANGE = "headrace.cli.user.change"

user = group(
    "user",
    "Users who log in with SCRAM: list, add, remove.",
    {
        "list": (f"{_CHANGE}:list_command", "List the users."),
        "add": (f"{_CHANGE}:add", "Add a user, or change the password."),
        "remove": (f"{_CHANGE}:remove", "Remove users."),
    },
)
