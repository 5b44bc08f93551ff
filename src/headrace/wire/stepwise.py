"""Large messages in steps: the same bytes as `Message.decode` and `encode`, with places to stop in between.

A request may hold a quarter of a million elements and a response as many; turning them into objects, or into
bytes, takes a second, in which nobody else would be served. Here reading and writing are generators that yield
after every few elements; whoever drives them decides at each yield whether to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from headrace.model.errors import ProtocolError
from headrace.wire.primitives import Cursor, Writer
from headrace.wire.schema import (
    Array,
    Field,
    Message,
    Struct,
    check_absent,
    element_codec,
    fields_in,
    read_count,
    read_tagged,
    write_count,
    write_tagged,
)

STEP = 32
"""Elements between two places to stop."""

M = TypeVar("M", bound=Message)
Steps = Generator[None, None, Any]
SteppedReader = Callable[[Cursor], Steps]
SteppedWriter = Callable[[bytearray, Any], Steps]

_readers: dict[tuple[type[Struct], int, bool], SteppedReader] = {}
_writers: dict[tuple[type[Struct], int, bool], SteppedWriter] = {}


def decode_in_steps(cls: type[M], cursor: Cursor, version: int) -> Generator[None, None, M]:
    """The cursor's buffer may be exchanged for a copy between two steps."""
    message: M = yield from _reader(cls, version, version >= cls.flexible_since)(cursor)
    if not cls.trailing_bytes_allowed and cursor.position != cursor.end:
        raise ProtocolError(f"{cls.__name__} v{version}: {cursor.left} bytes after the message's end")
    return message


def encode_in_steps(message: Message, out: bytearray, version: int) -> Steps:
    cls = type(message)
    yield from _writer(cls, version, version >= cls.flexible_since)(out, message)


def holds_more_than(value: Struct, most: int) -> bool:
    """Whether its arrays hold more elements than that, nested ones included."""
    return _elements(value, most) > most


def arrays_in(value: Struct) -> Iterator[list[Any]]:
    """Its arrays that hold anything, and those of their elements; now and then an empty one, a place to stop."""
    state = value.__dict__
    for name, is_deep in _arrays_of(type(value)):
        values = state[name]
        if values:
            yield values
            if is_deep:
                for index, inner in enumerate(values):
                    if index % STEP == STEP - 1:
                        yield []
                    yield from arrays_in(inner)


def _elements(value: Struct, most: int) -> int:
    count = 0
    state = value.__dict__
    for name, is_deep in _arrays_of(type(value)):
        values = state[name]
        if not values:
            continue
        count += len(values)
        if is_deep and count <= most:
            for inner in values:
                count += _elements(inner, most)
                if count > most:
                    break
    return count


_arrays: dict[type[Struct], tuple[tuple[str, bool], ...]] = {}


def _arrays_of(cls: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """The fields that are arrays, and of each whether there are arrays in its elements."""
    found = _arrays.get(cls)
    if found is None:
        found = _arrays[cls] = tuple(
            (name, _deep_element(spec) is not None)
            for name, spec in cls._fields.items()
            if isinstance(spec.type, Array)
        )
    return found


def _deep_element(spec: Field) -> type[Struct] | None:
    """The structure that an array is of, if that has arrays itself."""
    element = spec.type.element
    return element if isinstance(element, type) and _arrays_of(element) else None


def _reader(cls: type[Struct], version: int, flexible: bool) -> SteppedReader:
    key = (cls, version, flexible)
    if key not in _readers:
        _readers[key] = _compile_reader(cls, version, flexible)
    return _readers[key]


def _compile_reader(cls: type[Struct], version: int, flexible: bool) -> SteppedReader:
    plain, tagged, _ = fields_in(cls, version, flexible)
    steps = [
        (name, read, _array_reader(f"{cls.__name__}.{name}", cls._fields[name], version, flexible))
        for name, read, _ in plain
    ]

    def read_struct(cursor: Cursor) -> Steps:
        value = cls()
        state = value.__dict__
        for name, read, read_slowly in steps:
            state[name] = read(cursor) if read_slowly is None else (yield from read_slowly(cursor))
        if flexible:
            read_tagged(cursor, state, tagged)
        return value

    return read_struct


def _array_reader(where: str, spec: Field, version: int, flexible: bool) -> SteppedReader | None:
    if not isinstance(spec.type, Array):
        return None
    read, _ = element_codec(where, spec.type, version, flexible)
    nullable = version >= spec.nullable
    deep = _deep_element(spec)
    read_deep = None if deep is None else _reader(deep, version, flexible)

    def read_array(cursor: Cursor) -> Steps:
        left = read_count(cursor, where, nullable, flexible)
        if left is None:
            return None
        values: list[Any] = []
        if read_deep is not None:
            for index in range(left):
                if index % STEP == 0:
                    yield
                values.append((yield from read_deep(cursor)))
            return values
        while left > 0:
            yield
            values += [read(cursor) for _ in range(min(left, STEP))]
            left -= STEP
        return values

    return read_array


def _writer(cls: type[Struct], version: int, flexible: bool) -> SteppedWriter:
    key = (cls, version, flexible)
    if key not in _writers:
        _writers[key] = _compile_writer(cls, version, flexible)
    return _writers[key]


def _compile_writer(cls: type[Struct], version: int, flexible: bool) -> SteppedWriter:
    plain, tagged, required = fields_in(cls, version, flexible)
    steps = [
        (name, write, _array_writer(f"{cls.__name__}.{name}", cls._fields[name], version, flexible))
        for name, _, write in plain
    ]
    tags = [(tag, name, write, default) for tag, (name, _, write, default) in tagged.items()]

    def write_struct(out: bytearray, value: Any) -> Steps:
        state = value.__dict__
        check_absent(cls, state, required)
        for name, write, write_slowly in steps:
            if write_slowly is None:
                write(out, state[name])
            else:
                yield from write_slowly(out, state[name])
        if flexible:
            write_tagged(out, state, tags)

    return write_struct


def _array_writer(where: str, spec: Field, version: int, flexible: bool) -> SteppedWriter | None:
    if not isinstance(spec.type, Array):
        return None
    write: Writer
    _, write = element_codec(where, spec.type, version, flexible)
    nullable = version >= spec.nullable
    deep = _deep_element(spec)
    write_deep = None if deep is None else _writer(deep, version, flexible)

    def write_array(out: bytearray, values: list[Any] | None) -> Steps:
        write_count(out, values, where, nullable, flexible)
        for index, value in enumerate(values or ()):
            if index % STEP == 0:
                yield
            if write_deep is None:
                write(out, value)
            else:
                yield from write_deep(out, value)

    return write_array
