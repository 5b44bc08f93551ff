"""What a pipeline costs beside the same queries by hand: `python -m bench.pipeline_costs [--rows 300000]`.

Flights of a year in one topic, in disorder by some minutes: windows per airport and hour, a join with a table of
airlines, and a split into a topic for each airline. By hand that is one streaming query for each of the three, as
one would write it with `format("headrace")`; as a pipeline it is one query, and malformed records go to a topic of
dead letters besides. Both run in one Spark session, in turn, until everything is processed; the first round only
warms up. Shown are wall time and the CPU of Spark and its Python workers, without that of the broker, and how many
jobs, batches and Python workers it took. The results of both are compared with a computation in plain Python.
After `--minutes` no more rounds begin. A run that Spark gave up, because Python did not start in its ten seconds,
is done again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.probes import process_tree
from bench.spark_rates import SESSION, start_spark, tree_cpu_seconds
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.pipelines.compiling.checkpoint_folders import CheckpointPlace
from headrace.spark.pipelines.compiling.queries import INITIALIZING, build_queries
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.session import SQL_DEFAULTS, find_java, make_session
from headrace.testing.process import BrokerProcess

ONCE = {"availableNow": True}
ATTEMPTS = 5
NO_PYTHON = ("failed to connect back", "reading the port number", "Cannot run program")
"""Parts of the messages with which Spark reports that Python did not start in time."""
SOURCE = "flights"
SCHEMA = "id bigint, at timestamp, carrier string, origin string, minutes int, miles int"
CARRIERS = {f"C{number}": f"Airline {number}" for number in range(16)}
AIRPORTS = ("EWR", "JFK", "LGA")
DELAY = timedelta(hours=1)
PIPELINE = """\
name: {run}
sources:
  flights: {{topic: flights, format: json, schema: "{schema}", watermark: {{column: at, delay: 1 hour}}}}
  airlines: {{files: "airlines.csv", table: true, schema: "carrier string, airline string"}}
steps:
  - name: hours
    sql: |
      SELECT window.start AS hour, origin, count(*) AS flights, sum(minutes) AS minutes
      FROM flights GROUP BY window(at, '1 hour'), origin
  - name: named
    sql: SELECT f.id, f.at, f.origin, a.airline FROM flights f JOIN airlines a ON f.carrier = a.carrier
  - {{name: late, from: flights, filter: minutes > 60}}
sinks:
  hours: {{from: hours, topic: {run}.hours, create: {{partitions: 2}}}}
  named: {{from: named, topic: {run}.named, key: id, create: {{partitions: 2}}}}
  late: {{from: late, topic: "{run}.late.{{carrier}}", key: id, create: {{partitions: 1}}}}
