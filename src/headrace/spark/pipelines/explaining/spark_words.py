"""What Spark raises, as a sentence for the person who wrote the pipeline, and what to do about it.

Spark reports errors in two ways. Most are a PySparkException with a condition (PATH_NOT_FOUND) and parameters.
Errors for which PySpark has no class are a Py4JJavaError, whose text is a Java stack trace with the sentence in
its second line. Both may be wrapped: a failed query around a failed job around a failed task around the error
itself. So `told` looks for the innermost condition, and without one for the message of the innermost Java
exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.spark.errors import user_message
from headrace.spark.pipelines.nearest import nearest

Parameters = Mapping[str, str]

SPARK_ERRORS = (PySparkException, Py4JError)
"""The errors that a call to Spark can raise."""

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ")
_AFTER = re.compile(r"\s*SQLSTATE: |\n\s+at |\n==|\n\n|\nCaused by: |\nDriver stacktrace:")
_WRAPPERS = frozenset(
    {
        "STREAM_FAILED",
        "FAILED_EXECUTE_UDF",
        "TASK_WRITE_FAILED",
        "INTERNAL_ERROR",
        "FOREACH_BATCH_USER_FUNCTION_ERROR",
    }
)
_COLUMN_IDS = re.compile(r"(?<=\w)#\d+L?\b")
_PY4J = re.compile(r"\AAn error occurred while calling [^\n]*\n: ?")
_AROUND = re.compile(r"\A.*?(?:terminated with exception: |\(TID \d+\) \([^)\n]*\): )", re.DOTALL)
_JAVA_CLASS = re.compile(r"\A(?:Caused by: )?(?:[a-z_]\w*\.)+([A-Z][\w$]*)(?:: |$)")
_SAYING_LITTLE = frozenset({"Error", "Exception", "IOException", "IllegalArgumentException", "RuntimeException"})
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?!Traceback )[A-Za-z_][\w.]*(?:Error|Exception|Invalid|Iteration|Exit)\w*(?:: .*)?$")


class Told(NamedTuple):
    what: str
    advice: str | None = None


def told(error: BaseException) -> Told:
    """The problem in one line, and advice if there is any."""
    ours = user_message(error)
    if ours is not None:
        return Told(ours)
    text = str(error)
    condition, parameters = _innermost(text), {}
    if isinstance(error, PySparkException) and error.getCondition() not in (None, *_WRAPPERS):
        condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    sentence = _SENTENCES.get(condition)
    what = sentence(parameters) if sentence is not None and parameters else spark_sentence(text)
    return _known(text) or Told(what, _advice(condition, what))


def in_words(error: BaseException) -> str:
    return told(error).what


def _innermost(text: str) -> str:
    found = [one[1] for one in _CONDITION.finditer(text) if one[1].partition(".")[0] not in _WRAPPERS]
    return found[0] if found else ""


def spark_sentence(message: str) -> str:
    """Spark's own sentence, without the class name in front, the plan behind it, and a stack trace."""
    found = next((one for one in _CONDITION.finditer(message) if one[1].partition(".")[0] not in _WRAPPERS), None)
    text = message[found.end() :] if found is not None else message
    if _TRACEBACK in text:
        return _raised(text)
    text = text if found is not None else _java_sentence(text)
    text = _COLUMN_IDS.sub("", _AFTER.split(text, maxsplit=1)[0].replace("`", ""))
    return " ".join(text.split()).rstrip(";")


def _raised(text: str) -> str:
    """The last line of a Python traceback; the first ones are about Spark's worker."""
    ends = [line for line in text.splitlines() if _RAISED.match(line)]
    return ends[-1].strip() if ends else text.partition("\n")[0]


def _java_sentence(message: str) -> str:
    """The first line of an error without a condition, without the text around it and the names of classes."""
    text = _PY4J.sub("", message.strip())
    text = _CONDITION.sub("", text, count=1) if text.startswith("[") else text
    while (inner := _AROUND.sub("", text)) != text:
        text = inner
    line, kind = text.partition("\n")[0], ""
    while (match := _JAVA_CLASS.match(line)) is not None:
        line, kind = line[match.end() :], match[1]
    says_enough = kind in _SAYING_LITTLE or kind.startswith("Spark") or not kind
    return line if line and says_enough else f"{kind}: {line}" if line else kind


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
    return f"there is no source or earlier step named {_bare(parameters.get('relationName', '?'))}"


def _no_function(parameters: Parameters) -> str:
    return f"there is no function {_bare(parameters.get('routineName', '?'))}"


def _ambiguous(parameters: Parameters) -> str:
    names = ", ".join(_bare(one) for one in parameters.get("referenceNames", "").strip("[]").split(", "))
    return f"{_bare(parameters.get('name', '?'))} is ambiguous ({names}): put the name of its view in front"


def _bare(name: str) -> str:
    return name.replace("`", "")


_SENTENCES: Mapping[str, Callable[[Parameters], str]] = {
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": _unresolved_column,
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": _unresolved_column,
    "PARSE_SYNTAX_ERROR": _syntax,
    "TABLE_OR_VIEW_NOT_FOUND": _no_view,
    "UNRESOLVED_ROUTINE": _no_function,
    "AMBIGUOUS_REFERENCE": _ambiguous,
}
"""The errors for which Spark's own words mention catalogs and search paths. Else its first sentences do."""

