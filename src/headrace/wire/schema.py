"""Messages as typed classes that are their own schema.

    class HeartbeatRequest(Request, key=12, versions=range(0, 5), flexible=4):
        group_id: str = field(STRING)
        group_instance_id: str | None = field(STRING, since=3, nullable=3)

One class serves every version: a field that a version lacks has its default there. The first use of a version
compiles a reader and a writer for it. Decoding is strict: a response must end exactly where its frame ends, counts
are bounded by the bytes left, a null where none is allowed is refused; all of it as `ProtocolError`.

ADR 0001 says why this is ours and not a library's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform

from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_ELEMENTS_PER_REQUEST, MAX_TAGGED_FIELDS
from headrace.model.varint import write_uvarint
from headrace.wire.primitives import INT8, INT32, Cursor, Primitive, Reader, Writer

NEVER = 1 << 15


@dataclass(frozen=True, slots=True)
class Array:
    element: Primitive | type[Struct]


def array(element: Primitive | type[Struct]) -> Array:
    return Array(element)


Type = Primitive | Array | type["Struct"]


@dataclass(frozen=True, slots=True)
class Field:
    type: Any  # a Type
    since: int
    until: int
    nullable: int
    tag: int | None
    tag_since: int
    default: Any
    ignorable: bool

    @property
    def holds_struct(self) -> bool:
        """Whether its default is an empty structure rather than a value."""
        return self.default is None and self.nullable == NEVER and isinstance(self.type, type)

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def tagged_in(self, version: int) -> bool:
        return self.tag is not None and version >= self.tag_since


_UNSET = object()


def field(
    type: Type,
    *,
    since: int = 0,
    until: int = NEVER,
    nullable: int = NEVER,
    tag: int | None = None,
    tag_since: int | None = None,
    default: Any = _UNSET,
    ignorable: bool = True,
) -> Any:
    """A field of a message.

    since, until: the first and the last version that has it. nullable: the first version in which it may be null.
    tag: its number as a tagged field, from version tag_since (else since) on. default: where it is absent.
    ignorable=False: writing a version that lacks the field while it has another value is our bug.
    """
    if default is _UNSET:
        default = _type_default(type)
    return Field(type, since, until, nullable, tag, since if tag_since is None else tag_since, default, ignorable)


def _type_default(type: Type) -> Any:
    if isinstance(type, Primitive):
        return type.default
    return [] if isinstance(type, Array) else None


@dataclass_transform(kw_only_default=True)
class Struct:
    """A structure of named fields. Fields are the annotated class attributes made with `field`."""

    _fields: ClassVar[dict[str, Field]] = {}
    _immutable_defaults: ClassVar[dict[str, Any]] = {}
    _mutable_defaults: ClassVar[tuple[str, ...]] = ()
    _struct_defaults: ClassVar[tuple[tuple[str, type[Struct]], ...]] = ()
    _codecs: ClassVar[dict[tuple[int, bool], tuple[Reader, Writer]]] = {}

    def __init_subclass__(cls) -> None:
        fields = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        cls._fields = {**cls._fields, **fields}
        for name in fields:
            delattr(cls, name)
        defaults = {name: spec.default for name, spec in cls._fields.items()}
        cls._mutable_defaults = tuple(name for name, value in defaults.items() if isinstance(value, list))
        cls._immutable_defaults = {name: value for name, value in defaults.items() if not isinstance(value, list)}
        cls._struct_defaults = tuple((name, spec.type) for name, spec in cls._fields.items() if spec.holds_struct)
        cls._codecs = {}

    def __init__(self, **values: Any) -> None:
        assert values.keys() <= self._fields.keys(), _unknown_fields(type(self), values)
        state = self.__dict__
        state.update(self._immutable_defaults)
        for name in self._mutable_defaults:
            if name not in values:
                state[name] = []
        state.update(values)
        for name, kind in self._struct_defaults:
            if state[name] is None:
                state[name] = kind()

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(cls._fields)

    @classmethod
    def has_field(cls, name: str, version: int) -> bool:
        return name in cls._fields and cls._fields[name].in_version(version)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # mutable, and compared by value

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({inner})"


def _unknown_fields(cls: type[Struct], values: dict[str, Any]) -> str:
    return f"{cls.__name__} has no field {sorted(values.keys() - cls._fields.keys())}"


class Message(Struct):
    """A struct that stands alone in a frame body: it knows its flexible versions."""

    flexible_since: ClassVar[int] = NEVER
    trailing_bytes_allowed: ClassVar[bool] = False
    max_elements: ClassVar[int] = 2**63

    @classmethod
    def decode(cls, buffer: bytes | memoryview, version: int, position: int = 0) -> Self:
        cursor = Cursor(buffer, position, cls.max_elements)
        read, _ = struct_codec(cls, version, version >= cls.flexible_since)
        message: Self = read(cursor)
        if not cls.trailing_bytes_allowed and cursor.position != cursor.end:
            raise ProtocolError(f"{cls.__name__} v{version}: {cursor.left} bytes after the message's end")
        return message

    def encode_into(self, out: bytearray, version: int) -> None:
        _, write = struct_codec(type(self), version, version >= self.flexible_since)
        write(out, self)

    def encode(self, version: int) -> bytes:
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)


class _ApiMessage(Message):
    """One side of an API: its key and the versions this schema describes."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[range] = range(0)

    def __init_subclass__(cls, *, key: int = -1, versions: range = range(0), flexible: int = NEVER) -> None:
        super().__init_subclass__()
        cls.api_key, cls.versions, cls.flexible_since = key, versions, flexible