"""


class Results(NamedTuple):
    """The results of the three sinks, in a form that can be compared."""

    hours: dict[tuple[str, str], tuple[int, int]]
    named: Counter[str]
    late: Counter[str]


class Place(NamedTuple):
    session: SparkSession
    broker: BrokerProcess
    folder: Path

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def cpu_seconds(self) -> float:
        """The CPU time of everything but the broker."""
        fields = Path(f"/proc/{self.broker.pid}/stat").read_text().rpartition(")")[2].split()
        broker = sum(int(number) for number in fields[11:15]) / os.sysconf("SC_CLK_TCK")
        return tree_cpu_seconds() - broker


def flights(count: int) -> list[dict[str, Any]]:
    chance, start = random.Random(1), datetime(2026, 1, 1, tzinfo=UTC)
    step = timedelta(days=365) / count
    return [
        {
            "id": number,
            "at": start + number * step + timedelta(seconds=chance.randrange(1800)),
            "carrier": chance.choice(list(CARRIERS)),
            "origin": chance.choice(AIRPORTS),
            "minutes": chance.randrange(-20, 120),
            "miles": chance.randrange(80, 3000),
        }
        for number in range(count)
    ]


def expected(rows: Sequence[dict[str, Any]]) -> Results:
    """The right results, computed in plain Python: a window is written when the watermark has passed its end."""
    hours: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        key = (hour_of(row["at"]), row["origin"])
        count, minutes = hours.get(key, (0, 0))
        hours[key] = (count + 1, minutes + row["minutes"])
    closed = max(row["at"] for row in rows) - DELAY
    return Results(
        {key: found for key, found in hours.items() if datetime.fromisoformat(key[0]) + DELAY <= closed},
        Counter(CARRIERS[row["carrier"]] for row in rows),
        Counter(row["carrier"] for row in rows if row["minutes"] > 60),
    )


def hour_of(at: datetime) -> str:
    return at.replace(minute=0, second=0, microsecond=0).isoformat()


def fill(place: Place, rows: Sequence[dict[str, Any]]) -> None:
    with closing(BlockingCluster(ClusterSettings(place.bootstrap))) as cluster:
        ensure_topic(cluster, SOURCE, TopicShape(2, 1, ()))
    lines = [json.dumps(row | {"at": row["at"].isoformat()}) for row in rows]
    path = place.folder / "flights.txt"
    path.write_text("\n".join(lines))
    records = place.session.read.text(str(path)).coalesce(1)
    write = records.write.format("headrace").option("kafka.bootstrap.servers", place.bootstrap)
    write.option("topic", SOURCE).mode("append").save()
    (place.folder / "airlines.csv").write_text("".join(f"{one},{name}\n" for one, name in CARRIERS.items()))


def as_pipeline(place: Place, run: str) -> list[StreamingQuery]:
    """Runs the pipeline until all of its queries have ended, and returns them."""
    path = place.folder / f"{run}.yml"
    path.write_text(PIPELINE.format(run=run, schema=SCHEMA))
    pipeline = load_pipeline(str(path))
    session = make_session(pipeline.spark, run)
    checkpoint = CheckpointPlace(str(place.folder / run))
    plans = build_queries(pipeline, session, bootstrap=place.bootstrap, checkpoint=checkpoint)
    queries = [plan.start(ONCE) for plan in plans]
    for query in queries:
        query.awaitTermination()
    return queries


def by_hand(place: Place, run: str) -> list[StreamingQuery]:
    session = place.session
    with closing(BlockingCluster(ClusterSettings(place.bootstrap))) as cluster:
        for sink in ("hours", "named"):
            ensure_topic(cluster, f"{run}.{sink}", TopicShape(2, 1, ()))

    def rows() -> DataFrame:
        stream = session.readStream.format("headrace").option("kafka.bootstrap.servers", place.bootstrap)
        records = (
            stream.option("subscribe", SOURCE).option("startingOffsets", "earliest").schema("value binary").load()
        )
        return records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")

    def start(frame: DataFrame, name: str, *columns: Any, **options: str) -> Any:
        value = F.to_json(F.struct("*")).alias("value")
        writer = frame.select(value, *columns).writeStream.format("headrace").trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", place.bootstrap).options(**options)
        return begun(writer.option("checkpointLocation", str(place.folder / run / name)))

    airlines = session.read.csv(str(place.folder / "airlines.csv"), schema="carrier string, airline string")
    windows = rows().withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour"), "origin")
    hours = windows.agg(F.count("*").alias("flights"), F.sum("minutes").alias("minutes"))
    hours = hours.select(F.col("window.start").alias("hour"), "origin", "flights", "minutes")
    named = rows().join(airlines, "carrier").select("id", "at", "origin", "airline")
    late, key = rows().where("minutes > 60"), F.col("id").cast("string").alias("key")
    topic = F.concat(F.lit(f"{run}.late."), "carrier").alias("topic")
    queries = [
        start(hours, "hours", topic=f"{run}.hours"),
        start(named, "named", key, topic=f"{run}.named"),
        start(late, "late", key, topic, **{"create.partitions": "1"}),
    ]
    for query in queries:
        query.awaitTermination()
    return queries


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """Starts a query and waits for its Python processes: three at once can be too many for Spark's ten seconds."""
    query = writer.start()
    while query.isActive and query.status["message"] == INITIALIZING:
        time.sleep(0.02)
    return query


