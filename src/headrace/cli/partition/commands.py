"""`headrace partition`: where replicas are, and which broker leads."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_MOVE = "headrace.cli.partition.move"
_SHOW = "headrace.cli.partition.show"

partition = group(
    "partition",
    "Replica placement: move, balance, status, cancel, elect.",
    {
        "move": (f"{_MOVE}:move", "Move partitions to other brokers, or change their number of replicas."),
        "balance": (f"{_MOVE}:balance_brokers", "Balance replicas and leaders over the brokers."),
        "status": (f"{_SHOW}:status", "Show running moves."),
        "cancel": (f"{_SHOW}:cancel", "Cancel running moves."),
        "elect": (f"{_SHOW}:elect", "Give leadership back to the preferred replicas."),
    },
)
