"""Every message in every version against two other implementations: kafka-python's and, where it lacks one, kio's.

Values are drawn from the schema with a fixed seed: our bytes must be read by the other side as the same values and
written by it as the same bytes. Then the strictness: a message that is cut anywhere is refused.
"""

from __future__ import annotations

import functools
import importlib
import io
import pkgutil
import random
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import headrace.wire.messages
from headrace.model.errors import ProtocolError
from headrace.wire.api_keys import FLEXIBLE_SINCE, ApiKey
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.primitives import Cursor, Primitive
from headrace.wire.schema import Array, Field, Request, Response, Struct
from headrace.wire.stepwise import STEP, decode_in_steps, encode_in_steps, holds_more_than

ApiMessage = Request | Response
NOT_IN_KAFKA_PYTHON = {
    "AlterPartition",
    "BrokerHeartbeat",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "UnregisterBroker",
}


def api_messages() -> Iterator[type[ApiMessage]]:
    for info in pkgutil.iter_modules(headrace.wire.messages.__path__):
        module = importlib.import_module(f"headrace.wire.messages.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Request | Response) and value.api_key >= 0:
                yield value


MESSAGES = list(api_messages())
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


# Values drawn from a schema.

_DRAW: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int8": lambda rng: rng.randint(-128, 127),
    "int16": lambda rng: rng.randint(-(1 << 15), (1 << 15) - 1),
    "uint16": lambda rng: rng.randint(0, (1 << 16) - 1),
    "int32": lambda rng: rng.randint(-(1 << 31), (1 << 31) - 1),
    "uint32": lambda rng: rng.randint(0, (1 << 32) - 1),
    "int64": lambda rng: rng.randint(-(1 << 63), (1 << 63) - 1),
    "float64": lambda rng: rng.uniform(-1e9, 1e9),
    "string": lambda rng: "".join(rng.choices("abcXYZ-._ é漢", k=rng.choice((0, 1, 5, 130)))),
    "bytes": lambda rng: rng.randbytes(rng.choice((0, 1, 7, 200))),
    "records": lambda rng: rng.randbytes(rng.choice((0, 1, 7, 200))),
    "uuid": lambda rng: rng.randbytes(16),
}


def draw_struct(rng: random.Random, cls: type[Struct], version: int) -> Any:
    fields = cls._fields.items()
    values = {name: draw_field(rng, spec, version) for name, spec in fields if spec.in_version(version)}
    if "error_code" in values:
        values["error_code"] = rng.randint(-1, 110)  # kio refuses codes it does not know
    return cls(**values)


def draw_field(rng: random.Random, spec: Field, version: int) -> Any:
    if version >= spec.nullable and rng.random() < 0.25:
        return None
    if spec.tag is not None and rng.random() < 0.3:
        return draw_default(spec)
    if isinstance(spec.type, Array):
        element = spec.type.element
        return [draw_type(rng, element, version) for _ in range(rng.choice((0, 1, 2)))]
    return draw_type(rng, spec.type, version)


def draw_default(spec: Field) -> Any:
    return spec.type() if spec.holds_struct else spec.default


def draw_type(rng: random.Random, kind: Any, version: int) -> Any:
    return _DRAW[kind.name](rng) if isinstance(kind, Primitive) else draw_struct(rng, kind, version)


def samples(cls: type[ApiMessage], version: int, count: int) -> Iterator[Any]:
    rng = random.Random(f"{cls.__name__}-{version}")
    yield cls()
    for _ in range(count):
        yield draw_struct(rng, cls, version)


def plain(value: Any, version: int) -> Any:
    """A message as dicts and lists, with the fields its version has."""
    if isinstance(value, Struct):
        fields = value._fields.items()
        return {name: plain(getattr(value, name), version) for name, spec in fields if spec.in_version(version)}
    return [plain(item, version) for item in value] if isinstance(value, list) else value


# The other implementations.


@pytest.fixture(autouse=True, scope="module")
def kafka_python_as_before() -> Iterator[None]:
    """It takes every class made from its schemas for its own from then on, and its clients fail."""
    registry = importlib.import_module("kafka.protocol.api_header").ResponseClassRegistry
    before = dict(registry._response_class_registry)
    yield
    registry._response_class_registry.clear()
    registry._response_class_registry.update(before)


@functools.cache
def kafka_python_class(name: str) -> Any:
    """Its class made anew from its schema: the ones it exports rename fields and change types for convenience."""
    base = importlib.import_module("kafka.protocol.api_message").ApiMessage
    return type(base)(name, (base,), {})


