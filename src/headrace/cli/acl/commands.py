"""`headrace acl`: who may do what."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_CHANGE = "headrace.cli.acl.change"

acl = group(
    "acl",
    "Access rules: list, add and remove them.",
    {
        "list": (f"{_CHANGE}:list_command", "List the access rules."),
        "add": (f"{_CHANGE}:add", "Allow or deny operations on resources."),
        "remove": (f"{_CHANGE}:remove", "Remove the access rules that match."),
    },
)
