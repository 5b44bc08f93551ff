"""The files that a pipeline names: schemas can be read, Python steps have their function. Nothing is run."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator

from headrace.spark.pipelines.definition import Pipeline, Problem, Sink, Source, Step
from headrace.spark.pipelines.graph import shown_path
from headrace.spark.pipelines.nearest import suggestion

_SCHEMA_SUFFIXES = {"avro": (".avsc",), "json": (".json", ".ddl"), "csv": (".json", ".ddl")}
_GLOB_SIGNS = frozenset("*?[{")


def check_files(pipeline: Pipeline) -> Iterator[Problem]:
    for part in pipeline.ends:
        # That a sink in another format has no use for a schema is said elsewhere.
        if part.schema_file is not None and (isinstance(part, Source) or part.format == "avro"):
            yield from _schema_file(pipeline, part, part.schema_file)
    for source in pipeline.sources:
        yield from _source_files(pipeline, source)
    for step in pipeline.steps:
        if step.python_file is not None:
            yield from _python(pipeline, step, step.python_file)


def _read(pipeline: Pipeline, part: Source | Sink | Step, key: str, path: str) -> str | Problem:
    shown = shown_path(path)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        advice = f"Paths are relative to the pipeline file, so this is {path}."
        return pipeline.problem(part, key, f"there is no file {shown}", advice)
    except OSError as error:
        return pipeline.problem(part, key, f"{shown} cannot be read: {(error.strerror or '').lower()}")
    except UnicodeDecodeError:
        return pipeline.problem(part, key, f"{shown} is not text in UTF-8")


def _schema_file(pipeline: Pipeline, part: Source | Sink, path: str) -> Iterator[Problem]:
    suffixes = _SCHEMA_SUFFIXES.get(part.format)
    if suffixes is None:
        return  # that this format has no use for a schema is said elsewhere
    if not path.endswith(suffixes):
        what = f"a schema for {part.format} is in a file that ends in {' or '.join(suffixes)}"
        yield pipeline.problem(part, "schema_file", what, f"This one is {os.path.basename(path)}.")
        return
    text = _read(pipeline, part, "schema_file", path)
    if isinstance(text, Problem):
        yield text
        return
    wrong = _wrong_with_schema(text, os.path.splitext(path)[1])
    if wrong is not None:
        yield pipeline.problem(part, "schema_file", f"{shown_path(path)} is not a valid schema: {wrong}")


def _wrong_with_schema(text: str, suffix: str) -> str | None:
    if suffix == ".ddl":
        return None if text.strip() else "it is empty"
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno} is not JSON ({error.msg})"
    if suffix == ".avsc":
        return _wrong_with_avro(schema)
    if not (
        isinstance(schema, dict) and schema.get("type") == "struct" and isinstance(schema.get("fields"), list)
    ):
        return 'Spark writes one as {"type": "struct", "fields": [...]}'
    return None


def _wrong_with_avro(schema: object) -> str | None:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    if not isinstance(schema, dict) or schema.get("type") != "record":
        return "its type is not record"
    if not isinstance(schema.get("fields"), list):
        return "it has no fields"
    try:
        parse_schema(schema)
    except UnknownType as error:
        return f"there is no type {error.name}"
    except (SchemaParseException, KeyError, TypeError, ValueError) as error:
        return str(error)
    return None


def _source_files(pipeline: Pipeline, source: Source) -> Iterator[Problem]:
    if source.files is None or "://" in source.files:
        return
    parts = source.files.split(os.sep)
    fixed = next((number for number, part in enumerate(parts) if _GLOB_SIGNS & set(part)), len(parts) - 1)
    directory = os.sep.join(parts[:fixed]) or os.sep
    if not os.path.isdir(directory):
        what = f"there is no directory {shown_path(directory)}"
        yield pipeline.problem(source, "files", what, f"Create it, or correct the path: this is {directory}.")
    elif not source.static and os.path.isfile(source.files):
        what = f"{shown_path(source.files)} is one file, but a stream reads files as they appear in a folder"
        yield pipeline.problem(source, "files", what, "Use a pattern with *, or read it once with table: true.")


def _python(pipeline: Pipeline, step: Step, path: str) -> Iterator[Problem]:
    text = _read(pipeline, step, step.kind, path)
    if isinstance(text, Problem):
        yield text
        return
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        yield Problem(shown_path(path), error.lineno or 1, error.offset or 1, f"not Python: {error.msg}")
        return
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    found = functions.get(step.function or "")
    if found is not None:
        yield from _function(pipeline, step, found)
    elif step.function not in _bound_names(tree):
        there = f"It has {', '.join(functions)}." if functions else "It has no functions."
        advice = suggestion(step.function or "", functions, there)
        yield pipeline.problem(step, step.kind, f"{shown_path(path)} has no function {step.function}", advice)


def _bound_names(tree: ast.Module) -> set[str]:
    """Names given to something else than a plain function: those may be one too."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ClassDef | ast.AnnAssign):
            names.add(node.name if isinstance(node, ast.ClassDef) else ast.unparse(node.target))
    return names


def _function(
    pipeline: Pipeline, step: Step, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[Problem]:
    if isinstance(function, ast.AsyncFunctionDef):
        rows = step.kind == "python_rows"
        advice = "Use a plain def." if rows else "A step only describes what Spark will do: use a plain def."
        yield pipeline.problem(step, step.kind, f"{function.name} is async", advice)
        return
    arguments = function.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    least = most - len(arguments.defaults)
    given = len(step.inputs)
    if given < least or (given > most and arguments.vararg is None):
        takes = str(least) if least == most else f"{least} to {most}"
        what = f"{function.name} takes {takes} DataFrame{'s' if most > 1 else ''}, but from lists {given}"
        if step.kind == "python_rows":
            what = f"{function.name} takes {takes} arguments, but is called with one row"
        yield pipeline.problem(
            step, "from", what, f"Line {function.lineno} of {shown_path(step.python_file or '')}."
        )
