"""A pipeline as its file declares it: plain values, without access to files or Spark.

`loading` makes these from YAML. A loaded `Pipeline` has these properties:
- paths (`files`, `schema_file`, `python_file`, `path`, `checkpoint`) are absolute, or addresses such as s3://...;
- intervals for Spark (`Watermark.delay`, `Step.within`) are text that it reads: "10 minutes", "1500 milliseconds";
- `Step.inputs` names the views a step reads. For SQL they are found in its text: perhaps too many, never too few;
- `dead_letter` is filled in where records are decoded: None says that malformed ones are counted and dropped.

Lines and columns count from 1, as editors do. Each part knows its place and those of its keys: `part.at("topic")`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.spark.pipelines.cron import Cron

SourceKind = Literal["topics", "table", "files"]
StepKind = Literal["sql", "python", "python_rows", "deduplicate", "filter", "select", "watermark"]
SinkKind = Literal["topic", "parquet", "delta", "console"]
OutputMode = Literal["append", "update", "complete"]

DEFAULT_BOOTSTRAP = "localhost:9092"
BROKER_DEFAULT = -1
MALFORMED = "malformed"
"""The metrics of a query that count malformed records: this, a dot and the name of the source or step."""
LATE = "late"
"""The same for records that were sent to the topic of late ones."""
METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""Where a record came from: columns beside the decoded ones of a topic."""


class Place(NamedTuple):
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Part:
    """Anything that has a place in the file."""

    name: str
    line: int
    column: int = field(default=1, kw_only=True)
    places: Mapping[str, Place] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    def at(self, key: str) -> Place:
        """The place of a key's value, or of the part itself if the file does not have that key."""
        return self.places.get(key, Place(self.line, self.column))


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str
    line: int = 1


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The name and Spark type under which a table shows the key of its records."""

    name: str
    type: str = "string"


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """How to create a sink's topic if it does not exist. BROKER_DEFAULT: as CreateTopics takes it on the wire."""

    partitions: int = BROKER_DEFAULT
    replication: int = BROKER_DEFAULT
    config: Mapping[str, str] = field(default_factory=dict)
    line: int = 1


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Master None means that of spark-submit, else local[*]."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source(Part):
    """A view that others read: topics as a stream, a compacted topic as a table, or files."""

    kind: SourceKind
    topics: tuple[str, ...] = ()
    """One name for a table; empty for files and for a pattern."""
    pattern: str | None = None
    files: str | None = None
    format: str = "raw"
    """json | avro | csv | text | raw; for files json | csv | text | parquet | delta."""
    schema: str | None = None
    """DDL as Spark reads it. With `schema_file` this is None."""
    schema_file: str | None = None
    """An Avro schema (.avsc), or for json and csv a schema as Spark writes it in JSON (.json) or DDL (.ddl)."""
    starting: str = "earliest"
    """earliest | latest | -10m | an ISO time with its zone."""
    watermark: Watermark | None = None
    dead_letter: str | None = None
    late_rows: str | None = None
    """The topic for records that come too late for the watermark."""
    key: KeyColumn | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    """Files read once as a table (`table: true`), not followed as a stream."""
    connector: str | None = None
    """The file of a connector that feeds the topics while the pipeline runs."""


