"""Spark's exceptions as sentences with a place in the user's file, without Java.

Before a run: an AnalysisException or ParseException of one step becomes a `Problem` at the line and column of its
text. In a run: `explain_failure` finds, in what a query died of, the sentence that helps: one of our own errors,
an error of Spark's SQL (with the step whose text holds it), or the user's Python line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import QueryContextType

from headrace.spark.errors import user_message
from headrace.spark.pipelines.definition import Pipeline, PipelineError, Problem, Step
from headrace.spark.pipelines.nearest import nearest
from headrace.spark.pipelines.runner import Failure

Parameters = Mapping[str, str]

_PARSER_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_RUN_TIME_PLACE = re.compile(r"== SQL[^\n]*\(line (\d+), position (\d+)\) ==\n(.*?)\n\s*\^", re.DOTALL)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ")
_AFTER = re.compile(r"\s*SQLSTATE: |\n\s+at |\n==|\n\n")
_PYTHON_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_PYTHON_ERROR = re.compile(
    r"^(?:\w+\.)*([A-Za-z]\w*(?:Error|Exception|Iteration|Interrupt|Warning)): ?(.*)$", re.MULTILINE
)
_WRAPPERS = frozenset({"STREAM_FAILED", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED", "INTERNAL_ERROR"})
NO_WORKER = "Python worker failed to connect back"
"""What Spark says when a process of its own took longer than ten seconds to start."""
_PASSING = ("cannot reach a broker", "failed to answer", NO_WORKER, "ExecutorLostFailure")
"""What may be gone when it is tried again."""


def _unresolved_column(parameters: Parameters) -> str:
    name = _bare(parameters.get("objectName", "?"))
    known = [_bare(one) for one in parameters.get("proposal", "").split(", ") if one]
    near = nearest(name.rpartition(".")[2], [one.rpartition(".")[2] for one in known])
    shown = [one for one in known if not one.rpartition(".")[2].startswith("_")]
    advice = f" Did you mean {near}?" if near else f" There are {', '.join(shown)}." if shown else ""
    return f"there is no column {name}.{advice}"


def _syntax(parameters: Parameters) -> str:
    at = parameters.get("error", "?")
    return "the query ends too early" if at == "end of input" else f"a mistake in the SQL at or before {at}"


def _no_view(parameters: Parameters) -> str:
    return f"there is no source and no earlier step called {_bare(parameters.get('relationName', '?'))}"


def _no_function(parameters: Parameters) -> str:
    return f"there is no function {_bare(parameters.get('routineName', '?'))}"


def _ambiguous(parameters: Parameters) -> str:
    names = ", ".join(_bare(one) for one in parameters.get("referenceNames", "").strip("[]").split(", "))
    return f"{_bare(parameters.get('name', '?'))} can be any of {names}: say which, with the name of its view"


_SENTENCES: Mapping[str, Callable[[Parameters], str]] = {
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": _unresolved_column,
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": _unresolved_column,
    "PARSE_SYNTAX_ERROR": _syntax,
    "TABLE_OR_VIEW_NOT_FOUND": _no_view,
    "UNRESOLVED_ROUTINE": _no_function,
    "AMBIGUOUS_REFERENCE": _ambiguous,
}
"""Where Spark's own words speak of catalogs and search paths. For the others its first sentences do."""


def in_words(error: PySparkException) -> str:
    """What is wrong, in one line."""
    sentence = _SENTENCES.get(error.getCondition() or "")
    if sentence is not None:
        return sentence(error.getMessageParameters() or {})
    return spark_sentence(str(error))


def spark_sentence(message: str) -> str:
    """Spark's own words: without the name of the class in front, the plan behind, or a stack trace."""
    found = next((one for one in _CONDITION.finditer(message) if one[1].partition(".")[0] not in _WRAPPERS), None)
    text = message[found.end() :] if found is not None else message.strip().partition("\n")[0]
    return " ".join(_AFTER.split(text, maxsplit=1)[0].replace("`", "").split()).rstrip(";")


def _bare(name: str) -> str:
    return name.replace("`", "")


def place_in(error: PySparkException, text: str) -> tuple[int, int] | None:
    """Line and column, from 1, inside the text that Spark read; None where it does not say."""
    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.SQL and 0 <= context.startIndex() < len(text):
            before = text[: context.startIndex()]
            return before.count("\n") + 1, len(before) - before.rfind("\n")
    found = _PARSER_PLACE.search(str(error))
    return None if found is None else (int(found[1]), int(found[2]) + 1)


def step_problem(pipeline: Pipeline, step: Step, error: PySparkException) -> Problem:
    place = place_in(error, step.text) if step.text else None
    at = step.at(step.kind) if place is None else step.place_in_text(*place)
    return Problem(pipeline.path, at.line, at.column, f"step {step.name}: {in_words(error)}")


def explain_failure(exception: BaseException, pipeline: Pipeline, query: str) -> Failure:
    """Why a query could not start, or ended."""
    if isinstance(exception, PipelineError):
        return Failure(pipeline, query, str(exception), passing=False)
    ours = user_message(exception)
    if ours is not None:
        return Failure(pipeline, query, f"{query}: {ours}", _may_pass(ours))
    text = str(exception)
    problem = _python_problem(text, pipeline) or _sql_problem(text, pipeline)
    if problem is not None:
        return Failure(pipeline, query, str(problem), passing=False)
    what = in_words(exception) if isinstance(exception, PySparkException) else spark_sentence(text)
    return Failure(pipeline, query, f"{query}: {what}", _may_pass(text))


def _may_pass(text: str) -> bool:
    return any(words in text for words in _PASSING)


def _python_problem(text: str, pipeline: Pipeline) -> Problem | None:
    """An error that the user's Python raised in a worker: its last line in their file, and what it said."""
    errors = list(_PYTHON_ERROR.finditer(text))
    if not errors:
        return None
    for step in pipeline.steps:
        lines = [frame[2] for frame in _PYTHON_FRAME.finditer(text) if frame[1] == step.python_file]
        if lines:
            line, column = step.at("python")
            raised = next((one for one in errors if one.start() > text.rfind(lines[-1])), errors[-1])
            what = f"step {step.name}: {step.python_file}:{lines[-1]}: {raised[1]}: {raised[2].strip()}"
            return Problem(pipeline.path, line, column, what)
    return None


def _sql_problem(text: str, pipeline: Pipeline) -> Problem | None:
    """An error in a row, such as a text that is no number: Spark shows the SQL that met it."""
    found = _RUN_TIME_PLACE.search(text)
    if found is None:
        return None
    shown = found[3].splitlines()[-1].strip(". ")
    for step in pipeline.steps:
        if shown and shown in step.text:
            at = step.place_in_text(int(found[1]), int(found[2]))
            return Problem(
                pipeline.path, at.line, at.column, f"step {step.name}: {spark_sentence(text)}", _TOLERANT
            )
    return None


_TOLERANT = "To go on with null instead, use try_cast, try_divide, ...; or filter such rows out before."
