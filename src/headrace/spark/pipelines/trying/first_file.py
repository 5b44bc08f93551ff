"""A pipeline file for a topic, as `pipeline init` writes it: it runs as it is, and shows rows on the console."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator

from headrace.spark.pipelines.definition import DEFAULT_BOOTSTRAP
from headrace.spark.pipelines.trying.inference import Guess, quoted

WIDTH = 100
RAW_COLUMNS = ("CAST(key AS string) AS key", "CAST(value AS string) AS value", "topic", "partition", "timestamp")


def pipeline_name(topic: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", topic.lower()).strip("-_") or "pipeline"


def view_name(topic: str) -> str:
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def first_file(topic: str, guess: Guess, bootstrap: str | None, name: str | None = None) -> str:
    return "\n".join(_lines(topic, guess, bootstrap, name or pipeline_name(topic))) + "\n"


def _lines(topic: str, guess: Guess, bootstrap: str | None, name: str) -> Iterator[str]:
    view = view_name(topic)
    records = f"{guess.records} record{'' if guess.records == 1 else 's'}"
    yield f"# Written by `headrace pipeline init {topic}` from {records}; see docs/pipeline-reference.md."
    yield f"name: {name}"
    if bootstrap is not None and bootstrap != DEFAULT_BOOTSTRAP:
        yield f"bootstrap: {json.dumps(bootstrap)}"
    yield "sources:"
    yield f"  {view}:"
    yield f"    topic: {topic}"
    yield f"    format: {guess.format}"
    if guess.format == "json":
        yield "    schema: >-"
        yield from textwrap.wrap(guess.ddl, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    yield "    starting: earliest        # or latest, -10m, 2026-01-31T00:00:00Z: where the first run starts"
    if guess.event_time is not None:
        yield f"    watermark: {{column: {json.dumps(guess.event_time)}, delay: 10 minutes}}"
    yield "steps:"
    yield "  - name: selected"
    yield "    sql: |"
    columns = RAW_COLUMNS if guess.format == "raw" else tuple(map(quoted, guess.fields))
    yield from textwrap.wrap(
        "SELECT " + ", ".join(columns), WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8
    )
    yield f"      FROM {view}"
    yield "sinks:"
    yield "  out:"
    yield "    from: selected"
    yield "    console: true"
    yield f"    # topic: {topic}.out      # write to a topic instead"
    yield "    # create: {partitions: 3}"
