"""`headrace cluster`: the brokers, their health and their settings."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_SHOW = "headrace.cli.cluster.show"

cluster = group(
    "cluster",
    "The cluster: brokers, health and settings.",
    {
        "info": (f"{_SHOW}:info", "Show the brokers and the controller."),
        "health": ("headrace.cli.cluster.health:health", "Report problems; exit code 1 if there are any."),
        "logdirs": (f"{_SHOW}:logdirs", "Show data directories: disk usage and partitions."),
        "config": ("headrace.cli.cluster.config:config", "Show or change the settings of brokers."),
        "check": ("headrace.cli.cluster.check:check", "Check the setup for risks."),
    },
)
