"""Where the bytes of a pipeline come from when it does not run: recent records of its topics, or rows of a test.

Every frame is a batch, even for streams, so that a step shows all its rows, including windows that are still open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from headrace.model.topics import TopicPartition
from headrace.spark.arrow.columns import ALL_COLUMNS, SPARK_TYPES
from headrace.spark.client.cluster import EARLIEST, LATEST, BlockingCluster
from headrace.spark.pipelines.compiling.sources import FILE, delta_rows, parquet_schema, topic_options
from headrace.spark.pipelines.definition import Source
from headrace.spark.pipelines.formats.choosing import other_options

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RecentOpening:
    """The latest `records` of each stream, and tables as a run reads them."""

    session: SparkSession
    cluster: BlockingCluster
    bootstrap: str
    records: int

    def topics(self, source: Source, columns: Sequence[str], *, streaming: bool) -> DataFrame:
        options = topic_options(source, self.bootstrap, columns)
        options = {name: value for name, value in options.items() if name in _READ or name.startswith("kafka.")}
        if streaming:
            options["startingOffsets"] = json.dumps(self._starts(source))
        ddl = ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)
        return self.session.read.format("headrace").options(**options).schema(ddl).load()

    def lines(self, source: Source, *, streaming: bool) -> DataFrame:
        options = other_options(source.options, source.format)
        found = self.session.read.format("text").options(**_of_batches(options)).load(source.files)
        return self._some(found.select("value", F.col("_metadata.file_path").alias(FILE)), streaming)

    def parquet(self, source: Source, *, streaming: bool) -> DataFrame:
        if source.format == "delta":
            return self._some(delta_rows(self.session.read, source), streaming)
        schema = parquet_schema(self.session, source)
        reader = self.session.read.format("parquet").options(**_of_batches(source.options))
        found = reader.schema(schema).load(source.files)
        return self._some(found.select("*", F.col("_metadata.file_path").alias(FILE)), streaming)

    def _some(self, rows: DataFrame, streaming: bool) -> DataFrame:
        return rows.limit(self.records) if streaming else rows

    def _starts(self, source: Source) -> dict[str, dict[str, int]]:
        """By topic and partition, as the option takes it."""
        topics = self.cluster.topics(None if source.pattern else source.topics)
        if source.pattern:
            wanted = re.compile(source.pattern)
            topics = {name: topic for name, topic in topics.items() if wanted.fullmatch(name)}
        places = [TopicPartition(name, partition) for name, topic in topics.items() for partition in topic.leaders]
        first = self.cluster.list_offsets(dict.fromkeys(places, EARLIEST))
        end = self.cluster.list_offsets(dict.fromkeys(places, LATEST))
        each = -(-self.records // max(len(places), 1))
        starts: dict[str, dict[str, int]] = {}
        for place in places:
            begins, ends = first[place], end[place]
            if begins is not None and ends is not None:
                start = max(begins.offset, ends.offset - each)
                starts.setdefault(place.topic, {})[str(place.partition)] = start
        return starts


_READ = frozenset({"subscribe", "subscribePattern", "includeHeaders"})
_OF_STREAMS = frozenset({"maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "cleansource"})


def _of_batches(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in _OF_STREAMS}


@dataclass(frozen=True, slots=True)
class GivenOpening:
    """Rows by the name of their source; a source that is not named is empty.

    Of topics: values of `ALL_COLUMNS`. Of lines: (text, file). Of Parquet: the schema's values.
    """

    session: SparkSession
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def topics(self, source: Source, columns: Sequence[str], *, streaming: bool) -> DataFrame:
        ddl = ", ".join(f"{name} {SPARK_TYPES[name]}" for name in ALL_COLUMNS)
        return self._frame(source, ddl).select(*columns)

    def lines(self, source: Source, *, streaming: bool) -> DataFrame:
        return self._frame(source, f"value string, {FILE} string")

    def parquet(self, source: Source, *, streaming: bool) -> DataFrame:
        schema = parquet_schema(self.session, source)
        return self._frame(source, StructType([*schema.fields]).add(FILE, StringType()))

    def _frame(self, source: Source, schema: StructType | str) -> DataFrame:
        return self.session.createDataFrame(list(self.rows.get(source.name, ())), schema)
