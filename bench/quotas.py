"""Every kind of quota, and greedy clients that would do more: `python -m bench.quotas --seconds 60`.

produce      ten producers and a good neighbour, without quotas and with them: each greedy one writes as fast as it
             can; the neighbour writes a small record every 10 ms and measures how long it takes
fetch        ten consumers that read what is there, again and again
requests     requests that take a share of the broker's loop
changes      topics that are made and deleted, and new connections of an address, to a listener, to a broker

Each line has what a client got beside what it may, from its first byte on (changes: after what it may save up).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from statistics import quantiles

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.quota_kinds import run_changes_and_connections, run_requests
from headrace.client.address import parse_bootstrap
from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.client.quotas import alter_quotas
from headrace.env.real import real_env
from headrace.security.quota import CLIENT_ID, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from headrace.testing import Broker

KINDS = ("produce", "fetch", "requests", "changes")
GREEDY = 10
VALUE = bytes(range(256)) * 40
PAUSE_S = 0.01
TOPIC = "quotas"
FETCH_BYTES = 100_000
FILLED_RECORDS = 20_000
"""What there is to read: 21 MB, a batch of each record, since the part of a batch at the end of an answer counts
too and is of no use to the client."""
FETCH_RATE = 200_000.0
FILLED_VALUE = VALUE[:1000]
BATCH_BYTES = 61 + 9 + len(FILLED_VALUE)
"""A batch's header, what a record has beside its value, and that."""


def write_greedily(bootstrap: str, client_id: str, seconds: float, written: list[int]) -> None:
    """Bytes that were acknowledged in the time."""
    acknowledged = 0
    end = 0.0

    def done(error: object, message: object) -> None:
        nonlocal acknowledged
        if error is None and time.monotonic() < end:
            acknowledged += len(VALUE)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "acks": 1,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 4096,
            "batch.size": 100_000,
        }
    )
    producer.list_topics(timeout=30)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            producer.produce(TOPIC, VALUE, on_delivery=done)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    producer.purge()
    producer.flush(10)
    written.append(acknowledged)


def read_greedily(bootstrap: str, client_id: str, seconds: float, read: list[int]) -> None:
    """Bytes of batches that came in so many seconds after the first."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 5,
        }
    )
    end, came = float("inf"), 0
    while time.monotonic() < end:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        seen = 0
        while seen < FILLED_RECORDS and (left := end - time.monotonic()) > 0:
            for message in consumer.consume(50, min(left, 0.5)):
                now = time.monotonic()
                end = min(end, now + seconds)
                if message.error() is None and now < end:
                    seen += 1
                    came += BATCH_BYTES
    consumer.close()
    read.append(came)


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(FILLED_RECORDS):
        producer.produce(TOPIC, FILLED_VALUE)
        producer.poll(0)
    assert producer.flush(60) == 0


def greedy_process(
    bootstrap: str,
    seconds: float,
    results: multiprocessing.Queue[list[int]],
    work: Callable[..., None] = write_greedily,
) -> None:
    written: list[int] = []
    threads = [
        threading.Thread(target=work, args=(bootstrap, f"greedy-{number}", seconds, written))
        for number in range(GREEDY)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(written)


def neighbour(bootstrap: str, seconds: float) -> list[float]:
    """Milliseconds of each write."""
    took: list[float] = []
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "neighbour", "acks": 1, "linger.ms": 0})
    producer.list_topics(timeout=30)
    end = time.monotonic() + seconds

    def measured(began: float) -> Callable[[object, object], None]:
        return lambda error, message: took.append((time.monotonic() - began) * 1000)

    while time.monotonic() < end:
        began = time.monotonic()
        producer.produce(TOPIC, b"small", on_delivery=measured(began))
        producer.poll(PAUSE_S)
        time.sleep(max(began + PAUSE_S - time.monotonic(), 0))
    producer.flush(30)
    return took


async def prepare(bootstrap: str, rate: float | None, quota: str = PRODUCER_BYTE_RATE) -> None:
    async with Cluster(real_env(), parse_bootstrap(bootstrap), ClientSettings()) as cluster:
        for number in range(GREEDY):
            error = await alter_quotas(cluster, ((CLIENT_ID, f"greedy-{number}"),), {quota: rate})
            assert error is None, error


def run(bootstrap: str, seconds: float, rate: float | None) -> None:
    asyncio.run(prepare(bootstrap, rate))
    results: multiprocessing.Queue[list[int]] = multiprocessing.Queue()
    process = multiprocessing.Process(target=greedy_process, args=(bootstrap, seconds, results))
    process.start()
    took = neighbour(bootstrap, seconds)
    written = results.get(timeout=seconds + 60)
    process.join()
    cuts = quantiles(took, n=1000)
    print(f"produce, {'with' if rate else 'without'} quotas, {seconds:g} s")
    print(
        f"  neighbour: {len(took)} writes, p50 {cuts[499]:.1f} ms, p99 {cuts[989]:.1f} ms, p999 {cuts[998]:.1f} ms"
    )
    show(written, seconds, rate)


def run_fetch(bootstrap: str, seconds: float, rate: float) -> None:
    fill(bootstrap)
    asyncio.run(prepare(bootstrap, rate, CONSUMER_BYTE_RATE))
    results: multiprocessing.Queue[list[int]] = multiprocessing.Queue()
    process = multiprocessing.Process(target=greedy_process, args=(bootstrap, seconds, results, read_greedily))
    process.start()
    read = results.get(timeout=seconds + 120)
    process.join()
    print(f"fetch, with quotas, {seconds:g} s")
    show(read, seconds, rate)


def show(written: list[int], seconds: float, rate: float | None) -> None:
    rates = sorted(count / seconds for count in written)
    print(f"  greedy: {rates[0] / 1e6:.3f} to {rates[-1] / 1e6:.3f} MB/s each, {sum(rates) / 1e6:.2f} MB/s in all")
    if rate:
        off = [(one / rate - 1) * 100 for one in rates]
        print(f"  allowed: {rate / 1e6:.3f} MB/s each; off by {off[0]:+.2f} % to {off[-1]:+.2f} %")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quotas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1_000_000.0, help="bytes per second of each greedy producer")
    parser.add_argument("--only", choices=KINDS, action="append", help="these kinds; may be repeated")
    options = parser.parse_args(arguments)
    kinds = options.only or KINDS
    if "produce" in kinds:
        with Broker({"num.partitions": "1"}) as broker:
            asyncio.run(make_topic(broker.bootstrap_servers))
            run(broker.bootstrap_servers, options.seconds, None)
            run(broker.bootstrap_servers, options.seconds, options.rate)
    if "fetch" in kinds:
        with Broker({"num.partitions": "1"}) as broker:
            asyncio.run(make_topic(broker.bootstrap_servers))
            run_fetch(broker.bootstrap_servers, options.seconds, FETCH_RATE)
    if "requests" in kinds:
        run_requests(options.seconds)
    if "changes" in kinds:
        run_changes_and_connections(options.seconds)


async def make_topic(bootstrap: str) -> None:
    async with Cluster(real_env(), parse_bootstrap(bootstrap), ClientSettings()) as cluster:
        await create_topics(cluster, [NewTopic(TOPIC, 1, 1)])


if __name__ == "__main__":
    main()
