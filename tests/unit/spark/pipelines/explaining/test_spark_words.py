"""Spark's errors as sentences: one line, no Java, and advice where there is some. Texts are Spark's, shortened."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from headrace.spark.pipelines.definition import Pipeline, Sink, Source, Step
from headrace.spark.pipelines.explaining.spark_words import told
from headrace.spark.pipelines.explaining.sql_errors import explain_failure

TRACE = "\n\tat org.apache.spark.sql.X$.y(X.scala:7)\n\tat java.base/java.lang.Thread.run(Thread.java:1)\n"
STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 1): "
)
CALL = "An error occurred while calling o81.load.\n: "

CASES = [
    pytest.param(
        Py4JError(
            f"{CALL}org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data "
            f"source: nope. Make sure the provider name is correct. SQLSTATE: 42K02{TRACE}"
        ),
        "Spark has no format nope here",
        "Check the name.",
        id="a format that is not there",
    ),
    pytest.param(
        AnalysisException("Failed to find data source: kafka. Please deploy the application as per ..."),
        "Spark has no format kafka here",
        "the format headrace",
        id="the format kafka",
    ),
    pytest.param(
        AnalysisException("Failed to find data source: avro. Avro is built-in but external ..."),
        "Spark has no format avro here",
        "format: avro",
        id="the format avro",
    ),
    pytest.param(
        Py4JError(f"{CALL}X: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: headrace. Make sure{TRACE}"),
        "headrace is not installed for the Python that Spark uses",
        "PYSPARK_PYTHON",
        id="a Python without headrace",
    ),
    pytest.param(
        AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/nope. SQLSTATE: 42K03"),
        "Path does not exist: file:/nope.",
        "Check the path.",
        id="a path that is not there",
    ),
    pytest.param(
        Py4JError(
            f"{CALL}org.apache.spark.SparkException: [FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error "
            f"while reading file file:/a.parquet. Could not read footer. SQLSTATE: KD001{TRACE}"
        ),
        "Encountered error while reading file file:/a.parquet. Could not read footer.",
        "ignoreCorruptFiles",
        id="a file that is no Parquet",
    ),
    pytest.param(
        PySparkException(
            f"{STREAM}{STAGE}a.b.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] "
            f"Encountered error while reading file file:/a.parquet. Expected Spark type string. SQLSTATE: K{TRACE}"
        ),
        "Encountered error while reading file file:/a.parquet. Expected Spark type string.",
        "Give schema the types",
        id="another schema",
    ),
    pytest.param(
        Py4JError(
            f"{CALL}java.lang.RuntimeException: java.lang.ClassNotFoundException: Class S3AFileSystem not found"
        ),
        "Spark cannot open s3a:// here: hadoop-aws is missing, or one of the jars that it needs",
        "spark.jars.packages",
        id="s3 without its jar",
    ),
    pytest.param(
        Py4JError(f"{CALL}java.lang.NoClassDefFoundError: software/amazon/s3/analyticsaccelerator/A{TRACE}"),
        "Spark cannot open s3a:// here: hadoop-aws is missing, or one of the jars that it needs",
        "it brings the others",
        id="s3 with some of its jars",
    ),
    pytest.param(
        Py4JError(
            f'{CALL}org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "foo"{TRACE}'
        ),
        "Spark cannot open foo:// here",
        "Check the spelling.",
        id="an address of no kind",
    ),
    pytest.param(
        Py4JError(f"{CALL}java.sql.SQLException: No suitable driver{TRACE}"),
        "there is no JDBC driver for this url",
        "Check the url.",
        id="jdbc without a driver",
    ),
    pytest.param(
        Py4JError(f"{CALL}java.io.IOException: Incomplete HDFS URI, no host: hdfs:///y{TRACE}"),
        "Incomplete HDFS URI, no host: hdfs:///y",
        None,
        id="a Java exception without a condition",
    ),
    pytest.param(
        Py4JError(f"{CALL}java.nio.file.NoSuchFileException: /x{TRACE}"),
        "NoSuchFileException: /x",
        None,
        id="a class that says more than its message",
    ),
    pytest.param(
        Py4JError(f"{CALL}java.lang.StackOverflowError{TRACE}"), "StackOverflowError", None, id="no words"
    ),
    pytest.param(
        Py4JError(
            f"{CALL}org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: /a{TRACE}"
        ),
        "ParentNotDirectoryException: Parent path is not a directory: /a",
        "Check the path and the permissions",
        id="a sink in a file",
    ),
    pytest.param(
        Py4JError(f"{CALL}java.io.IOException: Mkdirs failed to create /proc/x (exists=false, cwd=file:/){TRACE}"),
        "Mkdirs failed to create /proc/x (exists=false, cwd=file:/)",
        "Check the path and the permissions",
        id="a checkpoint where nobody may write",
    ),
    pytest.param(
        PySparkException(
            f"{STREAM}assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
            "sources requested by the query. Cannot continue."
        ),
        "the checkpoint was made by another query: one with 1 sources, and now there are 2",
        "start over",
        id="a checkpoint of another query",
    ),
    pytest.param(
        AnalysisException("[X] Failed to create plan for direct query on files: parquet. SQLSTATE: 4"),
        "the path in the query is not a readable parquet",
        "Check the path",
        id="SQL over a file that cannot be read",
    ),
    pytest.param(
        AnalysisException("[X] Window function is not supported in RANK(ID#173L) (as column `r`). SQLSTATE: 4"),
        "Window function is not supported in RANK(ID) (as column r).",
        None,
        id="Spark's numbers of columns",
    ),
    pytest.param(
        PySparkException(f"{STREAM}Log file was malformed: failed to read correct log version from xx."),
        "a file of the checkpoint is damaged, so the position is unknown",
        "start over",
        id="a damaged checkpoint",
    ),
    pytest.param(
        PySparkException(
            f"{STREAM}[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match{TRACE}"
        ),
        "the state in the checkpoint was made by another query",
        "start over",
        id="another state",
    ),
    pytest.param(
        AnalysisException("Queries with streaming sources must be executed with writeStream.start()"),
        "a stream has no rows while the pipeline is being built",
        "Remove show",
        id="a step that collects",
    ),
    pytest.param(
        PySparkException(
            f"{STREAM}{STAGE}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."
        ),
        "Python ended in the middle of a task: it was killed, ran out of memory, or called exit",
        "the executor's log",
        id="a worker that died",
    ),
    pytest.param(
        PySparkException(f"{STREAM}{STAGE}java.lang.OutOfMemoryError: Java heap space{TRACE}"),
        "OutOfMemoryError: Java heap space",
        None,
        id="around a query, a job and a task",
    ),
    pytest.param(
        PySparkException(
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status\n'
            "pyarrow.lib.ArrowInvalid: Could not convert <object> with type object\n"
        ),
        "pyarrow.lib.ArrowInvalid: Could not convert <object> with type object",
        None,
        id="a traceback of Spark's worker",
    ),
]


@pytest.mark.parametrize(("error", "what", "advice"), CASES)
def test_mistakes_in_one_line(error: BaseException, what: str, advice: str | None) -> None:
    found = told(error)
    assert found.what == what
    assert (found.advice is None) == (advice is None)
    assert advice is None or advice in str(found.advice)


FILES = Source("old", 3, "files", files="/in/*.parquet", format="parquet")
CODE = Step("scored", 5, "python", ("old",), text="steps.py:score", python_file="/p/steps.py", function="score")
SLIM = Step("slim", 7, "select", ("scored",), columns=("id", "1 / id AS part"))
PIPELINE = Pipeline(
    "p", 1, path="p.yml", sources=(FILES,), steps=(CODE, SLIM), sinks=(Sink("out", 9, "console", "slim"),)
)


def explained(text: str, query: str = "p.out") -> str:
    return explain_failure(PySparkException(text), PIPELINE, query).message


def test_a_failure_is_told_at_the_part_that_it_belongs_to() -> None:
    assert explained(f"{STREAM}[X] It failed.").startswith("p.yml:9:1: sink out: It failed.")
    assert explained(f"{STREAM}[FAILED_READ_FILE.NO_HINT] No /x.").startswith("p.yml:3:1: source old: No /x.")
    assert explained(f"{STREAM}Python worker exited unexpectedly").startswith(
        "p.yml:5:1: step scored: Python ended"
    )
    assert explained(f"{STREAM}[X] It failed.", "p.old.dead-letter") == "p.old.dead-letter: It failed."


def test_an_error_in_a_column_of_select_is_told_at_its_step() -> None:
    text = "[DIVIDE_BY_ZERO] Division by zero.\n== SQL (line 1, position 1) ==\n1 / id AS part\n^^^^^^"
    assert explained(STREAM + text + TRACE).startswith("p.yml:7:1: step slim: Division by zero.\n")


def test_what_the_users_own_class_says_is_told_without_the_name_of_our_module() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/spark/worker.py", line 1, in main\n'
        '  File "/p/steps.py", line 4, in score\n    raise Odd("two")\nheadrace_step_steps_123.Odd: two\n'
    )
    assert (
        explained(f"{STREAM}An exception was thrown: {text}") == "p.yml:5:1: step scored: /p/steps.py:4: Odd: two"
    )


def test_what_went_wrong_while_a_batch_was_written_is_inside_of_what_python_said() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An \
error occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python \
Proxy. Return Message: Traceback (most recent call last):
  File "/site-packages/headrace/spark/pipelines/compiling/writing.py", line 240, in __exit__
    raise RuntimeError(...) from None
RuntimeError: [sink out] An error occurred while calling o6902.parquet.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///x.  \
SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
"""
    assert told(PySparkException(text)).what == "Encountered error while reading file file:///x."
