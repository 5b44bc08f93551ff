"""`headrace perf`: measures how fast a cluster is, from this machine."""

from __future__ import annotations

from headrace.cli.common.lazy import group

perf = group(
    "perf",
    "Benchmark a cluster: write and read throughput, end-to-end latency.",
    {
        "produce": ("headrace.cli.perf.produce:produce", "Write as fast as possible, or at a given rate."),
        "consume": ("headrace.cli.perf.consume:consume", "Read a topic as fast as possible."),
        "e2e": ("headrace.cli.perf.consume:end_to_end", "Time records from producer to consumer."),
    },
)
