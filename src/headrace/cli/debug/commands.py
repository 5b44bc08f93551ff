"""`headrace debug`: looking into a broker's files."""

from __future__ import annotations

from headrace.cli.common.lazy import group

debug = group(
    "debug",
    "Look into a broker's files. They may belong to Apache Kafka: the formats are the same.",
    {
        "dump-log": (
            "headrace.cli.debug.dump_log:dump_log",
            "Show segments, indexes and snapshots, and what is wrong.",
        )
    },
)
