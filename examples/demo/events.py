"""The events of the demo: a steady stream of logs with one burst, some of them broken.

Their clock runs fast, so that counts per minute have some minutes to show after a few seconds.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "logs.raw"
PARTITIONS = 3
FIRST_EVENTS = 200
STEADY_RATE = 2_000
BURST_EVENTS = 40_000
BURST_AT = 0.5
"""The share of the run after which the burst comes."""
BROKEN_SHARE = 0.004
CLOCK_SPEED = 20
SLICE_S = 0.02
DRAIN_TIMEOUT_S = 120.0

SERVICES = ("checkout", "search", "login", "catalog", "payments", "mail")
LEVELS = ("info",) * 17 + ("warn",) * 2 + ("error",)
MESSAGES = ("request served", "cache miss", "retrying upstream", "connection pool is full", "order placed")
BROKEN = (b'{"time": "2026-', b"-- MARK --", b'["an", "array"]', b"\xff\xfe\x00", b"")


class Feed(threading.Thread):
    def __init__(self, bootstrap: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._seconds = seconds
        self._producer: Producer
        self._begin_s = 0.0
        self.sent = 0
        self.good = 0
        self.broken = 0
        self.errors = 0
        """Events of level ERROR."""
        self.acknowledged = 0
        self.failures: Counter[str] = Counter()
        self.bursting = False
        self.burst_s = 0.0
        self.stopping = threading.Event()

    def send_first(self) -> None:
        """Something to begin with: Spark is ready when it has been through these."""
        self._producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "acks": "all",
                "linger.ms": 5,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        self._begin_s = time.time()
        for _ in range(FIRST_EVENTS):
            self._send()
        self._producer.flush(DRAIN_TIMEOUT_S)

    def run(self) -> None:
        self._begin_s = time.time()
        begin = due = time.monotonic()
        burst_at = begin + self._seconds * BURST_AT
        while (now := time.monotonic()) < begin + self._seconds and not self.stopping.is_set():
            if burst_at <= now:
                burst_at = float("inf")
                self._burst()
                due = time.monotonic()
            while due <= now:
                self._send()
                due += 1 / STEADY_RATE
            self._producer.poll(0)
            time.sleep(SLICE_S)
        self._producer.flush(DRAIN_TIMEOUT_S)

    def _burst(self) -> None:
        self.bursting = True
        begin = time.monotonic()
        for _ in range(BURST_EVENTS):
            self._send()
        self._producer.flush(DRAIN_TIMEOUT_S)
        self.burst_s = time.monotonic() - begin
        self.bursting = False

    def _send(self) -> None:
        service = random.choice(SERVICES)
        value = self._event(service)
        while True:
            try:
                self._producer.produce(TOPIC, value, service.encode(), on_delivery=self._delivered)
                break
            except BufferError:  # the client's own queue is full: let it send
                self._producer.poll(0.05)
        self.sent += 1

    def _event(self, service: str) -> bytes:
        if random.random() < BROKEN_SHARE:
            self.broken += 1
            return random.choice(BROKEN)
        self.good += 1
        level = random.choice(LEVELS)
        self.errors += level == "error"
        at_s = self._begin_s + (time.time() - self._begin_s) * CLOCK_SPEED
        event = {
            "time": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds"),
            "service": service,
            "level": level,
            "message": random.choice(MESSAGES),
            "took_ms": round(random.lognormvariate(3, 0.8)),
        }
        return json.dumps(event).encode()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures[str(error)] += 1


def create_topic(bootstrap: str) -> None:
    quiet = {"log_level": 5}  # it may say when it is closed that it had events for nobody
    admin = AdminClient({"bootstrap.servers": bootstrap, **quiet})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(timeout=10)
