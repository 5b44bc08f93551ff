"""The error that ended a query, as it is shown to the user. The texts are Spark's, shortened."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.errors import AnalysisException, PySparkException

from headrace.spark.errors import SourceError
from headrace.spark.pipelines.definition import Pipeline, PipelineError, Problem, Sink, Step
from headrace.spark.pipelines.explaining.spark_words import in_words, spark_sentence
from headrace.spark.pipelines.explaining.sql_errors import NO_WORKER, explain_failure, place_in

SQL = Step("rates", 7, "sql", text="SELECT a,\n  a / b AS c\nFROM raw", text_line=8, text_indent=6)
PYTHON = Step("enriched", 12, "python", text="steps.py:enrich", python_file="/p/steps.py", function="enrich")
PIPELINE = Pipeline("logs", 1, path="logs.yml", steps=(SQL, PYTHON))

DIVIDED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. \
Use `try_divide` to tolerate divisor being 0 and return NULL instead. SQLSTATE: 22012
== SQL (line 2, position 3) ==
  a / b AS c
  ^^^^^

\tat org.apache.spark.sql.errors.QueryExecutionErrors$.divideByZeroError(QueryExecutionErrors.scala:203)
"""
RAISED = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was thrown from Python:
Traceback (most recent call last):
  File "/spark/worker.py", line 1234, in main
  File "/p/steps.py", line 31, in convert
    return table[code]
           ~~~~~^^^^^^
KeyError: 'XX'
SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""
REFUSED = """[STREAM_FAILED] Query terminated: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when \
Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "/x/stream_reader.py", line 1, in latestOffset
headrace.spark.errors.SourceError: cannot reach a broker: localhost:1: nothing listens there
 SQLSTATE: 38000 SQLSTATE: XXKST
"""


def test_an_error_in_a_row_is_told_with_the_place_of_its_sql() -> None:
    failure = explain_failure(PySparkException(DIVIDED), PIPELINE, "logs.out")
    assert failure.message.splitlines()[0] == (
        "logs.yml:9:9: step rates: Division by zero. "
        "Use try_divide to tolerate divisor being 0 and return NULL instead."
    )
    assert "try_cast" in failure.message.splitlines()[1]
    assert not failure.passing


def test_an_error_of_the_users_python_is_told_with_its_line() -> None:
    failure = explain_failure(PySparkException(RAISED), PIPELINE, "logs.out")
    assert failure.message == "logs.yml:12:1: step enriched: /p/steps.py:31: KeyError: 'XX'"


def test_an_unreachable_broker_may_come_back() -> None:
    failure = explain_failure(PySparkException(REFUSED), PIPELINE, "logs.out")
    assert failure.message == "logs.out: cannot reach a broker: localhost:1: nothing listens there"
    assert failure.passing
    missing = explain_failure(SourceError("there is no topic x"), PIPELINE, "logs.out")
    assert (missing.message, missing.passing) == ("logs.out: there is no topic x", False)


def test_what_was_explained_already_is_left_as_it_is() -> None:
    problem = Problem("logs.yml", 3, 1, "it is wrong", "Do it right.")
    failure = explain_failure(PipelineError([problem]), PIPELINE, "logs.out")
    assert failure.message == "logs.yml:3:1: it is wrong\n    Do it right."


def test_other_errors_are_one_line_without_java() -> None:
    text = "[STREAM_FAILED] Query [id] terminated: [SOME.THING] First `a`\nsecond. SQLSTATE: 1\n\tat x.y.Z"
    assert spark_sentence(text) == "First a second."
    assert spark_sentence("java.lang.Error: boom\n\tat a.b.C") == "boom"
    assert explain_failure(RuntimeError("boom\n more"), PIPELINE, "logs.out").message == "logs.out: boom"


@pytest.mark.parametrize(
    ("condition", "parameters", "expected"),
    [
        (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            {"objectName": "`hots`", "proposal": "`raw`.`host`, `raw`.`level`"},
            "there is no column hots. Did you mean host?",
        ),
        (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            {"objectName": "`zzz`", "proposal": "`host`, `level`"},
            "there is no column zzz. There are host, level.",
        ),
        ("PARSE_SYNTAX_ERROR", {"error": "'FORM'", "hint": ""}, "a mistake in the SQL at or before 'FORM'"),
        ("PARSE_SYNTAX_ERROR", {"error": "end of input", "hint": ""}, "the query ends too early"),
        (
            "TABLE_OR_VIEW_NOT_FOUND",
            {"relationName": "`rwa`"},
            "there is no source or earlier step named rwa",
        ),
        ("UNRESOLVED_ROUTINE", {"routineName": "`foo`"}, "there is no function foo"),
        (
            "AMBIGUOUS_REFERENCE",
            {"name": "`id`", "referenceNames": "[`a`.`id`, `b`.`id`]"},
            "id is ambiguous (a.id, b.id): put the name of its view in front",
        ),
    ],
)
def test_sentences(condition: str, parameters: dict[str, str], expected: str) -> None:
    error = AnalysisException("not used", errorClass=condition, messageParameters=parameters)
    assert in_words(error) == expected


def test_places_of_the_parser() -> None:
    error = PySparkException(
        "\n[X] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 2, pos 7)\n== SQL ==\n..."
    )
    assert place_in(error, "SELECT *\n  FROM x") == (2, 8)
    assert place_in(PySparkException("no place"), "SELECT") is None


def test_a_task_that_lost_its_executors_may_find_others() -> None:
    lost = PySparkException("Job aborted due to stage failure: ExecutorLostFailure (executor 1)\n\tat a.b.C")
    assert explain_failure(lost, PIPELINE, "logs.out").passing


@pytest.mark.parametrize("words", ["Task not serializable", "Illegal size (3) of collection", NO_WORKER])
def test_where_spark_itself_stumbled_no_line_is_to_blame(words: str) -> None:
    """It did so while two queries were starting, and the text also had the SQL of a step in it."""
    failure = explain_failure(PySparkException(DIVIDED.replace("Division by zero.", words)), PIPELINE, "logs.out")
    assert (failure.passing, failure.hiccup) == (True, True)
    assert failure.message.startswith("logs.out: ")


def test_a_sink_that_could_not_write_a_batch_is_to_blame() -> None:
    text = "RuntimeError: [sink out] [PATH_NOT_FOUND] Path does not exist: /x."
    sinks = (Sink("in", 20, "console", "rates"), Sink("out", 21, "parquet", "rates"))
    failure = explain_failure(RuntimeError(text), replace(PIPELINE, sinks=sinks), "logs")
    assert failure.message.startswith("logs.yml:21:1: sink out: Path does not exist: /x.")