def results(place: Place, run: str) -> Results:
    def values(topics: str) -> list[dict[str, Any]]:
        reader = place.session.read.format("headrace").option("kafka.bootstrap.servers", place.bootstrap)
        rows = reader.option("subscribePattern", topics).schema("value binary").load().collect()
        return [json.loads(row["value"]) for row in rows]

    hours = {
        (hour_of(datetime.fromisoformat(row["hour"])), row["origin"]): (row["flights"], row["minutes"])
        for row in values(f"{run}[.]hours")
    }
    named = Counter(row["airline"] for row in values(f"{run}[.]named"))
    return Results(hours, named, Counter(row["carrier"] for row in values(f"{run}[.]late[.].*")))


def measured(way: Callable[[Place, str], list[StreamingQuery]], place: Place, run: str) -> dict[str, Any]:
    began, cpu, jobs = time.perf_counter(), place.cpu_seconds(), spark_jobs(place.session)
    queries = way(place, run)
    seconds = time.perf_counter() - began
    return {
        "way": way.__name__,
        "run": run,
        "wall": seconds,
        "cpu": place.cpu_seconds() - cpu,
        "queries": len(queries),
        "batches": sum(len({report["batchId"] for report in query.recentProgress}) for query in queries),
        "jobs": spark_jobs(place.session) - jobs,
        "processes": len(process_tree(os.getpid())),
    }


def spark_jobs(session: SparkSession) -> int:
    """The number of Spark jobs so far."""
    return int(session.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def measured_at_last(
    way: Callable[[Place, str], list[StreamingQuery]], place: Place, number: int
) -> dict[str, Any]:
    name = f"{way.__name__.replace('_', '-')}-{number}"
    for attempt in range(ATTEMPTS):
        try:
            return measured(way, place, name if not attempt else f"{name}-again-{attempt}")
        except StreamingQueryException as error:
            if attempt == ATTEMPTS - 1 or not any(words in str(error) for words in NO_PYTHON):
                raise
            print(f"{name}: Python did not start in time; once more", flush=True)
            for query in place.session.streams.active:
                query.stop()
    raise AssertionError("the last attempt returns or raises")


def all_rounds(place: Place, given: argparse.Namespace, right: Results) -> list[dict[str, Any]]:
    """Runs all rounds; returns the results without those of the first, which only warms up."""
    give_up_s = time.monotonic() + given.minutes * 60
    found = []
    for number in range(given.rounds + 1):
        for way in (by_hand, as_pipeline) if number % 2 else (as_pipeline, by_hand):
            one = measured_at_last(way, place, number)
            agree = results(place, one["run"]) == right
            print(json.dumps(one | {"right": agree, "load": os.getloadavg()[0]}), flush=True)
            if not agree:
                sys.exit("the results differ from the computation in Python")
            found += [one] if number else []
        if found and time.monotonic() > give_up_s:
            print(f"{given.minutes:g} minutes are over after {number} rounds", flush=True)
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=6.0)
    given = parser.parse_args()
    os.environ["JAVA_HOME"] = str(find_java(os.environ).home)
    SESSION.update(SQL_DEFAULTS)
    with tempfile.TemporaryDirectory() as folder, BrokerProcess() as broker:
        place = Place(start_spark([]), broker, Path(folder))
        rows = flights(given.rows)
        fill(place, rows)
        report(all_rounds(place, given, expected(rows)))
        place.session.stop()


def report(found: Sequence[dict[str, Any]]) -> None:
    """Prints medians, and the ratio of each."""
    print(f"\n{'':12}{'by hand':>12}{'pipeline':>12}{'ratio':>8}")
    for figure in ("wall", "cpu", "queries", "batches", "jobs", "processes"):
        hand, pipeline = (
            median(one[figure] for one in found if one["way"] == way) for way in ("by_hand", "as_pipeline")
        )
        print(f"{figure:12}{hand:>12.1f}{pipeline:>12.1f}{pipeline / hand:>8.2f}")


if __name__ == "__main__":
    main()