@dataclass(frozen=True, slots=True)
class Step(Part):
    """A view made of earlier ones. Which fields count follows from `kind`."""

    kind: StepKind
    inputs: tuple[str, ...] = ()
    text: str = ""
    """sql: the query; filter: the condition; python, python_rows: as written ("steps.py:enrich")."""
    columns: tuple[str, ...] = ()
    """deduplicate: columns; select: expressions."""
    within: str | None = None
    watermark: Watermark | None = None
    python_file: str | None = None
    function: str | None = None
    schema: str | None = None
    """python_rows: the columns that the function returns, as DDL."""
    dead_letter: str | None = None
    """python_rows: the topic for records for which the function fails; None: they are counted and dropped."""
    text_line: int = 1
    """The line of the file on which the text itself begins (for a block `|`, the one after the key)."""
    text_indent: int = 0
    """By how many characters the lines of the text are indented in the file, when it is a block."""
    text_column: int = 1
    """The column at which the first line of the text begins."""
    folded: str = ""
    """As the file has it, when several lines there are one in `text` (`>`, or a plain text over many lines)."""

    def place_in_text(self, line: int, column: int = 1) -> Place:
        """The position in the file of a position inside `text`; both count from 1."""
        if self.folded:
            return self._place_in_folded(line, column)
        if line == 1:
            return Place(self.text_line, self.text_column + column - 1)
        return Place(self.text_line + line - 1, self.text_indent + column)

    def _place_in_folded(self, line: int, column: int) -> Place:
        """Folding changes only white space: the nth other character is the same in both."""
        lines = self.text.split("\n")
        before = "".join([*lines[: line - 1], lines[min(line, len(lines)) - 1][: column - 1]])
        left = sum(not character.isspace() for character in before)
        at = Place(self.text_line, self.text_column)
        for character in self.folded:
            if not character.isspace():
                if left == 0:
                    break
                left -= 1
            at = Place(at.line + 1, 1) if character == "\n" else Place(at.line, at.column + 1)
        return at


@dataclass(frozen=True, slots=True)
class Sink(Part):
    """Where a view goes: one streaming query."""

    kind: SinkKind
    input: str
    topic: str = ""
    """May hold {column}: the records are split into many topics by the value of it."""
    format: str = "json"
    """json | avro | csv | text | raw; topics only."""
    key: str | None = None
    timestamp: str | None = None
    """The column with the time of the records."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Column by header."""
    delete: str | None = None
    """A SQL condition: rows for which it holds become tombstones."""
    schema_file: str | None = None
    path: str = ""
    partition_by: tuple[str, ...] = ()
    mode: OutputMode = "append"
    create: TopicCreation | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    connector: str | None = None
    """The file of a connector that reads the topic while the pipeline runs."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where, and what to do about it. A warning does not stop the pipeline."""

    path: str
    line: int
    column: int
    what: str
    advice: str | None = None
    warning: bool = False

    def __str__(self) -> str:
        kind = "warning: " if self.warning else ""
        shown = f"{self.path}:{self.line}:{self.column}: {kind}{self.what}"
        return shown if self.advice is None else f"{shown}\n    {self.advice}"


@dataclass(frozen=True, slots=True)
class Pipeline(Part):
    path: str
    """The file, as the user named it: what messages show."""
    bootstrap: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of a Kafka client that say how to connect. Sources and sinks have them among their options."""
    checkpoint: str | None = None
    schedule_s: float | None = None
    cron: Cron | None = None
    """Runs at these times, in place of `schedule_s`."""
    every_s: float | None = None
    spark: SparkSettings = SparkSettings()
    sources: tuple[Source, ...] = ()
    steps: tuple[Step, ...] = ()
    sinks: tuple[Sink, ...] = ()

    @property
    def views(self) -> tuple[Source | Step, ...]:
        """What steps and sinks can read, in order."""
        return (*self.sources, *self.steps)

    @property
    def ends(self) -> tuple[Source | Sink, ...]:
        """Where records come in and go out."""
        return (*self.sources, *self.sinks)

    def source(self, name: str) -> Source | None:
        return next((source for source in self.sources if source.name == name), None)

    def step(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)

    def problem(
        self, part: Part, key: str, what: str, advice: str | None = None, *, warning: bool = False
    ) -> Problem:
        """At the value of a key of one of its parts, or at the part when the file does not give the key."""
        line, column = part.at(key)
        return Problem(self.path, line, column, what, advice, warning)


class PipelineError(Exception):
    """The file cannot be run as it is: every problem that was found, in the order of the file."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
