"""`headrace perf`: how fast a cluster is, seen from here."""

from __future__ import annotations

from headrace.cli.common.lazy import group

perf = group(
    "perf",
    "Measure a cluster: writing, reading, and the way of a record from one end to the other.",
    {
        "produce": ("headrace.cli.perf.produce:produce", "Write as fast as it goes, or at a rate."),
        "consume": ("headrace.cli.perf.consume:consume", "Read what a topic holds as fast as it goes."),
        "e2e": ("headrace.cli.perf.consume:end_to_end", "Time records from producer to consumer."),
    },
)
