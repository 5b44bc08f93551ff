"""The options of sources and sinks: are the names known, and do they apply where they are?

Spark ignores unknown options, and so does the format `headrace` in a program, because Spark passes it options of
its own. In a pipeline file every option was written on purpose: one that is unknown is an error. Names with a dot
that belong to Kafka's clients or to Hadoop (`kafka.*`, `fs.s3a.*`) are too many to list: these are reported only
if they resemble a known one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.spark.option_table import Option, near_name
from headrace.spark.pipelines.checking.option_names import (
    CONSOLE_OPTIONS,
    DELTA_FILE_OPTIONS,
    DELTA_OPTIONS,
    FILE_OPTIONS,
    FILES_ONLY,
    FORMAT_OPTIONS,
    FRAMINGS,
    PARQUET_FILE_OPTIONS,
    PARQUET_SINK_OPTIONS,
    SINK,
    SOURCE,
    WITHOUT_USE,
)
from headrace.spark.pipelines.definition import Pipeline, Problem, Sink, Source
from headrace.spark.pipelines.nearest import nearest
from headrace.spark.sink.options import CREATE_CONFIG, SINK_OPTIONS, parse_sink_options
from headrace.spark.source.option_names import SOURCE_OPTIONS
from headrace.spark.source.options import OptionError, parse_source_options

Problems = Iterator[Problem]

_BY_STARTING = "starting"
_BY_NAMES = "the name of the pipeline and of the sink"
_SET_BY_US = {
    "subscribe": "topic or topics",
    "subscribepattern": "pattern",
    "assign": "topic or topics",
    "startingoffsets": _BY_STARTING,
    "startingtimestamp": _BY_STARTING,
    "startingoffsetsbytimestamp": _BY_STARTING,
    "groupid": _BY_NAMES,
    "kafka.group.id": _BY_NAMES,
    "includeheaders": "Headrace",
    "stopfile": "Headrace",
    "kafka.bootstrap.servers": "bootstrap",
    "bootstrap.servers": "bootstrap",
    "topic": "topic",
    "checkpointlocation": "checkpoint",
    "path": "the path of the sink or source",
}
_BATCH_ONLY = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
_REFERENCE = "docs/pipeline-reference.md"
_LEAVE_OUT = "Leave it out."


class Known(NamedTuple):
    """The names without a prefix that are valid in one place, and where they are listed."""

    options: Sequence[Option]
    listed: str
    takes_others: tuple[str, ...] = ()
    """Beginnings of names that belong to others; "." is any name with a dot."""

    def has(self, option: str) -> bool:
        return option.partition("#")[0].lower() in {one.name.lower() for one in self.options}

    def is_of_others(self, option: str) -> bool:
        if "." in self.takes_others and "." in option:
            return near_name(option, [one.name for one in self.options]) is None
        return option.lower().startswith(self.takes_others)


def _in_reference(title: str) -> str:
    return f"{_REFERENCE}, under {title}"


_TOPICS = Known(SOURCE_OPTIONS, "docs/spark-source.md", ("kafka.",))
_TOPIC_SINK = Known(SINK_OPTIONS, "docs/spark-source.md", ("kafka.", CREATE_CONFIG))
_FILES = Known(FILE_OPTIONS, _in_reference("Options of files"), (".",))
_PARQUET_FILES = Known(PARQUET_FILE_OPTIONS, _in_reference("Options of Parquet files"), (".",))
_PARQUET = Known(PARQUET_SINK_OPTIONS, _in_reference("Options of a Parquet sink"), (".",))
_DELTA_FILES = Known(DELTA_FILE_OPTIONS, _in_reference("Options of a Delta table that is read"), ("storage.",))
_DELTA = Known(DELTA_OPTIONS, _in_reference("Options of a Delta sink"), ("storage.",))
_CONSOLE = Known(CONSOLE_OPTIONS, _in_reference("Options of the console"))


def known_options(part: Source | Sink) -> Known:
    if isinstance(part, Sink):
        return {"topic": _TOPIC_SINK, "parquet": _PARQUET, "delta": _DELTA, "console": _CONSOLE}[part.kind]
    if part.kind != "files":
        return _TOPICS
    return {"parquet": _PARQUET_FILES, "delta": _DELTA_FILES}.get(part.format, _FILES)


def check_options(pipeline: Pipeline) -> Problems:
    for part in pipeline.ends:
        found = [problem for option in part.options for problem in _wrong(pipeline, part, option)]
        yield from found or _said_by_headrace(pipeline, part)


class _Wrong(NamedTuple):
    what: str
    advice: str = _LEAVE_OUT


def _wrong(pipeline: Pipeline, part: Source | Sink, option: str) -> Problems:
    found = _misplaced(part, option) or _of_a_format(part, option) or _unknown(part, option)
    if found is not None:
        yield pipeline.problem(part, f"options.{option}", found.what, found.advice)


def _misplaced(part: Source | Sink, option: str) -> _Wrong | None:
    by = _SET_BY_US.get(option.lower())
    if by is not None:
        return _Wrong(f"{option} is set by {by}", "Leave the option out.")
    if isinstance(part, Source) and option.lower() in _BATCH_ONLY:
        return _Wrong(f"{option} has no effect in a stream")
    return None


def _of_a_format(part: Source | Sink, option: str) -> _Wrong | None:
    """The problem with an option that has a format's name in front, such as `csv.sep`; None if it is fine."""
    prefix, dot, name = option.partition(".")
    if not dot or prefix.lower() not in FORMAT_OPTIONS:
        return None
    own = _own_format(part)
    if prefix.lower() != own:
        kind = "source" if isinstance(part, Source) else "sink"
        is_what = f"is {own}" if own else "has no such format"
        return _Wrong(f"{option} is an option of the format {prefix.lower()}, and {kind} {part.name} {is_what}")
    if prefix == own and _finds(own, name) is not None:
        return _without_use(part, option, name) or _wrong_value(option, part.options[option])
    if known_options(part).has(name):  # as for files: the options of the reader have no prefix
        return _Wrong(f"there is no option {option}", f"Write {name}, without {prefix}.")
    if name.lower() in WITHOUT_USE:
        return _Wrong(f"{option} has no effect here: {WITHOUT_USE[name.lower()]}")
    names = [f"{own}.{one.name}" for one in FORMAT_OPTIONS[own]]
    listed = f"The list is in {_in_reference(f'Options of {own}')}." if names else f"The format {own} has none."
    return _Wrong(f"there is no option {option}", _meant(option, names, listed))


