"""`headrace partition`: where partitions are, and who leads them."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_MOVE = "headrace.cli.partition.move"
_SHOW = "headrace.cli.partition.show"

partition = group(
    "partition",
    "Where partitions are: move, balance, status, cancel, elect.",
    {
        "move": (f"{_MOVE}:move", "Move partitions to other brokers, or change their number of replicas."),
        "balance": (f"{_MOVE}:balance_brokers", "Even out brokers: a new one gets its share."),
        "status": (f"{_SHOW}:status", "Show the moves that are under way."),
        "cancel": (f"{_SHOW}:cancel", "Cancel moves: partitions stay where they were."),
        "elect": (f"{_SHOW}:elect", "Have partitions led by their preferred replicas."),
    },
)
