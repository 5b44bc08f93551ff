"""A steady librdkafka producer that notes when each partition acknowledges."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from headrace.testing.process_cluster import wait_until

RECORDS_PER_S = 600
FLUSH_S = 120.0
VALUE = b"x" * 100


class SteadyProducer:
    """Produces from a thread of its own while the block lasts."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: Any) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **settings}
        )
        self._topic = topic
        self._times: dict[int, list[float]] = {number: [] for number in range(partitions)}
        self._latencies: list[tuple[float, float]] = []
        """(when it was acknowledged, after how many seconds)."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.failures: list[str] = []

    @property
    def acked(self) -> int:
        return sum(map(len, self._times.values()))

    def wait_for_all(self, patience_s: float) -> None:
        """Until every partition has acknowledged a record that is sent from now on."""
        now = time.monotonic()

        def have_acked() -> bool:
            return all(times and times[-1] > now for times in self._times.values())

        wait_until(have_acked, "an acknowledgement on every partition", patience_s)

    def longest_gap(self, partition: int, since: float) -> float:
        """Seconds between two acknowledgements of a partition, where the later one came after `since`."""
        gaps = [later - earlier for earlier, later in pairwise(self._times[partition]) if later > since]
        return max(gaps, default=float("inf"))

    def latency_us(self, share: float, since: float, until: float) -> float:
        """A percentile of what was acknowledged in a span of time."""
        found = sorted(latency for when, latency in list(self._latencies) if since <= when < until)
        return found[min(int(len(found) * share), len(found) - 1)] * 1e6 if found else float("inf")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _produce(self) -> None:
        count, next_at = 0, time.monotonic()
        while not self._stop.is_set():
            self._producer.produce(
                self._topic, VALUE, partition=count % len(self._times), on_delivery=self._delivered
            )
            count += 1
            next_at += 1 / RECORDS_PER_S
            self._producer.poll(max(0.0, next_at - time.monotonic()))
        if left := self._producer.flush(FLUSH_S):
            self.failures.append(f"{left} records were not delivered in {FLUSH_S} s")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            now = time.monotonic()
            self._times[message.partition()].append(now)
            self._latencies.append((now, message.latency()))
