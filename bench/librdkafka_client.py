"""A client on librdkafka, run as `python -m bench.librdkafka_client '{"mode": "produce", ...}'`; prints JSON.

Each tells how long it took and how much of a core its busiest thread had meanwhile: near 1, that is the limit.

produce  `records` records of `size` bytes as fast as they go, over all partitions
sync     one record at a time, each acknowledged before the next: round trips
transactions  `records` records in transactions of `batch`, one after the other; a latency is that of a transaction
consume  `records` records from the beginning of `partitions` partitions, assigned by hand (no group)
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

FLUSH_TIMEOUT_S = 60
CONSUME_TIMEOUT_S = 60


def main() -> int:
    options: dict[str, Any] = json.loads(sys.argv[1])
    modes = {
        "produce": produce,
        "sync": produce_one_by_one,
        "transactions": produce_in_transactions,
        "consume": consume,
    }
    print(json.dumps(modes[options["mode"]](options)))
    return 0


def _producer(options: dict[str, Any]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "linger.ms": options.get("linger_ms", 5),
            "batch.size": options.get("batch_size", 1_000_000),
            "acks": options.get("acks", "all"),
            "enable.idempotence": bool(options.get("idempotent", 0)),
