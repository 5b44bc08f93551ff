"""`headrace perf produce`: writes generated records and measures.

The records of a batch are made once and sent again and again with fresh times, so that the cluster is measured and
not how fast this program creates records.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from headrace.cli.common.options import Target, cluster_options, duration, format_option, size, topic_argument
from headrace.cli.common.session import run, topic_of
from headrace.cli.perf.measuring import Progress, latencies, rate_text, report
from headrace.cli.topic.produce import ACKS
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.producer import send_batch
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord, build_batch, seal
from headrace.records.compression import CODEC_NAMES

_TIMES = struct.Struct(">qq")
_TIMES_START = 27
"""Where base and max timestamp stand in a batch's header."""


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    topic: str
    records: int | None
    seconds: float
    record_bytes: int
    batch_records: int
    codec: int
    acks: int
    in_flight: int
    records_per_second: float | None


@dataclass(slots=True)
class Tally:
    began: float
    records: int = 0
    size: int = 0
    seconds: list[float] = field(default_factory=list)


@click.command()
@topic_argument
@click.option(
    "-n", "--records", type=click.IntRange(min=1), help="Number of records; otherwise --duration limits the run."
)
@click.option("-d", "--duration", "seconds", type=duration, default="10s", show_default=True)
@click.option("-s", "--record-size", "record_bytes", type=size, default="1000", show_default=True, metavar="SIZE")
@click.option("--batch-size", "batch_bytes", type=size, default="64k", show_default=True, metavar="SIZE")
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--in-flight", type=click.IntRange(1, 100), default=5, show_default=True, help="Per partition.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum records per second.")
@format_option
@cluster_options
def produce(
    target: Target,
    topic: str,
    records: int | None,
    seconds: float,
    record_bytes: int,
    batch_bytes: int,
    compression: str,
    acks: str,
    in_flight: int,
    rate: float | None,
    format: str,
) -> None:
    """Write random records to TOPIC, which must exist, and measure throughput. The records stay in the topic."""
    batch_records = max(1, batch_bytes // max(1, record_bytes))
    load = ProduceLoad(
        topic,
        records,
        seconds,
        record_bytes,
        batch_records,
        CODEC_NAMES[compression],
        ACKS[acks],
        in_flight,
        rate,
    )
    report(run(target, lambda cluster: _measure(cluster, load)), format)


async def _measure(cluster: Cluster, load: ProduceLoad) -> dict[str, object]:
    partitions = [
        TopicPartition(load.topic, one.number) for one in (await topic_of(cluster, load.topic)).partitions
    ]
    leaders = {one: leader for leader, mine in (await cluster.by_leader(partitions)).items() for one in mine}
    tally = Tally(time.monotonic())
    sizes = _batches(load, tally)
    progress = Progress(load.records or load.seconds, "writing")
    connections = {leader: await cluster.broker(leader) for leader in set(leaders.values())}
    lanes = [
        _lane(connections[leaders[one]], one, load, sizes, tally, progress)
        for one in partitions
        for _ in range(load.in_flight if load.acks else 1)
    ]
    await asyncio.gather(*lanes)
    await asyncio.gather(*(connection.flush() for connection in connections.values()))
    elapsed = time.monotonic() - tally.began
    progress.end()
    return {
        "records": tally.records,
        "seconds": round(elapsed, 3),
        "records_per_second": round(tally.records / elapsed, 1),
        "megabytes_per_second": round(tally.size / elapsed / 1e6, 2),
        **({"latency": latencies(tally.seconds)} if load.acks else {}),
    }


def _batches(load: ProduceLoad, tally: Tally) -> Iterator[int]:
    """The number of records in each next batch, until there are enough or the time is over."""
    given = 0
    while load.records is None or given < load.records:
        if load.records is None and time.monotonic() - tally.began >= load.seconds:
            return
        count = load.batch_records if load.records is None else min(load.batch_records, load.records - given)
        given += count
        yield count


async def _lane(
    connection: ClientConnection,
    partition: TopicPartition,
    load: ProduceLoad,
    sizes: Iterator[int],
    tally: Tally,
    progress: Progress,
) -> None:
    """Sends batches to one partition, one after the other; several lanes make the batches in flight."""
    made: dict[int, bytearray] = {}
    for count in sizes:
        batch = made.get(count)
        if batch is None:
            batch = made[count] = _build(load, count)
        await _hold_rate(load, tally, count)
        now_ms = time.time_ns() // 1_000_000
        _TIMES.pack_into(batch, _TIMES_START, now_ms, now_ms)
        seal(batch)
        began = time.monotonic()
        await send_batch(connection, partition, batch, load.acks, 30.0)
        now = time.monotonic()
        tally.records += count
        tally.size += count * load.record_bytes
        tally.seconds.append(now - began)
        if load.acks == 0:
            await asyncio.sleep(0)
        done = tally.records if load.records is not None else now - tally.began
        progress.update(done, now, rate_text(tally.records, tally.size, now - tally.began))


def _build(load: ProduceLoad, count: int) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    # Half random: compressible about as real records are.
    value = (os.urandom(load.record_bytes // 2) + bytes(load.record_bytes))[: load.record_bytes]
    return build_batch([NewRecord(value, None, now_ms)] * count, codec=load.codec)


async def _hold_rate(load: ProduceLoad, tally: Tally, count: int) -> None:
    if load.records_per_second is None:
        return
    due = tally.began + (tally.records + count) / load.records_per_second
    await asyncio.sleep(max(0.0, due - time.monotonic()))
