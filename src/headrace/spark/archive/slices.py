"""Which archived records are meant: by partition, offset, time, key, conditions, or a function of the user.

Conditions are `FIELD OPERATOR VALUE`, all of which must hold:

    key=ann    value~error    value.order.total>=100    header.source=shop    partition!=3    offset<1000

`value.a.b` is a field of a JSON value; a record whose value is not JSON, or has no such field, is left out, also
by `!=`. A field that no record has is an error. `~` is "contains". Both sides are compared as numbers if both are
numbers, else as text.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.model.users_code import UsersCode
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.manifest import ArchivedRange
from headrace.spark.arrow import columns as c

_CONDITION = re.compile(r"\s*([\w.\-]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_ABSENT = object()
Keep = Callable[[pa.Table], Sequence[bool]]


@dataclass(frozen=True, slots=True)
class Condition:
    field: str
    operator: str
    value: str

    @property
    def column(self) -> str:
        name = self.field.partition(".")[0]
        return c.HEADERS if name == "header" else name

    def holds(self, found: Any) -> bool:
        """`found` is what `look_up` returns."""
        return found is not _ABSENT and _compare(found, self.operator, self.value)

    def look_up(self, cell: Any) -> Any:
        """The field in a cell of the column, or _ABSENT."""
        name, _, path = self.field.partition(".")
        if name == "header":
            values = [one["value"] for one in cell or () if one["key"] == path and one["value"] is not None]
            return _text(values[-1]) if values else _ABSENT
        if cell is None:
            return _ABSENT
        if not path:
            return _text(cell) if isinstance(cell, bytes) else cell
        return _json_field(cell, path.split("."))

    def fields_of(self, cell: Any) -> list[str]:
        """The names that the cell has in the place of this field, if any."""
        *parents, _ = self.field.split(".")[1:]
        if self.column == c.HEADERS:
            return sorted({f"header.{one['key']}" for one in cell or () if one["value"] is not None})
        while (found := _json_field(cell or b"", parents)) is _ABSENT and parents:
            parents.pop()
        return sorted(".".join(["value", *parents, name]) for name in found) if isinstance(found, dict) else []


def parse_condition(text: str) -> Condition:
    """ValueError says what is wrong."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a condition; write value.amount>=100, key=ann, header.source~shop")
    name, _, path = match[1].partition(".")
    fields = ("key", "value", "header", "partition", "offset")
    if name not in fields or (path and name not in ("value", "header")) or (name == "header" and not path):
        raise ValueError(f"{match[1]!r} is not a field; the fields are key, value, value.FIELD, header.NAME, "
                         "partition, offset")  # fmt: skip
    return Condition(match[1], match[2], match[3])


@dataclass(frozen=True, slots=True)
class Slice:
    """Which records of a topic to take; by default all."""

    topic: str
    partitions: tuple[int, ...] = ()
    start_offset: int | None = None
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    """Not included, as with offsets."""
    keys: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    function: str = ""
    """As `file.py:name`: gets a table of rows, gives true or false for each."""

    def spelled(self) -> str:
        """The same text for the same slice."""
        return json.dumps(asdict(self), sort_keys=True)

    def may_have(self, one: ArchivedRange) -> bool:
        """Whether a range can contain any of the records, according to the manifest."""
        if one.topic != self.topic or (self.partitions and one.partition not in self.partitions):
            return False
        return any(
            (self.start_offset is None or file.last_offset >= self.start_offset)
            and (self.end_offset is None or file.first_offset < self.end_offset)
            and (self.start_ms is None or file.max_timestamp_ms >= self.start_ms)
            and (self.end_ms is None or file.min_timestamp_ms < self.end_ms)
            for file in one.files
        )

    def chooser(self) -> Chooser:
        return Chooser(self, load_function(self.function) if self.function else None)


