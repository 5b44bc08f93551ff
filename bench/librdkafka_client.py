"""A client on librdkafka, run as `python -m bench.librdkafka_client '{"mode": "produce", ...}'`; prints JSON.

Each tells how long it took, its CPU time meanwhile, and how much of a core its busiest thread had: near 1, that is
the limit.

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
TASKS = Path("/proc/self/task")


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


def _secured(options: dict[str, Any]) -> dict[str, Any]:
    """TLS, if the authority of the broker's certificate is given."""
    return {"security.protocol": "ssl", "ssl.ca.location": options["ca"]} if "ca" in options else {}


def _producer(options: dict[str, Any]) -> Producer:
    return Producer(
        {
            **_secured(options),
            "bootstrap.servers": options["bootstrap"],
            "linger.ms": options.get("linger_ms", 5),
            "batch.size": options.get("batch_size", 1_000_000),
            "acks": options.get("acks", "all"),
            "enable.idempotence": bool(options.get("idempotent", 0)),
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )


def produce(options: dict[str, Any]) -> dict[str, Any]:
    producer, errors, done = _producer(options), 0, 0

    def delivered(error: object, message: object) -> None:
        nonlocal errors, done
        errors += error is not None
        done += 1

    value = b"x" * options["size"]
    topic = options["topic"]
    started, cpu, threads = time.perf_counter(), time.process_time(), _thread_seconds()
    for _ in range(options["records"]):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(FLUSH_TIMEOUT_S)
    seconds = time.perf_counter() - started
    return {
        "records": done,
        "seconds": seconds,
        "errors": errors + left,
        "cpu_seconds": time.process_time() - cpu,
        "busiest_thread": _busiest(threads) / seconds,
    }


def produce_one_by_one(options: dict[str, Any]) -> dict[str, Any]:
    producer = _producer({**options, "linger_ms": 0})
    value, topic, times = b"x" * options["size"], options["topic"], []
    errors = 0
    for turn in range(options["records"] + options.get("warmup", 100)):
        started = time.perf_counter()
        producer.produce(topic, value, partition=0)
        errors += producer.flush(10)
        if turn >= options.get("warmup", 100):
            times.append(time.perf_counter() - started)
    return {"records": len(times), "seconds": sum(times), "errors": errors, "latency": _percentiles(times)}


def produce_in_transactions(options: dict[str, Any]) -> dict[str, Any]:
    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "transactional.id": options["name"],
            "linger.ms": 0 if options["batch"] == 1 else 5,
            "log_level": 0,
        }
    )
    producer.init_transactions(FLUSH_TIMEOUT_S)
    value, topic, times = b"x" * options["size"], options["topic"], []
    for done in range(0, options["records"], options["batch"]):
        started = time.perf_counter()
        producer.begin_transaction()
        for _ in range(min(options["batch"], options["records"] - done)):
            producer.produce(topic, value)
        producer.commit_transaction(FLUSH_TIMEOUT_S)
        times.append(time.perf_counter() - started)
    return {"records": options["records"], "seconds": sum(times), "errors": 0, "latency": _percentiles(times)}


def _percentiles(seconds: list[float]) -> dict[str, float]:
    found = sorted(seconds)
    at = {
        name: found[int(len(found) * share)] * 1e6
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    }
    return {"p50_us": at["p50"], "p99_us": at["p99"], "p999_us": at["p999"], "max_us": found[-1] * 1e6}


def consume(options: dict[str, Any]) -> dict[str, Any]:
    consumer = Consumer(
        {
            **_secured(options),
            "bootstrap.servers": options["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": options.get("isolation", "read_committed"),
            "fetch.message.max.bytes": 1 << 20,
            # Each time its queue is full librdkafka waits for a second: that would be all we see.
            "fetch.queue.backoff.ms": 5,
            "log_level": 0,
        }
    )
    # librdkafka looks again only after half a second at a partition whose leader it does not know yet, with any
    # broker: that would be more than half of the time of a round of 300 MB.
    consumer.list_topics(options["topic"], timeout=CONSUME_TIMEOUT_S)
    consumer.assign(
        [TopicPartition(options["topic"], number, OFFSET_BEGINNING) for number in range(options["partitions"])]
    )
    wanted, seen, errors = options["records"], 0, 0
    started, cpu, threads = time.perf_counter(), time.process_time(), _thread_seconds()
    while seen < wanted and time.perf_counter() - started < CONSUME_TIMEOUT_S:
        for message in consumer.consume(10_000, timeout=0.5):
            if message.error() is None:
                seen += 1
            else:
                errors += 1
    seconds, busiest = time.perf_counter() - started, _busiest(threads)
    cpu = time.process_time() - cpu
    consumer.close()
    return {
        "records": seen,
        "seconds": seconds,
        "errors": errors + wanted - seen,
        "cpu_seconds": cpu,
        "busiest_thread": busiest / seconds,
    }


def _thread_seconds() -> dict[str, float]:
    """CPU time of each thread of this process, counted from behind its name, which may hold spaces.

    librdkafka's threads for addresses of the bootstrap end when they please: one that is gone is left out.
    """
    seconds = {}
    for task in TASKS.iterdir():
        try:
            stat = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        user, system = stat.rpartition(")")[2].split()[11:13]
        seconds[task.name] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return seconds


def _busiest(before: dict[str, float]) -> float:
    return max(seconds - before.get(name, 0.0) for name, seconds in _thread_seconds().items())


if __name__ == "__main__":
    sys.exit(main())