def _own_format(part: Source | Sink) -> str | None:
    return None if isinstance(part, Sink) and part.kind != "topic" else part.format


def _finds(format_name: str, name: str) -> Option | None:
    """A format's option by name. Spark ignores the case of names; those of Avro are read by us, as written."""
    wanted = name if format_name == "avro" else name.lower()
    known = {one.name if format_name == "avro" else one.name.lower(): one for one in FORMAT_OPTIONS[format_name]}
    return known.get(wanted)


def _without_use(part: Source | Sink, option: str, name: str) -> _Wrong | None:
    known = _finds(part.format, name)
    assert known is not None
    here = SOURCE if isinstance(part, Source) else SINK
    if known.use in (SOURCE, SINK) and known.use != here:
        return _Wrong(f"{option} has no effect in a {here}: it is for a {known.use}")
    if name.lower() in FILES_ONLY and isinstance(part, Source) and part.kind != "files":
        return _Wrong(f"{option} is for files: {FILES_ONLY[name.lower()]}")
    return None


def _wrong_value(option: str, value: str) -> _Wrong | None:
    if option.lower() == "avro.framing" and value not in FRAMINGS:
        return _Wrong(f"{option} cannot be {value}", f"It is one of {', '.join(FRAMINGS)}.")
    return None


def _unknown(part: Source | Sink, option: str) -> _Wrong | None:
    known, own = known_options(part), _own_format(part) or ""
    if option.partition(".")[0].lower() in FORMAT_OPTIONS or known.has(option) or known.is_of_others(option):
        return None
    if own in FORMAT_OPTIONS and _finds(own, option) is not None:
        return _Wrong(f"{option} is an option of the format", f"Write {own}.{option}.")
    names = [one.name for one in known.options]
    if own in FORMAT_OPTIONS:
        names += [f"{own}.{one.name}" for one in FORMAT_OPTIONS[own]]
    return _Wrong(f"there is no option {option}", _meant(option, names, f"The list is in {known.listed}."))


def _meant(option: str, names: Sequence[str], listed: str) -> str:
    """Advice with the nearest name, with or without the name of a format in front, and the place of the list."""
    bare = {name.rpartition(".")[2]: name for name in reversed(names)}
    near = nearest(option, names) or bare.get(nearest(option, bare) or "")
    return listed if near is None else f"Did you mean {near}? {listed}"


def _said_by_headrace(pipeline: Pipeline, part: Source | Sink) -> Problems:
    """Problems that the source or sink itself finds in its options: values, and settings that it refuses."""
    try:
        if isinstance(part, Sink) and part.kind == "topic":
            parse_sink_options({**_BROKER, "topic": "t", **_for_headrace(part)})
        elif isinstance(part, Source) and part.kind != "files":
            where = {"subscribepattern": part.pattern} if part.pattern else {"subscribe": ",".join(part.topics)}
            streaming = part.kind != "table"
            parse_source_options({**_BROKER, **where, **_for_headrace(part)}, streaming=streaming)
    except OptionError as error:
        named = next((option for option in part.options if option.lower() == error.option.lower()), None)
        key = "pattern" if named is None else f"options.{named}"
        yield pipeline.problem(part, key, f"{named or error.option}: {error.problem}", _sentence(error.advice))


_BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def _for_headrace(part: Source | Sink) -> Mapping[str, str]:
    own_to_format = f"{part.format}."
    return {name.lower(): value for name, value in part.options.items() if not name.startswith(own_to_format)}


def _sentence(text: str) -> str | None:
    if not text:
        return None
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
