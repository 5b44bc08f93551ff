"""A user's function of one row, as Spark's workers call it: an exception affects only that row."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import types

OUT = "__out"
"""The column with the result for a row: a struct of these fields."""
ROWS, ERROR, EXCEPTION = "rows", "error", "exception"
MAX_ERROR = 500

RowFunction = Callable[[dict[str, Any]], Any]


class Misfit(ValueError):
    """The function returned a value that does not fit its schema."""


class Failed(NamedTuple):
    exception: str
    error: str


Made = list[dict[str, Any]] | Failed
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""Errors of the conversion to Arrow for a value of another type."""


class RowCalls(NamedTuple):
    """Runs in the workers: adds `OUT` to the columns that are kept."""

    function: RowFunction
    file: str
    """The file of the function: its line that raised is part of the reason."""
    types: Mapping[str, pa.DataType]
    """The columns that the function returns."""
    required: frozenset[str]
    given: Sequence[str]
    """The columns that it sees."""
    kept: Sequence[str]

    def convert(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row = pa.struct([pa.field(name, kind) for name, kind in self.types.items()])
        for batch in batches:
            made = [self.call(given) for given in batch.select(list(self.given)).to_pylist()]
            try:
                rows = pa.array(_rows(made), type=pa.list_(row))
            except UNFIT:  # one of them cannot be an Arrow value: find it
                made = [self._checked(one) for one in made]
                rows = pa.array(_rows(made), type=pa.list_(row))
            errors = [one.error if isinstance(one, Failed) else None for one in made]
            exceptions = [one.exception if isinstance(one, Failed) else None for one in made]
            columns = [rows, pa.array(errors, type=pa.string()), pa.array(exceptions, type=pa.string())]
            out = pa.StructArray.from_arrays(columns, names=[ROWS, ERROR, EXCEPTION])
            kept = [batch.column(batch.schema.get_field_index(name)) for name in self.kept]
            yield pa.RecordBatch.from_arrays([*kept, out], names=[*self.kept, OUT])

    def call(self, given: dict[str, Any]) -> Made:
        """The rows that the function makes from one, each with all columns; or why it failed."""
        try:
            answer = self.function(given)
            answers = [] if answer is None else answer if isinstance(answer, list) else [answer]
            return [self._fitting(one) for one in answers]
        except Exception as error:  # whatever a user's code raises concerns this row only
            return self._failed(error)

    def _fitting(self, answer: object) -> dict[str, Any]:
        if not isinstance(answer, Mapping):
            raise Misfit(f"the function returned {_kind(answer)}, not a dict")
        for name in answer:
            if name not in self.types:
                raise Misfit(f"the function returned {name!r}, which the schema does not name")
        for name in self.required:
            if answer.get(name) is None:
                raise Misfit(f"{name!r} is missing, and the schema says NOT NULL")
        row = {name: answer.get(name) for name in self.types}
        for name, value in row.items():
            if not _exact(value, self.types[name]):
                raise self._misfit(name, value)
        return row

    def _misfit(self, name: str, value: object) -> Misfit:
        return Misfit(f"{name!r} is not a value of type {self.types[name]}: {value!r}")

    def _checked(self, made: Made) -> Made:
        """The row if it fits the schema; otherwise raises with the value that does not."""
        if isinstance(made, Failed):
            return made
        for name, value in ((name, value) for row in made for name, value in row.items()):
            try:
                pa.array([value], type=self.types[name])
            except UNFIT:
                return self._failed(self._misfit(name, value))
        return made

    def _failed(self, error: Exception) -> Failed:
        name = type(error).__name__
        if isinstance(error, Misfit):
            return Failed(name, str(error)[:MAX_ERROR])
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file
        ]
        where = f" ({os.path.basename(self.file)}, line {lines[-1]})" if lines else ""
        said = str(error)
        return Failed(name, (f"{name}: {said}" if said else name)[:MAX_ERROR] + where)


def _rows(made: Sequence[Made]) -> list[list[dict[str, Any]] | None]:
    return [None if isinstance(one, Failed) else one for one in made]


def _exact(value: object, kind: pa.DataType) -> bool:
    """Whether a value has this type: Arrow would truncate 1.5 to a whole number, and take a text for a list."""
    if isinstance(value, float):
        return value.is_integer() or not types.is_integer(kind)
    if isinstance(value, str | bytes):
        return not types.is_list(kind)
    if isinstance(value, list) and isinstance(kind, pa.ListType):
        return all(_exact(one, kind.value_type) for one in value)
    if isinstance(value, dict) and isinstance(kind, pa.StructType):
        parts = [kind.field(number) for number in range(kind.num_fields)]
        return all(_exact(value.get(part.name), part.type) for part in parts)
    return True


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
