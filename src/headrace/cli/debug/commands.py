"""`headrace debug`: inspects a broker's files."""

from __future__ import annotations

from headrace.cli.common.lazy import group

debug = group(
    "debug",
    "Inspect a broker's files. Apache Kafka's files work too: the formats are the same.",
    {
        "dump-log": (
            "headrace.cli.debug.dump_log:dump_log",
            "Show segments, indexes and snapshots, and check them.",
        )
    },
)