class Request(_ApiMessage):
    """Bytes after a request's end are ignored, as Kafka does: librdkafka sends some in its Metadata requests."""

    trailing_bytes_allowed = True
    max_elements = MAX_ELEMENTS_PER_REQUEST


class Response(_ApiMessage):
    pass


def struct_codec(cls: type[Struct], version: int, flexible: bool) -> tuple[Reader, Writer]:
    codec = cls._codecs.get((version, flexible))
    if codec is None:
        codec = cls._codecs[version, flexible] = _compile_struct(cls, version, flexible)
    return codec


Plain = list[tuple[str, Reader, Writer]]
Tagged = dict[int, tuple[str, Reader, Writer, Any]]


def _compile_struct(cls: type[Struct], version: int, flexible: bool) -> tuple[Reader, Writer]:
    plain, tagged, required = fields_in(cls, version, flexible)
    return (
        _struct_reader(cls, plain, tagged, flexible),
        _struct_writer(cls, plain, tagged, required, flexible),
    )


def fields_in(cls: type[Struct], version: int, flexible: bool) -> tuple[Plain, Tagged, list[tuple[str, Any]]]:
    """What a version has in their order on the wire, with tags, and what must have its default there."""
    plain: Plain = []
    tagged: Tagged = {}
    absent: list[tuple[str, Any]] = []
    for name, spec in cls._fields.items():
        if not spec.in_version(version):
            absent.append((name, spec.default))
            continue
        read, write = _field_codec(f"{cls.__name__}.{name}", spec, version, flexible)
        if flexible and spec.tagged_in(version):
            assert spec.tag is not None
            tagged[spec.tag] = (name, read, write, spec.default)
        else:
            plain.append((name, read, write))
    required = [(name, default) for name, default in absent if not cls._fields[name].ignorable]
    return plain, dict(sorted(tagged.items())), required


def _struct_reader(
    cls: type[Struct],
    plain: Plain,
    tagged: Tagged,
    flexible: bool,
) -> Reader:
    steps = [(name, read) for name, read, _ in plain]
    present = {name for name, _ in steps}
    scalars = {name: value for name, value in cls._immutable_defaults.items() if name not in present}
    lists = [name for name in cls._mutable_defaults if name not in present]
    inner = [(name, kind) for name, kind in cls._struct_defaults if name in scalars]
    new = cls.__new__

    def read_struct(cursor: Cursor) -> Any:
        value = new(cls)
        state = value.__dict__
        if scalars:
            state.update(scalars)
        for name in lists:
            state[name] = []
        for name, kind in inner:
            state[name] = kind()
        for name, read in steps:
            state[name] = read(cursor)
        if flexible:
            read_tagged(cursor, state, tagged)
        return value

    return read_struct


def read_tagged(cursor: Cursor, state: dict[str, Any], tagged: Tagged) -> None:
    count = cursor.uvarint()
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields in one structure")
    for _ in range(count):
        tag, size = cursor.uvarint(), cursor.uvarint()
        end = cursor.position + size
        if end > cursor.end:
            raise ProtocolError("a tagged field is cut off")
        known = tagged.get(tag)
        if known is None:
            cursor.position = end
            continue
        state[known[0]] = known[1](cursor)
        if cursor.position != end:
            raise ProtocolError(f"tagged field {tag} does not have the size it states")


