"""`headrace sink`: exactly-once sinks of Spark, and what they leave open."""

from __future__ import annotations

from headrace.cli.common.lazy import group as noun

_SINKS = "headrace.cli.sink.sinks"

sink = noun(
    "sink",
    "Exactly-once sinks of Spark: list them, end their open transactions.",
    {
        "list": (f"{_SINKS}:list_sinks", "List the sinks: their last batch, and open transactions."),
        "commit": (f"{_SINKS}:commit", "Commit the decided batch of a sink, abort everything else."),
        "abort": (f"{_SINKS}:abort", "Abort the open transactions of a sink."),
    },
)
