"""`headrace connector`: copies other systems into topics, and topics into other systems."""

from __future__ import annotations

from headrace.cli.common.lazy import group

connector = group(
    "connector",
    "Connectors copy other systems into topics, and topics into other systems, each record exactly once.",
    {
        "list": ("headrace.cli.connector.show:list_connectors", "Show the connectors that can be run."),
        "describe": ("headrace.cli.connector.show:describe", "Show what a connector does and its options."),
        "check": ("headrace.cli.connector.run:check", "Check connector files before they run."),
        "run": ("headrace.cli.connector.run:run_connectors", "Run connectors until they are stopped."),
        "status": (
            "headrace.cli.connector.status:status",
            "Show the connectors of a cluster and their positions.",
        ),
        "remove": (
            "headrace.cli.connector.run:remove",
            "Remove a connector's state, here and in the other system.",
        ),
        "init": ("headrace.cli.connector.init:init", "Create the skeleton of your own connector."),
    },
)
