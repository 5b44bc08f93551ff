"""Spark's exceptions as sentences with a place in the user's file, without Java.

Before a run: an AnalysisException or ParseException of one step becomes a `Problem` at the line and column of its
text. In a run: `explain_failure` finds the useful sentence in the error that ended a query: one of our own errors,
an error of Spark's SQL (with the step whose text holds it), or the user's Python line.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import QueryContextType

from headrace.spark.errors import user_message
from headrace.spark.pipelines.definition import Pipeline, PipelineError, Problem, Sink, Source, Step
from headrace.spark.pipelines.explaining.spark_words import spark_sentence, told
from headrace.spark.pipelines.graph import upstream
from headrace.spark.pipelines.running.runner import Failure

_PARSER_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_RUN_TIME_PLACE = re.compile(r"== SQL[^\n]*\(line (\d+), position (\d+)\) ==\n(.*?)\n\s*\^", re.DOTALL)
_PYTHON_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"^(?!During |The above |Traceback |SQLSTATE)[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)
"""The line that ends a traceback: the lines of its frames are indented."""
_BLAMED = re.compile(r"\[sink ([^\]\s]+)\] ")
_MODULES = re.compile(r"\A(?:\w+\.)+")
NO_WORKER = "Python worker failed to connect back"
"""Part of Spark's message when a process of its own took longer than ten seconds to start."""
HICCUPS = (NO_WORKER, "Task not serializable", "Illegal size")
"""Messages of Spark that are not caused by the file: the machine is too busy, or two queries start at the same
time (they share plans between threads). Another start helps."""
_PASSING = ("cannot reach a broker", "failed to answer", NO_WORKER, "ExecutorLostFailure")
"""Parts of messages about problems that may be over on the next attempt."""


def place_in(error: PySparkException, text: str) -> tuple[int, int] | None:
    """Line and column, from 1, inside the text that Spark read; None where it does not say."""
    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.SQL and 0 <= context.startIndex() < len(text):
            before = text[: context.startIndex()]
            return before.count("\n") + 1, len(before) - before.rfind("\n")
    found = _PARSER_PLACE.search(str(error))
    return None if found is None else (int(found[1]), int(found[2]) + 1)


def step_problem(pipeline: Pipeline, step: Step, error: BaseException) -> Problem:
    place = place_in(error, step.text) if step.text and isinstance(error, PySparkException) else None
    at = step.at(step.kind) if place is None else step.place_in_text(*place)
    what, advice = told(error)
    return Problem(pipeline.path, at.line, at.column, f"step {step.name}: {what}", advice)


def explain_failure(exception: BaseException, pipeline: Pipeline, query: str) -> Failure:
    """Why a query could not start, or ended."""
    if isinstance(exception, PipelineError):
        return Failure(pipeline, query, str(exception), passing=False)
    ours = user_message(exception)
    if ours is not None:
        return Failure(pipeline, query, f"{query}: {ours}", _may_pass(ours))
    text = str(exception)
    if any(words in text for words in HICCUPS):
        return Failure(pipeline, query, f"{query}: {told(exception).what}", passing=True, hiccup=True)
    problem = _python_problem(text, pipeline) or _sql_problem(text, pipeline)
    if problem is not None:
        return Failure(pipeline, query, str(problem), passing=False)
    what, advice = told(exception)
    passing = _may_pass(text)
    part = None if passing else _to_blame(pipeline, query, text)
    if part is not None:
        return Failure(pipeline, query, str(_problem_of(pipeline, part, what, advice)), passing)
    message = f"{query}: {what}" if advice is None else f"{query}: {what}\n    {advice}"
    return Failure(pipeline, query, message, passing)


def _to_blame(pipeline: Pipeline, query: str, text: str) -> Source | Step | Sink | None:
    """The part of the file that an error belongs to, as far as it is known: the sink, when nothing else fits."""
    sinks = _sinks_of(pipeline, query, text)
    before = list({part.name: part for sink in sinks for part in upstream(pipeline, sink.input)}.values())
    files = [part for part in before if isinstance(part, Source) and part.kind == "files"]
    if "[FAILED_READ_FILE" in text and len(files) == 1:
        return files[0]
    code = [part for part in before if isinstance(part, Step) and part.python_file is not None]
    if "Python worker" in text and len(code) == 1:
        return code[0]
    return sinks[0] if len(sinks) == 1 else None


def _sinks_of(pipeline: Pipeline, query: str, text: str) -> list[Sink]:
    """The sinks that may have caused it: the one that could not write a batch, or all sinks of the query."""
    blamed = _BLAMED.search(text)
    name = blamed[1] if blamed is not None else query.removeprefix(f"{pipeline.name}.")
    found = [sink for sink in pipeline.sinks if sink.name == name]
    return list(pipeline.sinks) if not found and query == pipeline.name else found


def _problem_of(pipeline: Pipeline, part: Source | Step | Sink, what: str, advice: str | None) -> Problem:
    kind = {Source: "source", Step: "step", Sink: "sink"}[type(part)]
    return pipeline.problem(part, part.kind, f"{kind} {part.name}: {what}", advice)


def _may_pass(text: str) -> bool:
    return any(words in text for words in _PASSING)


def _python_problem(text: str, pipeline: Pipeline) -> Problem | None:
    """An error that the user's Python raised in a worker."""
    for step in pipeline.steps:
        raised = raised_in(str(step.python_file), text) if step.python_file is not None else None
        if raised is not None:
            line, column = step.at(step.kind)
            return Problem(pipeline.path, line, column, f"step {step.name}: {raised}")
    return None


def raised_in(file: str, text: str) -> str | None:
    """The last line of `file` in a traceback inside Spark's message, and the error that was raised there."""
    frames = [frame for frame in _PYTHON_FRAME.finditer(text) if frame[1] == file]
    if not frames:
        return None
    raised = _RAISED.search(text, frames[-1].end())
    return None if raised is None else f"{file}:{frames[-1][2]}: {_MODULES.sub('', raised[0].strip())}"


def _sql_problem(text: str, pipeline: Pipeline) -> Problem | None:
    """An error in a row, such as a text that is not a number: Spark shows the SQL that failed."""
    found = _RUN_TIME_PLACE.search(text)
    if found is None:
        return None
    shown = found[3].splitlines()[-1].strip(". ")
    for step in pipeline.steps:
        if shown and (shown in step.text or any(shown in column for column in step.columns)):
            at = step.place_in_text(int(found[1]), int(found[2])) if step.text else step.at(step.kind)
            return Problem(
                pipeline.path, at.line, at.column, f"step {step.name}: {spark_sentence(text)}", _TOLERANT
            )
    return None


_TOLERANT = "To continue with null instead, use try_cast, try_divide, ...; or filter such rows out first."
