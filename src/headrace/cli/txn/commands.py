"""`headrace txn`: transactions, and what to do about those that stay open."""

from __future__ import annotations

from headrace.cli.common.lazy import group as noun

_SHOW = "headrace.cli.txn.show"
_CHANGE = "headrace.cli.txn.change"

txn = noun(
    "txn",
    "Transactions: list, describe, and end prepared or hanging ones.",
    {
        "list": (f"{_SHOW}:list_command", "List the transactional ids and their states."),
        "describe": (f"{_SHOW}:describe", "Show transactions: state, producer, age, partitions."),
        "producers": (f"{_SHOW}:producers", "Show the producers known to a partition."),
        "commit": (f"{_CHANGE}:commit", "Commit an open transaction by its transactional id."),
        "abort": (f"{_CHANGE}:abort", "Abort an open or hanging transaction."),
        "find-hanging": (f"{_SHOW}:find_hanging", "Find hanging transactions."),
    },
)
