"""Errors of the sink as a user sees them through Spark: one line that says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.spark.errors import SourceError, explained, hide_traceback
from headrace.spark.option_table import OptionError


class SinkError(Exception):
    """Why the sink cannot write, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        hide_traceback()


@contextmanager
def sink_errors(bootstrap: str) -> Iterator[None]:
    """Errors of the options, of a broker, or of the way to it come out of the block as a SinkError."""
    try:
        with explained(bootstrap, OptionError):
            yield
    except SourceError as error:
        raise SinkError(str(error)) from None
