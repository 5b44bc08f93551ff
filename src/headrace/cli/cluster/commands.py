"""`headrace cluster`: the brokers and what is true of all of them."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_SHOW = "headrace.cli.cluster.show"

cluster = group(
    "cluster",
    "The cluster: brokers, health and settings.",
    {
        "info": (f"{_SHOW}:info", "Show the brokers and the controller."),
        "health": ("headrace.cli.cluster.health:health", "Say what is wrong; exit code 1 if anything is."),
        "logdirs": (f"{_SHOW}:logdirs", "Show data directories: how full, and what is in them."),
        "config": ("headrace.cli.cluster.config:config", "Show or change the settings of brokers."),
        "check": ("headrace.cli.cluster.check:check", "Check the setup for what will hurt later."),
    },
)
