"""The demo: a broker in a process of its own, and a stock Kafka client that sends log events through it.

    make demo                      about ten seconds
    make demo ARGS=--once          the short run that the tests use

It starts Headrace on a free port with a temporary data directory, creates a topic, produces log events at a steady
rate with one burst, consumes them live, checks that every acknowledged event was read exactly once, and leaves
nothing behind. On a terminal the figures move in place; in a pipe they are plain lines.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

HOST = "127.0.0.1"
FIRST_PORT = 9092
PORTS_TRIED = 50
TOPIC = "log-events"
PARTITIONS = 3
STEADY_RATE = 2_000
BURST_EVENTS = 40_000
BURST_AT = 0.4
"""The share of the run after which the burst comes."""
SLICE_S = 0.02
TICK_S = 0.5
DRAIN_TIMEOUT_S = 20.0
READY_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 15.0
BAR_WIDTH = 24

SERVICES = ("checkout", "search", "login", "catalog", "payments", "mail")
LEVELS = ("INFO",) * 17 + ("WARN",) * 2 + ("ERROR",)
MESSAGES = ("request served", "cache miss", "retrying upstream", "connection pool is full", "order placed")


class DemoFailed(Exception):
    """Something that the demo cannot go on without."""


class BrokerProcess:
    """`headrace start` with this interpreter, on a free port, with data that goes away."""

    def __init__(self) -> None:
        self.port, self.skipped = _free_port()
        self.data = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
        self.started_s = 0.0
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        begin = time.monotonic()
        settings = [f"listeners=PLAINTEXT://{self.bootstrap}", f"log.dirs={self.data / 'data'}"]
        with (self.data / "broker.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "start", *(f"--override={setting}" for setting in settings)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C is ours to handle; the broker is told to stop in order
            )
        if not self._ready_line():
            raise DemoFailed(f"the broker did not start:\n{(self.data / 'broker.log').read_text()}")
        self.started_s = time.monotonic() - begin

    def _ready_line(self) -> str:
        assert self._process is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        stdout = self._process.stdout
        assert stdout is not None
        threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            return lines.get(timeout=READY_TIMEOUT_S)
        except queue.Empty:
            return ""

    def check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise DemoFailed(f"the broker has died:\n{(self.data / 'broker.log').read_text()}")

    def stop(self) -> tuple[int, float]:
        """A clean stop: the exit code and how long it took."""
        if self._process is None:
            return 0, 0.0
        begin = time.monotonic()
        self._process.terminate()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, time.monotonic() - begin

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.data.rglob("*.log") if path.parent.name.startswith(TOPIC))

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def remove(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)


class Feed(threading.Thread):
    """Produces the events: a steady stream and one burst."""

    def __init__(self, bootstrap: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self._seconds = seconds
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "compression.type": "lz4"}
        )
        self.sent = 0
        self.sent_bytes = 0
        self.acknowledged: set[int] = set()
        self.failures: Counter[str] = Counter()
        self.bursting = False
        self.burst_s = 0.0
        self.stopping = threading.Event()

    def run(self) -> None:
        begin = time.monotonic()
        burst_at = begin + self._seconds * BURST_AT
        due = begin
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
        number = self.sent
        service = random.choice(SERVICES)
        event = {
            "n": number,
            "at_ns": time.time_ns(),
            "service": service,
            "level": random.choice(LEVELS),
            "message": random.choice(MESSAGES),
            "took_ms": round(random.lognormvariate(3, 0.8), 1),
            "request": f"{random.getrandbits(64):016x}",
            "burst": self.bursting,
        }
        value = json.dumps(event).encode()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failures[str(error)] += 1

        while True:
            try:
                self._producer.produce(TOPIC, value, service.encode(), on_delivery=delivered)
                break
            except BufferError:  # the client's own queue is full: let it send
                self._producer.poll(0.05)
        self.sent += 1
        self.sent_bytes += len(value)


class Tail(threading.Thread):
    """Consumes every partition from its beginning and measures how old the events are when they arrive."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "demo",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        self._next_offset = dict.fromkeys(range(PARTITIONS), 0)
        self.seen: Counter[int] = Counter()
        self.levels: Counter[str] = Counter()
        self.errors_by_service: Counter[str] = Counter()
        self.out_of_order = 0
        self.count = 0
        self.latencies_ms: list[float] = []
        """Of every event, in the order of arrival."""
        self.steady_ms: list[float] = []
        """Of those outside the burst, in which the client is its own bottleneck."""
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        event = json.loads(value)
        age_ms = (time.time_ns() - event["at_ns"]) / 1e6
        self.latencies_ms.append(age_ms)
        if not event["burst"]:
            self.steady_ms.append(age_ms)
        self.out_of_order += offset != self._next_offset[partition]
        self._next_offset[partition] = offset + 1
        self.seen[event["n"]] += 1
        self.levels[event["level"]] += 1
        if event["level"] == "ERROR":
            self.errors_by_service[event["service"]] += 1
        self.count += 1


