"""What sources, steps and sinks have in common when they are read: kinds, watermarks, topics."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.errors import KafkaError
from headrace.model.topics import check_topic_name
from headrace.spark.pipelines.definition import Place, Watermark
from headrace.spark.pipelines.durations import spark_interval
from headrace.spark.pipelines.loading.keys import WATERMARK_KEYS, Keys
from headrace.spark.pipelines.loading.reading import Fields


def one_of(fields: Fields, keys: Sequence[str], advice: str) -> str | None:
    """Exactly one of these keys says what the part is."""
    given = [key for key in keys if key in fields]
    if not given and fields.misspelt.isdisjoint(keys):
        fields.document.problem(fields.node, f"{fields.what} needs one of {', '.join(keys)}", advice)
    for other in given[1:]:
        fields.problem(other, f"{fields.what} has {given[0]} and {other}", "Keep one of them.")
    return given[0] if len(given) == 1 else None


def refuse_keys_of_others(fields: Fields, keys: Keys, kind: str, called: str) -> None:
    for name in fields.nodes:
        kinds = keys[name].goes_with
        if kinds and kind not in kinds:
            fields.problem(name, f"{name} cannot be combined with {called}", "Leave it out.")


def load_watermark(fields: Fields) -> Watermark | None:
    node = fields.mapping("watermark")
    if node is None:
        return None
    own = Fields(fields.document, node, WATERMARK_KEYS, "watermark")
    column, delay_ms = own.string("column"), own.milliseconds("delay")
    if column is None or delay_ms is None:
        return None
    return Watermark(column, spark_interval(delay_ms), node.start_mark.line + 1)


def check_topic(fields: Fields, key: str, name: str, *, shown: str | None = None) -> None:
    try:
        check_topic_name(name)
    except KafkaError:
        advice = "Use ASCII letters, digits, '.', '_' and '-', at most 249 of them."
        fields.problem(key, f"{(shown or name)!r} is not a valid topic name", advice)


def resolved(fields: Fields, key: str) -> str | None:
    """A path, relative to the file."""
    path = fields.string(key)
    return None if path is None else fields.document.resolve(path)


def places_of(fields: Fields, *tables: str) -> dict[str, Place]:
    """The places of all keys, and of the names inside these tables."""
    found = fields.places()
    for table in tables:
        found.update(fields.table_places(table))
    return found


def load_dead_letter(fields: Fields) -> str | None:
    flag = fields.flag("dead_letter")
    if flag is True:
        fields.problem(
            "dead_letter", "dead_letter needs the name of a topic, or false", "Leave it out for the default."
        )
    if flag is not None:
        return None
    topic = fields.string("dead_letter")
    if topic is not None:
        check_topic(fields, "dead_letter", topic)
    return topic