def _struct_writer(
    cls: type[Struct],
    plain: Plain,
    tagged: Tagged,
    required: list[tuple[str, Any]],
    flexible: bool,
) -> Writer:
    steps = [(name, write) for name, _, write in plain]
    tags = [(tag, name, write, default) for tag, (name, _, write, default) in tagged.items()]

    def write_struct(out: bytearray, value: Any) -> None:
        state = value.__dict__
        if required:
            check_absent(cls, state, required)
        for name, write in steps:
            write(out, state[name])
        if flexible:
            write_tagged(out, state, tags)

    return write_struct


def check_absent(cls: type[Struct], state: dict[str, Any], required: list[tuple[str, Any]]) -> None:
    for name, default in required:
        assert _is_default(state[name], default), f"{cls.__name__}.{name} is set but this version cannot carry it"


def write_tagged(out: bytearray, state: dict[str, Any], tags: list[tuple[int, str, Writer, Any]]) -> None:
    present = [
        (tag, state[name], write) for tag, name, write, default in tags if not _is_default(state[name], default)
    ]
    write_uvarint(out, len(present))
    for tag, value, write in present:
        body = bytearray()
        write(body, value)
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body


def _is_default(value: Any, default: Any) -> bool:
    if default is None and isinstance(value, Struct):
        return value == type(value)()
    return bool(value == default)


def _field_codec(where: str, spec: Field, version: int, flexible: bool) -> tuple[Reader, Writer]:
    nullable = version >= spec.nullable
    if isinstance(spec.type, Array):
        return _array_codec(where, spec.type, nullable, version, flexible)
    if isinstance(spec.type, Primitive):
        return _primitive_codec(where, spec.type, nullable, flexible)
    read, write = struct_codec(spec.type, version, flexible)
    if not nullable:
        return read, write
    return _nullable_struct(read, write, tagged=flexible and spec.tagged_in(version))


def _primitive_codec(where: str, kind: Primitive, nullable: bool, flexible: bool) -> tuple[Reader, Writer]:
    read, write = (kind.read_compact, kind.write_compact) if flexible else (kind.read, kind.write)
    if nullable or not kind.nullable or kind.name == "records":
        return read, write

    def read_present(cursor: Cursor) -> Any:
        value = read(cursor)
        if value is None:
            raise ProtocolError(f"{where} is null")
        return value

    def write_present(out: bytearray, value: Any) -> None:
        assert value is not None, f"{where} is None"
        write(out, value)

    return read_present, write_present


def _nullable_struct(read: Reader, write: Writer, tagged: bool) -> tuple[Reader, Writer]:
    """A nullable structure is led by a byte: 1 for present, -1 for null; 0 for null in a tagged field."""
    null = 0 if tagged else -1

    def read_nullable(cursor: Cursor) -> Any:
        return read(cursor) if INT8.read(cursor) > null else None

    def write_nullable(out: bytearray, value: Any) -> None:
        INT8.write(out, null if value is None else 1)
        if value is not None:
            write(out, value)

    return read_nullable, write_nullable


def _array_codec(where: str, kind: Array, nullable: bool, version: int, flexible: bool) -> tuple[Reader, Writer]:
    read, write = element_codec(where, kind, version, flexible)

    def read_array(cursor: Cursor) -> Any:
        count = read_count(cursor, where, nullable, flexible)
        return None if count is None else [read(cursor) for _ in range(count)]

    def write_array(out: bytearray, values: Any) -> None:
        write_count(out, values, where, nullable, flexible)
        for value in values or ():
            write(out, value)

    return read_array, write_array


def element_codec(where: str, kind: Array, version: int, flexible: bool) -> tuple[Reader, Writer]:
    if isinstance(kind.element, Primitive):
        return _primitive_codec(where, kind.element, False, flexible)
    return struct_codec(kind.element, version, flexible)


def read_count(cursor: Cursor, where: str, nullable: bool, flexible: bool) -> int | None:
    """How many elements follow; None for an array that is null."""
    count = cursor.uvarint() - 1 if flexible else INT32.read(cursor)
    if count < 0:
        if nullable and count == -1:
            return None
        raise ProtocolError(f"{where} has a count of {count}")
    return cursor.count(count)


def write_count(out: bytearray, values: list[Any] | None, where: str, nullable: bool, flexible: bool) -> None:
    if values is None:
        assert nullable, f"{where} is None"
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    elif flexible:
        write_uvarint(out, len(values) + 1)
    else:
        INT32.write(out, len(values))