_JAR = "Its jar comes with --conf spark.jars.packages=GROUP:NAME:VERSION, or --conf spark.jars=FILE."
_CORRUPT = "Remove the file, write it again, or pass over such files with options: {ignoreCorruptFiles: true}."
_SAME_TYPES = "Give schema the types that the files have; a step can CAST them."
_ADVICE: Mapping[str, str] = {
    "PATH_NOT_FOUND": "Check the path. On a cluster it must exist on every machine.",
    "FAILED_READ_FILE": _CORRUPT,
    "FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH": _SAME_TYPES,
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH": _SAME_TYPES,
    "CONCURRENT_STREAM_LOG_UPDATE": "Two runs share one checkpoint: stop one, or give it a checkpoint of its own.",
    "STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE": "PYSPARK_PYTHON names the Python that Spark uses.",
}


_CANNOT_WRITE = re.compile(r"(?i)mkdirs? (?:failed|of)|is not a directory|permission denied")


def _advice(condition: str, what: str) -> str | None:
    if _CANNOT_WRITE.search(what):
        return "Check the path and the permissions of this user. On a cluster the workers write there too."
    return _ADVICE.get(condition) or _ADVICE.get(condition.partition(".")[0])


def _no_format(match: re.Match[str]) -> Told:
    name = match[1].rstrip(".")
    if name == "headrace":
        return Told(
            "headrace is not installed for the Python that Spark uses",
            "Install headrace[spark] for it, on every machine at the same path. PYSPARK_PYTHON selects it.",
        )
    instead = {
        "kafka": "Read topics with the format headrace: it takes the same options and needs no jar.",
        "avro": "Topics in Avro are read by a source with format: avro; for files Spark needs its jar. " + _JAR,
    }
    return Told(f"Spark has no format {name} here", instead.get(name, f"Check the name. {_JAR}"))


def _no_file_system(match: re.Match[str]) -> Told:
    return Told(f"Spark cannot open {match[1]}:// here", f"Check the spelling. {_JAR}")


def _no_s3(match: re.Match[str]) -> Told:
    return Told(
        "Spark cannot open s3a:// here: hadoop-aws is missing, or one of the jars that it needs",
        "Add --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, in the version of Spark's Hadoop: "
        "it brings the others.",
    )


def _unread_in_sql(match: re.Match[str]) -> Told:
    return Told(f"the path in the query is not a readable {match[1]}", "Check the path and the files there.")


def _no_driver(match: re.Match[str]) -> Told:
    return Told("there is no JDBC driver for this url", f"Check the url. {_JAR}")


def _executed_stream(match: re.Match[str]) -> Told:
    return Told(
        "a stream has no rows while the pipeline is being built",
        "Remove show, count, collect, toPandas and write: a step only describes what happens to rows.",
    )


def _other_state(match: re.Match[str]) -> Told:
    return Told("the state in the checkpoint was made by another query", _START_OVER)


def _other_sources(match: re.Match[str]) -> Told:
    what = f"the checkpoint was made by another query: one with {match[1]} sources, and now there are {match[2]}"
    return Told(what, _START_OVER)


def _damaged(match: re.Match[str]) -> Told:
    return Told("a file of the checkpoint is damaged, so the position is unknown", _START_OVER)


def _worker_died(match: re.Match[str]) -> Told:
    return Told(
        "Python ended in the middle of a task: it was killed, ran out of memory, or called exit",
        "See the executor's log; smaller batches need less memory (options: {maxOffsetsPerTrigger: ...}).",
    )


_START_OVER = (
    "Undo the change, give this pipeline a `name` or `checkpoint` of its own, or start over with "
    "`headrace pipeline reset FILE`."
)

_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Told]], ...] = (
    (re.compile(r"Failed to find (?:the )?data source: (\S+)"), _no_format),
    (re.compile(r'No FileSystem for scheme "?([\w+.-]+)'), _no_file_system),
    (re.compile(r"S3AFileSystem not found|NoClassDefFoundError: software/amazon/"), _no_s3),
    (re.compile(r"Failed to create plan for direct query on files: (\w+)"), _unread_in_sql),
    (re.compile(r"No suitable driver"), _no_driver),
    (re.compile(r"Queries with streaming sources must be executed with"), _executed_stream),
    (re.compile(r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|StateSchemaNotCompatible"), _other_state),
    (
        re.compile(r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]"),
        _other_sources,
    ),
    (
        re.compile(r"Log file was malformed|StreamMetadata\$?\.read|Error reading (?:delta|snapshot) file"),
        _damaged,
    ),
    (re.compile(r"Python worker exited unexpectedly"), _worker_died),
)
"""Advice by the text, whatever the class: Spark has had more than one class for some of these errors."""


def _known(text: str) -> Told | None:
    for pattern, tell in _KNOWN:
        match = pattern.search(text)
        if match is not None:
            return tell(match)
    return None