class Chooser:
    """Picks the rows of a slice out of the rows of its partitions."""

    def __init__(self, wanted: Slice, keep: Keep | None) -> None:
        self._slice = wanted
        self._keep = keep
        self._without: dict[Condition, Any] = {}
        """Conditions whose field no record has had so far, with the cell of one."""
        self._met: set[Condition] = set()

    def __call__(self, rows: pa.Table) -> pa.Table:
        wanted = self._slice
        rows = _filtered(rows, _inside(_numbers(rows, c.OFFSET), wanted.start_offset, wanted.end_offset))
        rows = _filtered(rows, _inside(_numbers(rows, c.TIMESTAMP) // 1000, wanted.start_ms, wanted.end_ms))
        if wanted.keys:
            keys = {key.encode() for key in wanted.keys}
            rows = _filtered(rows, np.array([key in keys for key in rows.column(c.KEY).to_pylist()], np.bool_))
        for one in wanted.where:
            rows = _filtered(rows, self._holds(one, rows.column(one.column).to_pylist()))
        if self._keep is not None and rows.num_rows:
            rows = _filtered(rows, _asked(self._keep, rows, wanted.function))
        return rows

    def _holds(self, condition: Condition, cells: list[Any]) -> NDArray[np.bool_]:
        found = [condition.look_up(cell) for cell in cells]
        if any(one is not _ABSENT for one in found):
            self._met.add(condition)
        elif cells:
            self._without.setdefault(condition, cells[0])
        return np.array([condition.holds(one) for one in found], np.bool_)

    def refuse_unknown_fields(self) -> None:
        """After all rows: a field that none of them had is probably misspelt."""
        for condition, cell in self._without.items():
            if "." in condition.field and condition not in self._met:
                there = ", ".join(condition.fields_of(cell))
                raise ArchiveError(
                    f"No record that was read has the field {condition.field}.",
                    f"One of them has {there}." if there else None,
                )


def load_function(spelled: str) -> Keep:
    path, _, name = spelled.rpartition(":")
    spec = importlib.util.spec_from_file_location("headrace_replay_filter", path) if path else None
    if spec is None or spec.loader is None or not Path(path).exists():
        raise ArchiveError(
            f"There is no filter {spelled}.", "Name a file and a function in it, as keep.py:wanted."
        )
    module = importlib.util.module_from_spec(spec)
    with _users_code(path):
        spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise ArchiveError(f"{path} has no function {name}.")
    keep: Keep = found
    return keep


def _asked(keep: Keep, rows: pa.Table, name: str) -> NDArray[np.bool_]:
    with _users_code(name.rpartition(":")[0]):
        answer = keep(rows)
        given = answer.to_pylist() if isinstance(answer, pa.Array | pa.ChunkedArray) else answer
        found = np.array([bool(one) for one in given], np.bool_)
    if len(found) != rows.num_rows:
        raise ArchiveError(f"{name} gave {len(found)} answers for {rows.num_rows} rows.")
    return found


def _users_code(path: str) -> UsersCode:
    return UsersCode(path, lambda told: ArchiveError(f"{told}."))


def _filtered(rows: pa.Table, which: NDArray[np.bool_]) -> pa.Table:
    return rows if which.all() else rows.filter(pa.array(which))


def _inside(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]], start: int | None, end: int | None
) -> NDArray[np.bool_]:
    found = np.ones(len(numbers), np.bool_)
    if start is not None:
        found &= numbers >= start
    if end is not None:
        found &= numbers < end
    return found


def _numbers(rows: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rows.column(name).combine_chunks().cast(pa.int64()).to_numpy()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json_field(data: bytes, path: list[str]) -> Any:
    try:
        found = json.loads(data)
    except ValueError:
        return _ABSENT
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return _ABSENT
        found = found[name]
    return found


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(found: Any, how: str, wanted: str) -> bool:
    text = found if isinstance(found, str) else json.dumps(found)
    if how == "~":
        return wanted in text
    numbers = _number(text), _number(wanted)
    return _ORDER[how](*numbers) if None not in numbers else _ORDER[how](text, wanted)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
