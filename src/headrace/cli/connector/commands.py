"""`headrace connector`: other systems into topics, and topics into other systems."""

from __future__ import annotations

from headrace.cli.common.lazy import group

connector = group(
    "connector",
    "Connectors bring other systems into topics, and topics into other systems, each record exactly once.",
    {
        "list": ("headrace.cli.connector.show:list_connectors", "Show the connectors that can be run."),
        "describe": ("headrace.cli.connector.show:describe", "Show what a connector does and its options."),
        "check": ("headrace.cli.connector.run:check", "Check connector files before they run."),
        "run": ("headrace.cli.connector.run:run_connectors", "Run connectors until they are stopped."),
        "status": ("headrace.cli.connector.status:status", "Show the connectors of a cluster and where they are."),
        "remove": (
            "headrace.cli.connector.run:remove",
            "Forget a connector and what it left in the other system.",
        ),
        "init": ("headrace.cli.connector.init:init", "Write the beginning of a connector of your own."),
    },
)
