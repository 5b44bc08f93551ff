"""`headrace txn`: transactions, and what to do about those that stay open."""

from __future__ import annotations

from headrace.cli.common.lazy import group as noun

_SHOW = "headrace.cli.txn.show"
_CHANGE = "headrace.cli.txn.change"

txn = noun(
    "txn",
    "Transactions: look at them, end those that were prepared or forgotten.",
    {
        "list": (f"{_SHOW}:list_command", "List the transactional ids and their states."),
        "describe": (f"{_SHOW}:describe", "Show transactions: state, producer, age, partitions."),
        "producers": (f"{_SHOW}:producers", "Show the producers that a partition remembers."),
        "commit": (f"{_CHANGE}:commit", "Commit a transaction that is open, by its transactional id."),
        "abort": (f"{_CHANGE}:abort", "Abort a transaction that is open, by its id or where it hangs."),
        "find-hanging": (f"{_SHOW}:find_hanging", "Find transactions in partitions that no coordinator will end."),
    },
)
