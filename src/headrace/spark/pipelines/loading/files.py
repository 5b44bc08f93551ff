"""A pipeline file becomes a `Pipeline`, or a `PipelineError` with every problem in it and the line of each.

This module checks what the file says by itself: keys, types, names, which kind a part is. `checking` checks how
the parts fit together, and after that what only Spark or the cluster knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

import yaml

from headrace.client.address import parse_bootstrap
from headrace.client.security import OPTIONS
from headrace.spark.option_table import GivenOptions, OptionError, near_name
from headrace.spark.pipelines.connecting import client_options, connected
from headrace.spark.pipelines.cron import Cron, is_cron, parse_cron
from headrace.spark.pipelines.definition import (
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
    SparkSettings,
    Step,
)
from headrace.spark.pipelines.graph import upstream
from headrace.spark.pipelines.loading.keys import (
    PIPELINE_KEYS,
    SINK_KEYS,
    SOURCE_KEYS,
    SPARK_KEYS,
    STEP_KEYS,
    Keys,
)
from headrace.spark.pipelines.loading.reading import Document, Fields, entries
from headrace.spark.pipelines.loading.sinks import load_sink
from headrace.spark.pipelines.loading.sources import load_source
from headrace.spark.pipelines.loading.sql_names import names_inside, views_read
from headrace.spark.pipelines.loading.steps import load_step
from headrace.spark.security_options import PREFIX, SECURITY_PREFIXES, parse_security

_PIPELINE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SINK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


Views = dict[str, Place]
"""Where the names so far stand, in lower case: sources and steps are views of one session, which ignores case."""


def load_pipeline(
    path: str | os.PathLike[str],
    environment: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
) -> Pipeline:
    """The pipeline in a file; variables in it come from the environment of this process, or the one given.

    `client`: settings of a client that are taken instead of the file's.
    """
    document = Document.read(os.fspath(path), os.environ if environment is None else environment)
    root = document.root()
    if not isinstance(root, yaml.MappingNode):
        what = "the file is empty" if root is None else "the file is not a mapping of keys to values"
        raise PipelineError([_problem_at_top(document, what)])
    pipeline = _pipeline(document, Fields(document, root, PIPELINE_KEYS, "the file"))
    if document.problems:
        raise PipelineError(sorted(document.problems, key=lambda problem: (problem.line, problem.column)))
    return connected(pipeline, client or pipeline.client)


def _problem_at_top(document: Document, what: str) -> Problem:
    return Problem(document.path, 1, 1, what, "A pipeline has sources: and sinks:, and steps: between them.")


def _pipeline(document: Document, fields: Fields) -> Pipeline:
    name = _pipeline_name(document, fields)
    schedule_ms, cron = _schedule(fields)
    every_ms = fields.milliseconds("every")
    if every_ms is not None and (schedule_ms is not None or cron is not None):
        advice = "schedule starts separate runs; every sets the trigger of a continuous one. Keep one of them."
        fields.problem("every", "a pipeline has schedule or every, not both", advice)
    checkpoint = fields.string("checkpoint")
    views: Views = {}
    sources = _sources(document, fields, views, name)
    steps = _steps(document, fields, views)
    return Pipeline(
        name,
        1,
        document.path,
        bootstrap=_bootstrap(fields),
        client=_client(fields),
        checkpoint=None if checkpoint is None else document.resolve(checkpoint),
        schedule_s=None if schedule_ms is None else schedule_ms / 1000,
        cron=cron,
        every_s=None if every_ms is None else every_ms / 1000,
        spark=_spark(document, fields),
        sources=sources,
        steps=_with_dead_letters(
            _with_sql_inputs(steps, [part.name for part in (*sources, *steps)]), sources, name
        ),
        sinks=_sinks(document, fields),
        places=fields.places(),
    )


def _schedule(fields: Fields) -> tuple[int | None, Cron | None]:
    """Milliseconds, or a cron schedule."""
    text = fields.string("schedule")
    if text is None or not is_cron(text):
        return fields.milliseconds("schedule", least=1), None
    try:
        return None, parse_cron(text)
    except ValueError as error:
        advice = 'Write minute, hour, day, month and day of the week: schedule: "30 2 * * mon-fri"'
        fields.problem("schedule", str(error), advice)
        return None, None


def _pipeline_name(document: Document, fields: Fields) -> str:
    name = fields.string("name")
    if name is None:
        stem = os.path.splitext(os.path.basename(document.path))[0].lower()
        return re.sub(r"[^a-z0-9_-]+", "-", stem).strip("-_") or "pipeline"
    if not _PIPELINE_NAME.fullmatch(name):
        fields.problem(
            "name", f"{name!r} is not a valid pipeline name", "Use lower case letters, digits, - and _."
        )
    return name


def _bootstrap(fields: Fields) -> str | None:
    text = fields.string("bootstrap")
    if text is not None:
        try:
            parse_bootstrap(text)
        except ValueError as error:
            fields.problem("bootstrap", f"bootstrap: {error}", "Write it as host:port, or several with commas.")
    return text


def _client(fields: Fields) -> dict[str, str]:
    """Paths in it are relative to the file, as everywhere."""
    client = dict(fields.table("client"))
    for name, value in client.items():
        known = name in (*OPTIONS, "sasl.mechanisms")
        near = None if known else near_name(name, OPTIONS)
        if near or not f"{PREFIX}{name}".startswith(SECURITY_PREFIXES):
            advice = f"Did you mean {near}?" if near else "It takes security.protocol, sasl.* and ssl.*."
            fields.problem("client", f"client has no setting {name}", advice)
        elif name.endswith(".location"):
            client[name] = fields.document.resolve(value)
    if client and not fields.document.problems:
        try:
            parse_security(GivenOptions(client_options(client)))
        except OptionError as error:
            what, advice = (text.replace(PREFIX, "") for text in (error.problem, error.advice))
            fields.problem("client", f"client: {what}", advice or None)
    return client


def _spark(document: Document, fields: Fields) -> SparkSettings:
    node = fields.mapping("spark")
    if node is None:
        return SparkSettings()
    own = Fields(document, node, SPARK_KEYS, "spark")
    conf = own.table("conf")
    for name in conf:
        if not name.startswith("spark."):
            own.problem("conf", f"{name} is not a Spark setting", f"Their names begin with spark.: spark.{name}?")
    return SparkSettings(own.string("master"), conf)


def _sources(document: Document, fields: Fields, views: Views, pipeline: str) -> tuple[Source, ...]:
    node = _section(fields, "sources", "raw: {topic: logs.raw}")
    found = []
    if node is not None:
        for name, name_node, value in entries(document, node, "sources"):
            _claim_view(document, views, name, name_node)
            own = _part(document, value, SOURCE_KEYS, f"source {name}", name_node)
            source = None if own is None else load_source(own, name, _place(name_node))
            if source is not None:
                found.append(_with_dead_letter(source, pipeline))
    return tuple(found)


def _with_dead_letter(source: Source, pipeline: str) -> Source:
    """Records that are decoded can be malformed; those taken as they are cannot."""
    if (
        source.dead_letter is None
        and "dead_letter" not in source.places
        and source.format in ("json", "csv", "avro", "text")
    ):
        return replace(source, dead_letter=f"{pipeline}.dead-letter")
    return source


def _steps(document: Document, fields: Fields, views: Views) -> tuple[Step, ...]:
    node = fields.nodes.get("steps")
    if node is None:
        return ()
    if not isinstance(node, yaml.SequenceNode):
        fields.problem("steps", "steps needs a list", 'Each step begins with a dash: "- name: parsed".')
        return ()
    found = []
    for number, item in enumerate(node.value, start=1):
        own = _part(document, item, STEP_KEYS, f"step {_name_in(item) or number}", item)
        name = own.string("name") if own is not None else None
        if own is None or name is None:
            continue
        _claim_view(document, views, name, own.nodes["name"])
        step = load_step(own, name, _place(item))
        if step is not None:
            found.append(step)
    return tuple(found)


def _with_sql_inputs(steps: tuple[Step, ...], views: list[str]) -> tuple[Step, ...]:
    """SQL names what it reads. A name that a query makes itself hides only this step and later ones."""
    done = []
    for step in steps:
        if step.kind == "sql":
            earlier = views[: views.index(step.name)]
            inside = names_inside(step.text)
            read = [one for one in views_read(step.text, views) if one in earlier or one.lower() not in inside]
            step = replace(step, inputs=tuple(dict.fromkeys([*step.inputs, *read])))
        done.append(step)
    return tuple(done)


def _with_dead_letters(steps: tuple[Step, ...], sources: tuple[Source, ...], pipeline: str) -> tuple[Step, ...]:
    """A function of rows sends what it cannot take where its source sends what it cannot decode."""
    found = []
    for step in steps:
        if step.kind == "python_rows" and "dead_letter" not in step.places:
            whole = Pipeline(pipeline, 1, "", sources=sources, steps=steps)
            before = [part for part in upstream(whole, step.name) if isinstance(part, Source)]
            said = [source.dead_letter for source in before if "dead_letter" in source.places]
            step = replace(step, dead_letter=said[0] if said else f"{pipeline}.dead-letter")
        found.append(step)
    return tuple(found)


def _sinks(document: Document, fields: Fields) -> tuple[Sink, ...]:
    node = _section(fields, "sinks", "out: {from: parsed, topic: logs.parsed}")
    found = []
    if node is not None:
        for name, name_node, value in entries(document, node, "sinks"):
            if not _SINK_NAME.fullmatch(name):
                document.problem(name_node, f"{name!r} is not a valid sink name", "Use letters, digits, - and _.")
            own = _part(document, value, SINK_KEYS, f"sink {name}", name_node)
            sink = None if own is None else load_sink(own, name, _place(name_node))
            if sink is not None:
                found.append(sink)
    return tuple(found)


def _section(fields: Fields, key: str, example: str) -> yaml.MappingNode | None:
    node = fields.nodes.get(key)
    if node is None:
        return None
    if not isinstance(node, yaml.MappingNode) or not node.value:
        fields.problem(key, f"{key} needs a mapping of names to {key}", f"For example: {example}")
        return None
    return node


def _part(document: Document, node: yaml.Node, keys: Keys, what: str, named_at: yaml.Node) -> Fields | None:
    if not isinstance(node, yaml.MappingNode):
        document.problem(node, f"{what} needs a mapping of keys to values", f"The keys here: {', '.join(keys)}.")
        return None
    return Fields(document, node, keys, what, named_at=named_at)


def _claim_view(document: Document, views: Views, name: str, node: yaml.Node) -> None:
    if not _VIEW_NAME.fullmatch(name):
        advice = "It is a view in SQL: use letters, digits and _, and begin with a letter."
        document.problem(node, f"{name!r} is not a valid name for a source or step", advice)
    first = views.setdefault(name.lower(), _place(node))
    if first != _place(node):
        document.problem(node, f"there are two views {name}", f"The first is at line {first.line}.")


def _name_in(node: yaml.Node) -> str | None:
    """The name of a step, to speak of it before it is read."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "name" and isinstance(value, yaml.ScalarNode):
                return value.value
    return None


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
