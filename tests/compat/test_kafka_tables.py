"""Our tables against those in the jars of the oracle: messages, versions, error codes, names of settings.

What a release of Kafka adds shows here: it is served, or it is in `SKIPPED`, and docs/skipped.md says why.
They need the jars and Java: they run with `--with-java`, as in `make conformance`.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace.wire.messages
from headrace.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS, is_known_unused
from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.model.errors import RETRIABLE, ErrorCode
from headrace.testing.apache_kafka import KAFKA_VERSION
from headrace.wire.primitives import Primitive
from headrace.wire.schema import Array, Field, Request, Response, Struct
from tests.compat.test_java_tools import LIBRARIES, java

pytestmark = [pytest.mark.java, pytest.mark.headrace_only]
load_all()

TRANSACTIONS = {24, 25, 26, 27, 28}
DELEGATION_TOKENS = {38, 39, 40, 41}
RAFT = {55, 80, 81}
TELEMETRY = {71, 72}
SHARE_GROUPS = {*range(76, 80), *range(83, 88), *range(90, 93)}
STREAMS_GROUPS = {88, 89}
SKIPPED = TRANSACTIONS | DELEGATION_TOKENS | RAFT | TELEMETRY | SHARE_GROUPS | STREAMS_GROUPS


@functools.cache
def schemas() -> dict[str, Any]:
    """Kafka's messages by name, as its client jar has them."""
    found = {}
    with zipfile.ZipFile(LIBRARIES / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                found[schema["name"]] = schema
    return found


def messages() -> Iterator[type[Request] | type[Response]]:
    for info in pkgutil.iter_modules(headrace.wire.messages.__path__):
        module = importlib.import_module(f"headrace.wire.messages.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Request | Response) and value.api_key >= 0:
                yield value


def versions(text: str) -> range:
    if text == "none":
        return range(0)
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), 1 << 15)
    return range(int(first), int(last or first) + 1)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@functools.cache
def tables() -> dict[str, set[tuple[str, ...]]]:
    """What `KafkaTables.java` printed, by the first word of the line."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for line in java(str(Path(__file__).parent / "java" / "KafkaTables.java")).splitlines():
        kind, *rest = line.split()
        found.setdefault(kind, set()).add(tuple(rest))
    return found


def test_every_api_of_a_broker_is_served_or_skipped() -> None:
    theirs = {
        schema["apiKey"]: schema
        for name, schema in schemas().items()
        if name.endswith("Request") and "broker" in schema.get("listeners", [])
    }
    served = {key: APIS[key].versions for key in APIS.keys() & theirs.keys()}
    assert theirs.keys() - served.keys() == SKIPPED
    for key, ours in served.items():
        released = versions(theirs[key]["validVersions"])
        if theirs[key].get("latestVersionUnstable"):
            released = released[:-1]
        assert ours == released, theirs[key]["name"]


def kafka_facts(fields: list[Any], structs: dict[str, Any], version: int) -> dict[str, Any]:
    """Type, whether null may be, tag and inner fields of each field that the version has."""
    facts = {}
    for spec in fields:
        if version not in versions(spec["versions"]):
            continue
        is_array = spec["type"].startswith("[]")
        kind = spec["type"].removeprefix("[]")
        inner = spec.get("fields") or structs.get(kind)
        tagged = "tag" in spec and version in versions(spec["taggedVersions"])
        facts[snake(spec["name"]).replace("_", "")] = (
            None if inner else kind,
            is_array,
            version in versions(spec.get("nullableVersions", "none")),
            spec["tag"] if tagged else None,
            kafka_facts(inner, structs, version) if inner else None,
        )
    return facts


def our_facts(cls: type[Struct], version: int, flexible: bool) -> dict[str, Any]:
    facts = {}
    for name, spec in cls._fields.items():
        if not spec.in_version(version):
            continue
        kind = spec.type.element if isinstance(spec.type, Array) else spec.type
        facts[name.replace("_", "")] = (
            kind.name if isinstance(kind, Primitive) else None,
            isinstance(spec.type, Array),
            version >= spec.nullable,
            _tag(spec, version, flexible),
            None if isinstance(kind, Primitive) else our_facts(kind, version, flexible),
        )
    return facts


def _tag(spec: Field, version: int, flexible: bool) -> int | None:
    return spec.tag if flexible and spec.tagged_in(version) else None


@pytest.mark.parametrize("cls", list(messages()), ids=lambda cls: cls.__name__)
def test_messages(cls: type[Request] | type[Response]) -> None:
    theirs = schemas()[cls.__name__]
    assert cls.api_key == theirs["apiKey"]
    assert cls.flexible_since == min(versions(theirs["flexibleVersions"]), default=cls.flexible_since)
    structs = {row["name"]: row["fields"] for row in theirs.get("commonStructs", [])}
    for version in cls.versions:
        assert version in versions(theirs["validVersions"])
        expected = kafka_facts(theirs["fields"], structs, version)
        assert our_facts(cls, version, version >= cls.flexible_since) == expected, f"v{version}"
        # In the same order: tagged fields are the only ones that have none.
        untagged = [name for name, fact in expected.items() if fact[3] is None]
        ours = our_facts(cls, version, version >= cls.flexible_since)
        assert [name for name, fact in ours.items() if fact[3] is None] == untagged


def test_error_codes() -> None:
    ours = {(str(code.value), code.name.lower(), str(code in RETRIABLE).lower()) for code in ErrorCode}
    assert ours == tables()["error"]


def test_every_setting_is_known() -> None:
    """One that we do not use is a warning at the start, and not an error."""
    brokers = {name for (name,) in tables()["broker"]}
    assert {name for name in brokers if name not in BROKER_SETTINGS and not is_known_unused(name)} == set()
    assert {name for (name,) in tables()["topic"]} <= set(TOPIC_SETTINGS)
