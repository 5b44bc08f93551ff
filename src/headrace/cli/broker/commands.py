"""`headrace broker`: taking brokers out of a cluster."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_DRAIN = "headrace.cli.broker.drain"

broker = group(
    "broker",
    "Taking brokers out of a cluster: drain, undrain, decommission.",
    {
        "drain": (f"{_DRAIN}:drain", "Move leaders, or everything, away from a broker."),
        "undrain": (f"{_DRAIN}:undrain", "Let a drained broker have partitions again."),
        "decommission": (f"{_DRAIN}:decommission", "Drain a broker, and forget it once it has stopped."),
    },
)
