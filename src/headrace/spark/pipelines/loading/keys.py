"""Every key of a pipeline file: its type, its meaning, and the keys it can be combined with.

docs/pipeline-reference.md is written from these tables.
`goes_with` names the kinds of source or sink that have the key; empty means all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TOPIC_FORMATS = ("json", "avro", "csv", "text", "raw")
FILE_FORMATS = ("json", "csv", "text", "parquet", "delta")
MODES = ("append", "update", "complete")
AS_BROKER = "as the broker has it"


@dataclass(frozen=True, slots=True)
class Key:
    type: str
    meaning: str
    default: str = ""
    required: bool = False
    goes_with: tuple[str, ...] = ()


Keys = Mapping[str, Key]

PIPELINE_KEYS: Keys = {
    "name": Key(
        "lower case letters, digits, `-`, `_`",
        "Name of the pipeline; used for its state, Spark queries and consumer groups.",
        "the file's name",
    ),
    "bootstrap": Key(
        "host:port, ...",
        "Bootstrap brokers. `--bootstrap-server` and `HEADRACE_BOOTSTRAP_SERVERS` override it.",
        "localhost:9092",
    ),
    "client": Key(
        "mapping",
        "How to connect to a secured cluster, for every source, sink and dead-letter topic: `security.protocol`, "
        "`sasl.*` and `ssl.*` of a [client](security.md#clients). `--client-config FILE` overrides it; a source "
        "or sink can have others in its `options` (`kafka.security.protocol`, ...).",
    ),
    "checkpoint": Key(
        "path",
        "Where Spark keeps its progress, in a folder named after the pipeline, so that a restart continues there.",
        "the user's state directory",
    ),
    "schedule": Key(
        "duration, or cron",
        "Process all existing records, then wait until this long after the last start; or run at the times of a "
        'cron schedule (`"30 2 * * mon-fri"`, `@daily`), in local time.',
    ),
    "every": Key(
        "duration", "How often a continuous pipeline starts a micro-batch.", "as soon as there are records"
    ),
    "spark": Key("mapping", "Spark settings: see below."),
    "sources": Key("mapping: name to source", "Inputs. The names are views in SQL.", required=True),
    "steps": Key("list of steps", "Transformations, in order. Each defines a view that later steps can use."),
    "sinks": Key(
        "mapping: name to sink", "Outputs. Sinks that read the same streams share a query.", required=True
    ),
}

SPARK_KEYS: Keys = {
    "master": Key("text", "Where Spark runs, such as `spark://host:7077`.", "from spark-submit, else `local[*]`"),
    "conf": Key("mapping", "Settings of Spark, such as `spark.sql.shuffle.partitions: 4`."),
}

SOURCE_KEYS: Keys = {
    "topic": Key("topic", "The topic to read as a stream.", goes_with=("topics",)),
    "topics": Key("list of topics", "Several topics as one stream.", goes_with=("topics",)),
    "pattern": Key(
        "regular expression",
        "All topics whose whole name matches, including those created later.",
        goes_with=("topics",),
    ),
    "table": Key(
        "topic, or `true`",
        "A compacted topic as a table that follows its updates: the latest value of each key; a record without "
        "value deletes its key. `true` beside `files`: read them once as a table.",
        goes_with=("table", "files"),
    ),
    "files": Key("path with `*`", "Files as a stream: new ones are read as they appear.", goes_with=("files",)),
    "format": Key(
        "json, avro, csv, text, raw; files: json, csv, text, parquet, delta",
        "How values are written. `raw` gives the columns of the source `headrace` as they are.",
        "raw; files: by their extension",
    ),
    "schema": Key("DDL", 'Columns and types for json and csv: `"ts timestamp, host string"`.'),
    "schema_file": Key("path", "The schema in a file: `.avsc` for avro; `.ddl`, or `.json` as Spark writes it."),
    "starting": Key(
        "earliest, latest, `-10m`, a time with its zone",
        "Where the first run starts. Later runs continue where the last one stopped.",
        "earliest",
        goes_with=("topics",),
    ),
    "watermark": Key(
        "mapping: column, delay",
        "Event-time column, and how late a record may arrive.",
        goes_with=("topics", "files"),
    ),
    "dead_letter": Key(
        "topic, or `false`",
        "Topic for records that cannot be decoded; `false` counts and drops them.",
        "`<name of the pipeline>.dead-letter`",
    ),
    "late_rows": Key(
        "topic",
        "Topic for records that come too late for `watermark`: they are sent there and not to the steps. Without "
        "it Spark drops what is too late for a window, join or deduplication, and it is only counted.",
        goes_with=("topics",),
    ),
    "key": Key(
        "name, or name and type",
        "Column for the record's key, with its type.",
        "type string",
        goes_with=("table",),
    ),
    "connector": Key(
        "path",
        "The file of a [connector](connectors.md) that creates and feeds the topic while the pipeline runs.",
        goes_with=("topics", "table"),
    ),
    "options": Key(
        "mapping",
        "Any option of the source `headrace`, or of Spark's reader of files; with the name of the format in "
        "front, of the format: `csv.delimiter`.",
    ),
}

WATERMARK_KEYS: Keys = {
    "column": Key("column", "A timestamp column: when the event happened.", required=True),
    "delay": Key("duration", "How late a record may arrive and still be counted.", required=True),
}

STEP_KEYS: Keys = {
    "name": Key("name", "The view that this step makes.", required=True),
    "from": Key(
        "name, or list of names", "Input of the step. SQL names it in the query; Python can take several."
    ),
    "sql": Key(
        "SQL",
        "A query over sources and earlier steps. Decoded topics also have `_key`, `_topic`, `_partition`, "
        "`_offset`, `_timestamp` and `_headers`.",
    ),
    "filter": Key("SQL condition", "Keep the rows of `from` for which it is true."),
    "select": Key("list of SQL expressions", "A row with these columns for each row of `from`."),
    "deduplicate": Key("mapping: columns, within", "One row for each value of the columns."),
    "watermark": Key(
        "mapping: column, delay", "Event time for later steps, when the source does not have the column yet."
    ),
    "python": Key(
        "file.py:function", "A function that takes a DataFrame for each name in `from` and returns one."
    ),
    "python_rows": Key(
        "file.py:function",
        "A function that takes a row as a dict and returns a dict, a list of dicts, or None to drop the row. If "
        "it raises, the record goes to the dead-letter topic and the pipeline continues.",
    ),
    "schema": Key("DDL", "The columns that `python_rows` returns: `id bigint, at timestamp, score double`."),
    "dead_letter": Key(
        "topic, or `false`",
        "Topic for records for which `python_rows` fails; `false` counts and drops them.",
        "as its source has it",
    ),
}
STEP_KINDS = ("sql", "filter", "select", "deduplicate", "watermark", "python", "python_rows")

DEDUPLICATE_KEYS: Keys = {
    "columns": Key("list of columns", "Rows that agree in all of these are the same.", required=True),
    "within": Key("duration", "How far apart in event time duplicates can be; needs a watermark."),
}

SINK_KEYS: Keys = {
    "from": Key("name", "The source or step to write.", required=True),
    "topic": Key(
        "topic, with `{column}`",
        "The topic to write to. `logs.{service}` splits the records into many topics.",
        goes_with=("topic",),
    ),
    "parquet": Key("path", "A directory of Parquet files.", goes_with=("parquet",)),
    "delta": Key("path", "A Delta table, which is created if it does not exist.", goes_with=("delta",)),
    "console": Key("`true`", "Show the rows on the screen.", goes_with=("console",)),
    "format": Key(
        "json, avro, csv, text, raw",
        "How values are written. `raw` takes key, value, partition, headers and timestamp as they are.",
        "json",
        goes_with=("topic",),
    ),
    "key": Key("column", "The key of the records.", "none", goes_with=("topic",)),
    "timestamp": Key("column", "The timestamp of the records.", "now", goes_with=("topic",)),
    "headers": Key("mapping: header to column", "The headers of the records.", "none", goes_with=("topic",)),
    "delete": Key(
        "SQL condition",
        "Rows for which it holds are written as tombstones: the key without a value, which deletes it from a "
        "compacted topic. Needs `key`.",
        goes_with=("topic",),
    ),
    "schema_file": Key("path", "The Avro schema (`.avsc`) to write with.", goes_with=("topic",)),
    "create": Key(
        "`true`, or mapping: partitions, replication, config",
        "Create the topic if it does not exist.",
        goes_with=("topic",),
    ),
    "connector": Key(
        "path",
        "The file of a [connector](connectors.md) that reads the topic while the pipeline runs.",
        goes_with=("topic",),
    ),
    "partition_by": Key("list of columns", "A directory for each value of these.", goes_with=("parquet", "delta")),
    "mode": Key(
        "append, update, complete",
        "Which rows of an aggregate are written: final ones, changed ones, or all of them. Parquet appends.",
        "append",
    ),
    "options": Key(
        "mapping",
        "Any option of the sink `headrace`, or of Spark's writer; with the name of the format in front, of the "
        "format: `csv.delimiter`.",
    ),
}

CREATE_KEYS: Keys = {
    "partitions": Key("whole number", "How many partitions.", AS_BROKER),
    "replication": Key("whole number", "How many replicas.", AS_BROKER),
    "config": Key("mapping", "Settings of the topic, such as `retention.ms: 86400000`."),
}

SECTIONS: Mapping[str, Keys] = {
    "The file": PIPELINE_KEYS,
    "spark": SPARK_KEYS,
    "A source": SOURCE_KEYS,
    "watermark": WATERMARK_KEYS,
    "A step": STEP_KEYS,
    "deduplicate": DEDUPLICATE_KEYS,
    "A sink": SINK_KEYS,
    "create": CREATE_KEYS,
}
