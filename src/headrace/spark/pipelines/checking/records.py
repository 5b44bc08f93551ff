"""Compares the latest records of a source with its schema, so that a change is reported before it does harm.

All findings are warnings: records that cannot be decoded go to the dead letters, fields that the schema does not
name are not read, and columns that no record has are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.pipelines.compiling.sources import malformed_records
from headrace.spark.pipelines.definition import Pipeline, Problem, Source
from headrace.spark.pipelines.explaining.spark_words import SPARK_ERRORS
from headrace.spark.pipelines.formats.choosing import DECODED, declared_schema
from headrace.spark.pipelines.formats.decoding import REASON
from headrace.spark.pipelines.trying.inference import ddl_of, guess, quoted
from headrace.spark.pipelines.trying.openings import RecentOpening

RECORDS = 20
MANY = 0.5
"""The share of malformed records above which they are more than a few broken ones."""
CHANGED = "Has the schema of the topic changed?"


def check_records(
    pipeline: Pipeline, session: SparkSession, cluster: BlockingCluster, bootstrap: str, records: int = RECORDS
) -> list[Problem]:
    """Problems with topics that can be read now; problems with the others are reported elsewhere."""
    opening = RecentOpening(session, cluster, bootstrap, records)
    found: list[Problem] = []
    for source in pipeline.sources:
        if source.kind == "topics" and source.format in DECODED:
            with suppress(KafkaError, ClientError, *SPARK_ERRORS):
                found += _problems(pipeline, source, opening)
    return found


def _problems(pipeline: Pipeline, source: Source, opening: RecentOpening) -> Iterator[Problem]:
    values = [row[0] for row in opening.topics(source, ["value"], streaming=True).collect()]
    if not values:
        return
    key = "schema" if source.schema is not None else "schema_file"
    reasons = [row[0] for row in malformed_records(opening, source).select(REASON).collect()]
    if len(reasons) >= MANY * len(values):
        what = (
            f"{len(reasons)} of the latest {len(values)} records of {source.name} cannot be decoded: {reasons[0]}"
        )
        yield pipeline.problem(source, key, what, f"They go to the dead letters. {CHANGED}", warning=True)
    if source.format == "json":
        for what, advice in differences(declared_schema(source).names, values):
            yield pipeline.problem(source, key, f"source {source.name}: {what}", advice, warning=True)


def differences(columns: Sequence[str], values: Sequence[bytes | None]) -> Iterator[tuple[str, str]]:
    """Differences between the columns of a schema and the fields of records. Spark ignores the case of names."""
    rows = [row for row in map(_object, values) if row is not None]
    known = {name.lower() for name in columns}
    fields = {name.lower(): name for row in rows for name in row}
    new = [name for lower, name in fields.items() if lower not in known]
    if new:
        kinds = guess(
            [json.dumps({name: row[name] for name in new if name in row}).encode() for row in rows]
        ).fields
        written = ", ".join(f"{quoted(name)} {ddl_of(kinds.get(name))}" for name in new)
        yield (
            f"records have fields that the schema does not name: {', '.join(new)}",
            f"To read them add {written}.",
        )
    gone = [name for name in columns if name.lower() not in fields]
    if gone and rows:
        yield f"none of the latest {len(rows)} records has {', '.join(gone)}", f"The columns are null. {CHANGED}"


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = None if value is None else json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
