"""One step of a pipeline file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

from headrace.spark.pipelines.definition import Place, Step, StepKind
from headrace.spark.pipelines.durations import spark_interval
from headrace.spark.pipelines.loading.keys import DEDUPLICATE_KEYS, STEP_KINDS
from headrace.spark.pipelines.loading.parts import load_dead_letter, load_watermark, one_of, places_of
from headrace.spark.pipelines.loading.reading import Fields

_PYTHON = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


def load_step(fields: Fields, name: str, at: Place) -> Step | None:
    given = one_of(fields, STEP_KINDS, "Give an operation: sql: SELECT ...")
    if given is None:
        return None
    inputs = _inputs(fields, given)
    for key in ("schema", "dead_letter"):
        if key in fields and given != "python_rows":
            fields.problem(key, f"{key} goes with python_rows only", "Leave it out.")
    places = places_of(fields)
    text_line, text_column = places[given]
    step = Step(
        name,
        at.line,
        cast(StepKind, given),
        inputs,
        text_line=text_line,
        text_column=text_column,
        column=at.column,
        places=places,
    )
    if given in ("sql", "filter"):
        return _with_text(fields, step)
    if given == "select":
        return replace(step, columns=fields.strings("select"))
    if given == "watermark":
        return replace(step, watermark=load_watermark(fields))
    if given in ("python", "python_rows"):
        return _with_rows(fields, _with_python(fields, step))
    return _with_deduplicate(fields, step)


def _with_rows(fields: Fields, step: Step) -> Step:
    """What only a function of rows has."""
    if step.kind != "python_rows":
        return step
    schema = fields.string("schema")
    if "schema" not in fields:
        advice = "Name the columns that the function returns: schema: id bigint, score double"
        fields.problem("python_rows", f"{fields.what} needs schema", advice)
    return replace(step, schema=schema, dead_letter=load_dead_letter(fields))


def _inputs(fields: Fields, kind: str) -> tuple[str, ...]:
    inputs = fields.strings("from")
    if kind == "sql":
        return inputs
    if "from" not in fields:
        fields.document.problem(fields.node, f"{fields.what} needs from", "Name the source or step it reads.")
    elif len(inputs) > 1 and kind != "python":
        fields.problem(
            "from",
            f"{fields.what} reads {len(inputs)} views",
            "Only sql and python can read several: join them there.",
        )
    return inputs


def _with_text(fields: Fields, step: Step) -> Step:
    text = fields.text(step.kind)
    if text is None:
        return step
    return replace(
        step,
        text=text.value,
        text_line=text.at.line,
        text_column=text.at.column,
        text_indent=text.indent,
        folded=text.folded,
    )


def _with_python(fields: Fields, step: Step) -> Step:
    text = fields.string(step.kind)
    if text is None:
        return step
    match = _PYTHON.fullmatch(text.strip())
    if match is None:
        advice = f"Write a file and a function in it: {step.kind}: steps.py:enrich"
        fields.problem(step.kind, f"{text!r} does not name a function", advice)
        return step
    return replace(step, text=text, python_file=fields.document.resolve(match[1]), function=match[2])


def _with_deduplicate(fields: Fields, step: Step) -> Step:
    node = fields.mapping("deduplicate")
    if node is None:
        return step
    own = Fields(fields.document, node, DEDUPLICATE_KEYS, "deduplicate")
    within_ms = own.milliseconds("within", least=1)
    within = None if within_ms is None else spark_interval(within_ms)
    return replace(step, columns=own.strings("columns"), within=within)
