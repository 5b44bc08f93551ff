"""`headrace broker`: takes brokers out of a cluster."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_DRAIN = "headrace.cli.broker.drain"

broker = group(
    "broker",
    "Take brokers out of a cluster: drain, undrain, decommission.",
    {
        "drain": (f"{_DRAIN}:drain", "Move leaders, or everything, away from a broker."),
        "undrain": (f"{_DRAIN}:undrain", "Allow partitions on a drained broker again."),
        "decommission": (
            f"{_DRAIN}:decommission",
            "Drain a broker and remove it from the cluster once it has stopped.",
        ),
    },
)