class Screen:
    """Figures that move in place on a terminal, and plain lines elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0

    def say(self, text: str = "") -> None:
        print(text, flush=True)

    def strong(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._terminal else text

    def colour(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._terminal else text

    def frame(self, lines: list[str], plain: str) -> None:
        if not self._terminal:
            self.say(plain)
            return
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        print(up + "".join(f"\r\x1b[K{line}\n" for line in lines), end="", flush=True)
        self._drawn = len(lines)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def bar(value: float, full: float) -> str:
    filled = min(BAR_WIDTH, round(BAR_WIDTH * value / full)) if full else 0
    return "█" * filled + "·" * (BAR_WIDTH - filled)


def watch(screen: Screen, broker: BrokerProcess, feed: Feed, tail: Tail) -> None:
    """Show what happens until the feed has ended and its last event was read."""
    begin = before = time.monotonic()
    sent = read = measured = 0
    highest = float(STEADY_RATE)
    deadline = float("inf")
    while True:
        time.sleep(TICK_S)
        broker.check_alive()
        now = time.monotonic()
        rate_in, rate_out = (feed.sent - sent) / (now - before), (tail.count - read) / (now - before)
        fresh = tail.latencies_ms[measured:]
        sent, read, before = feed.sent, tail.count, now
        measured += len(fresh)
        highest = max(highest, rate_in, rate_out)
        p50, p99 = percentile(fresh, 0.5), percentile(fresh, 0.99)
        burst = screen.colour(33, "  burst!") if feed.bursting else ""
        screen.frame(
            [
                f"  produced {sent:>9,}   {rate_in:>9,.0f}/s  {screen.colour(36, bar(rate_in, highest))}{burst}",
                f"  consumed {read:>9,}   {rate_out:>9,.0f}/s  {screen.colour(32, bar(rate_out, highest))}",
                f"  end to end   p50 {p50:>7.1f} ms   p99 {p99:>7.1f} ms   behind {max(0, sent - read):>7,}",
                f"  broker       {broker.memory_mb():.0f} MB of memory, {broker.cpu_s():.1f} s of CPU",
            ],
            f"{now - begin:5.1f} s  produced {sent:,} ({rate_in:,.0f}/s)  consumed {read:,} ({rate_out:,.0f}/s)"
            f"  p50 {p50:.1f} ms  p99 {p99:.1f} ms{'  burst' if feed.bursting else ''}",
        )
        if not feed.is_alive():
            deadline = min(deadline, now + DRAIN_TIMEOUT_S)
            if tail.count >= len(feed.acknowledged) or now > deadline:
                return


def summary(screen: Screen, broker: BrokerProcess, feed: Feed, tail: Tail) -> bool:
    missing = len(feed.acknowledged - tail.seen.keys())
    twice = sum(1 for count in tail.seen.values() if count > 1)
    stored = broker.stored_bytes()
    errors = ", ".join(f"{service} {count}" for service, count in tail.errors_by_service.most_common(3))
    sent_mb = feed.sent_bytes / 1e6
    screen.say()
    screen.say(screen.strong("What happened"))
    screen.say(f"  events        {len(feed.acknowledged):,} acknowledged, {tail.count:,} read")
    if feed.burst_s:
        screen.say(f"  burst         {BURST_EVENTS:,} events acknowledged in {feed.burst_s:.2f} s")
    p50, p99 = percentile(tail.steady_ms, 0.5), percentile(tail.steady_ms, 0.99)
    screen.say(
        f"  end to end    p50 {p50:.1f} ms, p99 {p99:.1f} ms outside the burst, the client's 5 ms linger included"
    )
    screen.say(f"  on disk       {stored / 1e6:.1f} MB for {sent_mb:.1f} MB of events: lz4, as the client sent it")
    used = f"{broker.memory_mb():.0f} MB of memory, {broker.cpu_s():.1f} s of CPU"
    screen.say(f"  broker        ready in {broker.started_s:.2f} s, {used}")
    screen.say(f"  in the logs   {tail.levels['ERROR']:,} errors, most from {errors or 'nobody'}")
    failed = sum(feed.failures.values())
    good = not (missing or twice or tail.out_of_order or failed)
    verdict = f"missing {missing}, read twice {twice}, out of order {tail.out_of_order}, refused {failed}"
    screen.say(f"  check         {screen.colour(32 if good else 31, verdict)}")
    return good


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(timeout=10)


def _free_port() -> tuple[int, list[int]]:
    """The first free port from 9092 on, and the busy ones before it."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port, list(range(FIRST_PORT, port))
    raise DemoFailed(f"no free port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1}")


def run(screen: Screen, broker: BrokerProcess, seconds: float) -> bool:
    if broker.skipped:
        screen.say(f"Port {broker.skipped[0]} is busy; taking {broker.port}.")
    broker.start()
    screen.say(f"Headrace listens on {screen.strong(broker.bootstrap)}, data in {broker.data}")
    create_topic(broker.bootstrap)
    screen.say(f"Topic {TOPIC} has {PARTITIONS} partitions; the client is confluent-kafka, unchanged")
    screen.say()
    feed, tail = Feed(broker.bootstrap, seconds), Tail(broker.bootstrap)
    try:
        tail.start()
        feed.start()
        watch(screen, broker, feed, tail)
        return summary(screen, broker, feed, tail)
    finally:
        feed.stopping.set()
        tail.stopping.set()
        feed.join(DRAIN_TIMEOUT_S)
        tail.join(DRAIN_TIMEOUT_S)


def main() -> int:
    parser = argparse.ArgumentParser(description="Send log events through a Headrace broker and watch.")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to produce (default 10)")
    parser.add_argument("--once", action="store_true", help="a short run of two seconds")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    screen = Screen()
    broker = BrokerProcess()
    try:
        good = run(screen, broker, 2.0 if arguments.once else arguments.seconds)
        code, took_s = broker.stop()
        ending = f"clean, in {took_s:.2f} s; nothing is left behind" if code == 0 else f"exit code {code}"
        screen.say(f"  stop          {ending}")
        return 0 if good and code == 0 else 1
    except DemoFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        broker.stop()
        broker.remove()


if __name__ == "__main__":
    sys.exit(main())
