"""The page docs/spark-source.md: columns and options of `format("headrace")`, from the tables that check them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.spark.option_table import Option
from headrace.spark.sink.options import PRODUCER_SETTINGS, SINK_OPTIONS
from headrace.spark.sink.options import REFUSED as REFUSED_BY_SINK
from headrace.spark.source.option_names import CONSUMER_SETTINGS, REFUSED_SETTINGS, SOURCE_OPTIONS

_HEAD = """# The Spark format `headrace`

{notice}

A source and a sink for batches and streams, with the columns and options of Spark's own `kafka` format and no
jar to fetch. They work with any broker that speaks Kafka's protocol.

<!-- not run: a piece of a program; pipelines.md has a whole one that is run -->
```python
orders = (
    spark.readStream.format("headrace")
    .option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "orders")
    .option("startingOffsets", "-1h")
    .load()
)
```

Option names are case-insensitive. A name close to a known one is an error that suggests it; any
other unknown name is ignored, because Spark passes its own options to every format. Settings of a
secured cluster are those of [clients](security.md#clients), each after `kafka.`.

## Columns of the source

| column | type | |
|---|---|---|
| `key` | binary | null when the record has none |
| `value` | binary | null for a tombstone |
| `topic` | string | |
| `partition` | int | |
| `offset` | bigint | |
| `timestamp` | timestamp | in milliseconds |
| `timestampType` | int | 0: set by the producer; 1: set by the broker |
| `headers` | array<struct<key: string, value: binary>> | with `includeHeaders` |

`.schema("value binary")` reads only the columns it names, and is faster.
"""

_OFFSETS = """
## Where a stream continues

The position is in the checkpoint, as `{"orders": {"0": 12}}` with two additional keys beside the topics: `@ids`,
the ids of the topics, and `@start`, where the first batch began. Such an offset, and one of Spark's `kafka`
format, can be given as `startingOffsets`. Partitions that are added while the query runs are read from their
beginning. A run with `trigger(availableNow=True)` ends where the logs ended when it started.

When the next records are gone, the query fails with one of these errors; with `failOnDataLoss=false` it
warns and continues.

| error | what happened | continues |
|---|---|---|
| `TopicDeleted` | the topic is gone, or no longer read | without it |
| `TopicRecreated` | the topic was deleted and created again | at the first record of the new one |
| `PartitionGone` | the topic exists, the partition does not | without it |
| `OffsetAgedOut` | retention or DeleteRecords removed the next records | at the first available record |
| `OffsetBeyondEnd` | the log ends before the position: it was truncated | at its end |
| `NewPartitionTrimmed` | a partition that appeared has already lost its first records | at the first one left |

## Filters

With `spark.sql.python.filterPushdown.enabled=true` a batch skips what conditions on `topic`, `partition`,
`offset` and lower bounds of `timestamp` rule out.

## Differences from Spark's `kafka` format

- Transactions: `read_committed` is the default.
- Partitions that offsets in JSON leave out have a default; Spark demands all of them.
- Start positions by age (`-10m`) and by ISO 8601 times.
- Limits by bytes, and splitting by size when nothing else was asked for.
- `maxTriggerDelay` counts from the last batch that read something.
- `endingTimestamp` in a stream is refused like the other ends.
- A batch write needs `.mode("append")`: Spark refuses its own default, `errorifexists`, for every format of its
  newer interface (`UNSUPPORTED_DATA_SOURCE_SAVE_MODE`), before the format is called.
"""

_SINK = """
## Columns of the sink

| column | type | |
|---|---|---|
| `value` | string or binary | required; null is a tombstone |
| `key` | string or binary | chooses the partition, as with every other client |
| `topic` | string | the topic of the row, if the option `topic` is not set |
| `partition` | int | overrides the key |
| `headers` | array<struct<key: string, value: binary>> | |
| `timestamp` | timestamp | in milliseconds; the current time if it is null or missing |

Other columns are ignored, so that rows of the source can be written back as they are.

A stream is written [exactly once](spark-sink.md) where the cluster can prepare transactions, as Headrace can, and
at least once elsewhere; a batch at least once.
"""


def options_page(notice: str) -> str:
    return "".join(
        [
            _HEAD.replace("{notice}", notice),
            _table("Options of the source", SOURCE_OPTIONS),
            _table("Settings of a consumer", CONSUMER_SETTINGS),
            "\nOther settings of a Kafka consumer are accepted without effect. Refused are:\n\n",
            _refused(REFUSED_SETTINGS),
            _OFFSETS,
            _SINK,
            _table("Options of the sink", SINK_OPTIONS),
            _table("Settings of a producer", PRODUCER_SETTINGS),
            "\nRefused are:\n\n",
            _refused(REFUSED_BY_SINK),
        ]
    )


def _table(title: str, options: Iterable[Option]) -> str:
    """With a column for where options apply, when that differs."""
    rows = list(options)
    if all(option.use == "both" for option in rows):
        head = "| name | default | meaning |\n|---|---|---|\n"
        lines = [_row(f"`{option.name}`", option.default, option.meaning) for option in rows]
    else:
        head = "| name | default | in | meaning |\n|---|---|---|---|\n"
        lines = [_row(f"`{option.name}`", option.default, option.use, option.meaning) for option in rows]
    return f"\n## {title}\n\n{head}{''.join(lines)}"


def _refused(settings: Mapping[str, tuple[str, str]]) -> str:
    head = "| setting | why | instead |\n|---|---|---|\n"
    return head + "".join(_row(f"`kafka.{name}`", *said) for name, said in sorted(settings.items()))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
