"""`headrace perf consume|e2e`: reading as fast as it goes, and the time from producer to consumer."""

from __future__ import annotations

import time
from typing import Any

import click

from headrace.cli.common.options import Target, cluster_options, format_option, size, topic_argument
from headrace.cli.common.output import note
from headrace.cli.common.session import run, topic_of
from headrace.cli.perf.measuring import Progress, latencies, rate_text, report
from headrace.client.cluster import Cluster
from headrace.client.fetching import FetchLimits, RecordReader
from headrace.client.offsets import offset_ranges
from headrace.client.producer import Producer, ProducerSettings
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord

FETCH_BYTES = 8 * 1024 * 1024


@click.command()
@topic_argument
@click.option("-n", "--records", type=click.IntRange(min=1), help="Stop after about this many records.")
@format_option
@cluster_options
def consume(target: Target, topic: str, records: int | None, format: str) -> None:
    """Read everything in TOPIC and measure throughput. Records are counted from batch headers, not decoded."""
    report(run(target, lambda cluster: _read_all(cluster, topic, records)), format)


async def _read_all(cluster: Cluster, topic: str, limit: int | None) -> dict[str, Any]:
    partitions = [TopicPartition(topic, one.number) for one in (await topic_of(cluster, topic)).partitions]
    ranges = await offset_ranges(cluster, partitions)
    total = sum(end - start for start, end in ranges.values())
    if not total:
        note(f"{topic} holds no records; `headrace perf produce {topic}` writes some.")
    reader = RecordReader(
        cluster,
        {one: start for one, (start, end) in ranges.items() if start < end},
        FetchLimits(partition_max_bytes=FETCH_BYTES),
    )
    progress = Progress(min(total, limit or total), "reading")
    began = time.monotonic()
    count = read_bytes = 0
    while reader.positions and (limit is None or count < limit):
        for fetched in await reader.poll():
            for header, batch in fetched.visible_batches():
                count += header.record_count
                read_bytes += len(batch)
            if fetched.next_offset >= ranges[fetched.partition][1]:
                reader.drop(fetched.partition)
        now = time.monotonic()
        progress.update(count, now, rate_text(count, read_bytes, now - began))
    elapsed = max(time.monotonic() - began, 1e-9)
    progress.end()
    return {
        "records": count,
        "seconds": round(elapsed, 3),
        "records_per_second": round(count / elapsed, 1),
        "megabytes_per_second": round(read_bytes / elapsed / 1e6, 2),
    }


@click.command("e2e")
@topic_argument
@click.option("-n", "--records", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("-s", "--record-size", "record_bytes", type=size, default="100", show_default=True, metavar="SIZE")
@click.option("--acks", type=click.Choice(["1", "all"]), default="all", show_default=True)
@format_option
@cluster_options
def end_to_end(target: Target, topic: str, records: int, record_bytes: int, acks: str, format: str) -> None:
    """Send records one at a time and wait for each to come back from a waiting consumer."""
    settings = ProducerSettings(acks=-1 if acks == "all" else int(acks), partition=0)
    report(run(target, lambda cluster: _round_trips(cluster, topic, records, record_bytes, settings)), format)


async def _round_trips(
    cluster: Cluster, topic: str, records: int, record_bytes: int, settings: ProducerSettings
) -> dict[str, Any]:
    import asyncio

    await topic_of(cluster, topic)
    partition = TopicPartition(topic, 0)
    end = (await offset_ranges(cluster, [partition]))[partition][1]
    async with Cluster(cluster.env, cluster.bootstrap, cluster.settings) as other:
        reader = RecordReader(other, {partition: end})
        producer = Producer(cluster, topic, settings)
        await producer.start()
        value = bytes(record_bytes)
        progress = Progress(records, "measuring")
        seconds: list[float] = []
        await reader.poll()  # connects, so that the first record does not pay for it
        for number in range(records):
            waiting = asyncio.create_task(_next(reader))
            await asyncio.sleep(0)
            began = time.monotonic()
            await producer.send([NewRecord(value, None, cluster.env.clock.wall_ms())])
            await waiting
            now = time.monotonic()
            seconds.append(now - began)
            progress.update(number + 1, now, f"{(now - began) * 1000:.2f} ms")
        progress.end()
    return {"records": records, "latency": latencies(seconds)}


async def _next(reader: RecordReader) -> None:
    """Wait for the next record."""
    while not any(fetched.batches for fetched in await reader.poll()):
        pass