def their_plain(value: Any, ours: Any) -> Any:
    """Their value in our terms. An absent tagged structure or id is None to them and an empty one to us."""
    if isinstance(value, dict):
        return {name: their_plain(item, ours.get(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [their_plain(item, own) for item, own in zip(value, ours, strict=True)]
    if isinstance(value, uuid.UUID):
        return value.bytes
    if value is None and isinstance(ours, dict):
        return ours if set(ours.values()) == {-1} else None
    if value is None and ours == bytes(16):
        return ours
    return bytes(value) if isinstance(value, memoryview) else value


def in_kafka_python(cls: type[ApiMessage]) -> bool:
    return cls.__name__.removesuffix("Request").removesuffix("Response") not in NOT_IN_KAFKA_PYTHON


def rewritten_by_kio(cls: type[ApiMessage], version: int, raw: bytes) -> bytes:
    serial = importlib.import_module("kio.serial")
    side = "request" if issubclass(cls, Request) else "response"
    module = importlib.import_module(f"kio.schema.{cls.__module__.rsplit('.', 1)[1]}.v{version}.{side}")
    entity = getattr(module, cls.__name__)
    value, size = serial.entity_reader(entity)(raw, 0)
    assert size == len(raw)
    out = io.BytesIO()
    serial.entity_writer(entity)(out, value)
    return out.getvalue()


@every_message
def test_bytes_and_values_agree_with_another_implementation(cls: type[ApiMessage]) -> None:
    for version in cls.versions:
        for message in samples(cls, version, 4):
            raw = message.encode(version)
            assert cls.decode(raw, version) == message
            if in_kafka_python(cls):
                theirs = kafka_python_class(cls.__name__).decode(raw, version=version)
                expected = plain(message, version)
                assert their_plain(theirs.to_dict(json=False), expected) == expected
                assert theirs.encode() == raw
            else:
                assert rewritten_by_kio(cls, version, raw) == raw


def field_facts(cls: type[Struct], version: int, flexible: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, spec in cls._fields.items():
        if not spec.in_version(version):
            continue
        kind = spec.type.element if isinstance(spec.type, Array) else spec.type
        inner = None if isinstance(kind, Primitive) else field_facts(kind, version, flexible)
        tag = spec.tag if flexible and spec.tagged_in(version) else None
        facts[name] = (version >= spec.nullable, tag, isinstance(spec.type, Array), inner)
    return facts


def their_field_facts(fields: Any, version: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for spec in fields:
        if not spec.for_version_q(version):
            continue
        is_struct = spec.is_struct() or spec.is_struct_array()
        inner = their_field_facts(spec._fields, version) if is_struct else None
        tag = spec.tag if spec.tagged_field_q(version) else None
        facts[spec.name] = (spec.nullable_for_version_q(version), tag, spec.is_array(), inner)
    return facts


@every_message
def test_names_nulls_and_tags_agree_with_kafka_python(cls: type[ApiMessage]) -> None:
    for version in cls.versions:
        if in_kafka_python(cls):
            theirs = their_field_facts(kafka_python_class(cls.__name__)._struct._fields, version)
            assert field_facts(cls, version, version >= cls.flexible_since) == theirs


@every_message
def test_a_message_cut_at_any_byte_is_refused(cls: type[ApiMessage]) -> None:
    for version in cls.versions:
        for message in list(samples(cls, version, 2))[1:]:
            raw = message.encode(version)
            for end in range(len(raw)):
                with pytest.raises(ProtocolError):
                    cls.decode(raw[:end], version)


@every_message
def test_bytes_behind_a_message(cls: type[ApiMessage]) -> None:
    """Refused behind a response; ignored behind a request, since Kafka does and librdkafka relies on it."""
    for version in cls.versions:
        for message in samples(cls, version, 1):
            longer = message.encode(version) + b"\0"
            if issubclass(cls, Request):
                assert cls.decode(longer, version) == message
            else:
                with pytest.raises(ProtocolError):
                    cls.decode(longer, version)


@every_message
def test_damaged_bytes_are_a_protocol_error_or_a_value(cls: type[ApiMessage]) -> None:
    """Nothing but ProtocolError may come out of a decoder, whatever it is fed."""
    for version in cls.versions:
        rng = random.Random(f"damage-{cls.__name__}-{version}")
        raw = bytearray(draw_struct(rng, cls, version).encode(version))
        for _ in range(30):
            damaged = bytearray(raw) or bytearray(1)
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            try:
                cls.decode(bytes(damaged), version)
            except ProtocolError:
                pass


def test_both_sides_of_every_api_agree() -> None:
    sides: dict[int, list[type[ApiMessage]]] = {}
    for cls in MESSAGES:
        sides.setdefault(cls.api_key, []).append(cls)
    assert sides.keys() == set(ApiKey)
    for key, pair in sides.items():
        assert [issubclass(cls, Request) for cls in pair] == [True, False]
        assert pair[0].versions == pair[1].versions
        assert pair[0].__name__ == "".join(p.title() for p in ApiKey(key).name.split("_")) + "Request"


def test_headers_know_which_versions_are_flexible() -> None:
    for cls in MESSAGES:
        assert FLEXIBLE_SINCE[cls.api_key] == cls.flexible_since, cls


def drive(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    """How many steps it took, and what came out."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


@every_message
def test_in_steps_is_the_same(cls: type[ApiMessage]) -> None:
    for version in cls.versions:
        for sample in samples(cls, version, 1):
            whole = sample.encode(version)
            out = bytearray()
            drive(encode_in_steps(sample, out, version))
            assert out == whole
            _, value = drive(decode_in_steps(cls, Cursor(memoryview(whole)), version))
            assert value == cls.decode(whole, version)


def test_steps_are_short_and_a_large_message_is_known() -> None:
    topics = [
        ListOffsetsTopic(name=f"t{n}", partitions=[ListOffsetsPartition(partition_index=i) for i in range(500)])
        for n in range(20)
    ]
    request = ListOffsetsRequest(topics=topics)
    assert holds_more_than(request, 10_019)
    assert not holds_more_than(request, 10_020)
    out = bytearray()
    count, _ = drive(encode_in_steps(request, out, 7))
    assert count >= 10_000 // STEP
    frame = bytearray(out)
    cursor = Cursor(memoryview(frame))
    steps = decode_in_steps(ListOffsetsRequest, cursor, 7)
    next(steps)
    cursor.keep()
    frame[:] = bytes(len(frame))
    count, value = drive(steps)
    assert count >= 10_000 // STEP
    assert value == ListOffsetsRequest.decode(bytes(out), 7)
