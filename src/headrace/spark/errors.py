"""Errors of the source and sink as a user sees them through Spark, and how they are found again in Spark's
exceptions.

Our code runs in Spark's Python workers. What it raises there reaches the user as text inside an exception of
Spark's: a traceback, whose last line names the class and the message, between Spark's own words. So:

- a mistake of the user is one `SourceError` that explains everything in one line, with nothing chained to it;
- Spark is asked to leave the traceback out (`hide_traceback`; from Spark 4.0 on it can);
- `user_message` finds that line again in whatever Spark made of it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.client.errors import ClientError, NoneReachable
from headrace.model.errors import KafkaError

_OUR_LAST_LINE = re.compile(r"(?:^|(?<=\s))headrace(?:\.\w+)+: (?P<message>.+?)\s*$", re.MULTILINE)
_WHILE_PICKLED = re.compile(r"Could not serialize object: S(?:ink|ource)Error: (?P<message>.+?)\s*$", re.MULTILINE)
"""A writer takes its place at the cluster when Spark pickles it: PySpark reports a failure in its own words."""
_WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_SQL_STATE = re.compile(r"\s+SQLSTATE: \w+(?: SQLSTATE: \w+)*$")


class SourceError(Exception):
    """Why the source cannot continue, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
        hide_traceback()


def hide_traceback() -> None:
    """In a Python process of Spark: report the exception that ends its work without a traceback.

    A mistake of the user is not our bug. The process does nothing after it.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and str(spec.name).startswith(_WORKERS):
        os.environ[_HIDE_TRACEBACK] = "1"


@contextmanager
def explained(bootstrap: str, *own: type[Exception]) -> Iterator[None]:
    """Turn errors of a broker, of the connection, and of the given classes into a SourceError."""
    kinds: tuple[type[Exception], ...] = (KafkaError, ClientError, *own)
    try:
        yield
    except kinds as error:
        raise SourceError(_explanation(error, bootstrap)) from None


def _explanation(error: Exception, bootstrap: str) -> str:
    if isinstance(error, NoneReachable):
        return (
            f"cannot reach a broker: {error}. Is it running, and is kafka.bootstrap.servers ({bootstrap}) right?"
        )
    if isinstance(error, ClientError):
        return f"the cluster at {bootstrap} failed to answer: {error}"
    return str(error)


def user_message(exception: BaseException) -> str | None:
    """The message of the headrace error inside an exception of Spark's, or None if there is none."""
    if type(exception).__module__.partition(".")[0] == "headrace":
        return str(exception)
    text = str(exception)
    found = [*_WHILE_PICKLED.finditer(text), *_OUR_LAST_LINE.finditer(text)]
    if found:
        return _SQL_STATE.sub("", found[-1]["message"])
    inner = exception.__cause__ or exception.__context__
    return user_message(inner) if inner is not None else None
