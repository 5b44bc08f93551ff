"""How long one client can hold up all others: `python -m bench.stalls`.

A broker whose loop is turned by hand gets the largest request of each API that it takes, and small requests that
each ask for much, many at a time. While it works on them, the CPU time of every turn is measured: nobody else is
served during a turn, so the longest one is what others wait at most on a free machine. A polite client asks in
between and must be answered: its answers are counted. The last line says how many cases are over the goal; if any
is, the exit code is 1. A busy machine makes CPU time longer too: only a quiet run gives the figures.
"""

from __future__ import annotations

import argparse
import gc
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.hand_driven import CREATE_TOPICS_VERSION, Client, HandDrivenBroker
from bench.requests import batch, random_values
from headrace.handlers import load_all
from headrace.handlers.registry import APIS, Api
from headrace.model.config_resources import ResourceType
from headrace.model.limits import MAX_FETCH_REQUEST_BYTES, MAX_PRODUCE_PARTITIONS
from headrace.node import settle_memory
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.primitives import Primitive
from headrace.wire.schema import Array, Field, Request, Struct

PARTITIONS = 100_000
KNOWN = 20_000
SAMPLE = 100
GOAL_SECONDS = 0.05
TOPIC = "stalls"
NEW_TOPICS = 1_000
PRODUCE, FETCH, API_VERSIONS, CREATE_TOPICS = 0, 1, 18, 19
PATIENCE_SECONDS = 600.0
"""How long to wait for an answer, however busy the machine is."""
SESSION_PARTITIONS = 30_000
SESSION_FETCHES = 500
FETCH_PARTITION_BYTES = 28
"""The size of a partition in a Fetch request of version 11."""


class NoAnswer(Exception):
    """The hostile client got no answer within `PATIENCE_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Stall:
    longest_turn: float
    longest_collection: float
    """The longest garbage collection within a turn."""
    turns: int
    polite_answers: int


def frame(key: int, version: int, body: bytes, flexible: bool) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


# -- the largest request of an API, from its schema


def largest(api: Api, wide: bool, most: int = PARTITIONS, known: bool = False) -> bytes | None:
    """The largest request that the broker accepts, with at most `most` elements; None if it has no arrays.

    The elements are in one inner array (`wide` false), or at the top. With `known` they all name the same existing
    topic; else nearly all name topics that do not exist.
    """
    assert api.request is not None
    sample = _request(api, wide, SAMPLE, known)
    if sample is None:
        return None
    per_element = -(-_elements(sample) // SAMPLE)
    count = min(most, api.request.max_elements // per_element - 1)
    request = _request(api, wide, count, known)
    assert request is not None
    version = api.versions[-1]
    return frame(api.key, version, request.encode(version), version >= api.flexible_since)


def _elements(struct: Struct) -> int:
    """The number of elements in all arrays, nested ones included; the broker limits it per request."""
    total = 0
    for spec_name, spec in struct._fields.items():
        values = getattr(struct, spec_name)
        if isinstance(spec.type, Array) and values:
            total += len(values) + sum(_elements(value) for value in values if isinstance(value, Struct))
    return total


def _request(api: Api, wide: bool, count: int, known: bool) -> Request | None:
    assert api.request is not None
    version = api.versions[-1]
    arrays = [name for name, spec in api.request._fields.items() if _is_array(spec, version)]
    if not arrays:
        return None
    places: Sequence[int] = [0] * count if known else range(count)
    values: dict[str, Any] = {name: _filled(api.request._fields[name], version, wide, places) for name in arrays}
    for name, spec in api.request._fields.items():
        if isinstance(spec.type, Primitive) and spec.type.name == "string" and spec.in_version(version):
            values[name] = "g"
    return api.request(**values)


def _is_array(spec: Field, version: int) -> bool:
    return isinstance(spec.type, Array) and spec.in_version(version)


def _filled(spec: Field, version: int, wide: bool, places: Sequence[int]) -> list[Any]:
    element: Any = spec.type.element
    deep = not isinstance(element, Primitive) and any(
        _is_array(inner, version) for inner in element._fields.values()
    )
    inside = places[:1] if wide else places
    return [_element(element, version, place, inside) for place in (places if wide or not deep else places[:1])]


def _element(kind: Any, version: int, place: int, inside: Sequence[int]) -> Any:
    if isinstance(kind, Primitive):
        return _value(kind, place)
    values: dict[str, Any] = {}
    for name, spec in kind._fields.items():
        if not spec.in_version(version):
            continue
        if isinstance(spec.type, Array):
            values[name] = [_element(spec.type.element, version, number, inside[:1]) for number in inside]
        elif name == "resource_type":
            values[name] = ResourceType.TOPIC
        elif isinstance(spec.type, Primitive) and spec.tag is None:
            values[name] = _value(spec.type, place)
    return _struct(kind, values)


def _struct(kind: type[Struct], values: dict[str, Any]) -> Struct:
    return kind(**values)


def _value(kind: Primitive, index: int) -> Any:
    if kind.name == "string":
        return TOPIC if index == 0 else f"t{index}"
    if kind.name == "uuid":
        return index.to_bytes(16, "big")
    if kind.name in ("int32", "int64"):
        return index
    return kind.default


# -- hot requests


def full_fetch(count: int) -> bytes:
    parts = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, 1) for index in range(count))
    head = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
    body = head + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", count) + parts + struct.pack(">ih", 0, 0)
    return frame(FETCH, 11, body, flexible=False)


def session_fetch(session: int, epoch: int, partitions: int) -> bytes:
    """A Fetch that begins a session over unknown partitions (0, 0), or one that names nothing new in it."""
    parts = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, 1) for index in range(partitions))
    head = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, session, epoch)
    topics = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", partitions) + parts if partitions else bytes(4)
    return frame(FETCH, 11, head + topics + struct.pack(">ih", 0, 0), flexible=False)


def full_produce(count: int, topic: str = "t", data: bytes | None = None) -> bytes:
    """A Produce for one topic: `count` partitions without a batch, or one batch for partition 0 `count` times."""
    size = struct.pack(">i", -1 if data is None else len(data)) + (data or b"")
    parts = b"".join(struct.pack(">i", index if data is None else 0) + size for index in range(count))
    head = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", len(topic)) + topic.encode()
    return frame(PRODUCE, 8, head + struct.pack(">i", count) + parts, flexible=False)


def new_topics(count: int) -> bytes:
    """A request that creates `count` topics, each with one partition."""
    topics = [CreatableTopic(name=f"new-{n}", num_partitions=1, replication_factor=1) for n in range(count)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
    return frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, request.encode(CREATE_TOPICS_VERSION), flexible=True)


# -- measuring


class Meeting:
    """A hostile and a polite client at one broker."""

    def __init__(self, broker: HandDrivenBroker) -> None:
        self._broker = broker
        self._polite = broker.connect()
        self._hello = frame(API_VERSIONS, 0, b"", flexible=False)
        self._longest_collection = self._collecting_since = 0.0
        gc.callbacks.append(self._note_collection)

    def measure(self, hostile: Client, data: bytes, answers: int) -> Stall:
        longest = 0.0
        turns = polite = 0
        self._longest_collection = 0.0
        hostile.send(data)
        self._polite.send(self._hello)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while hostile.receive() < answers and not hostile.closed:
            if time.monotonic() > deadline:
                raise NoAnswer
            began = time.thread_time()
            self._broker.turn()
            longest = max(longest, time.thread_time() - began)
            turns += 1
            hostile.send(b"")
            if self._polite.receive():
                polite += len(self._polite.answers)
                self._polite.answers.clear()
                self._polite.send(self._hello)
        return Stall(longest, self._longest_collection, turns, polite)

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._longest_collection = max(self._longest_collection, time.thread_time() - self._collecting_since)


def cases() -> Iterator[tuple[str, Callable[[], bytes | None]]]:
    load_all()
    for key in sorted(APIS):
        api = APIS[key]
        if api.request is None:
            continue
        for wide in (False, True):
            where = f"{api.name}, {'many at the top' if wide else 'many in one'}"
            yield where, partial(largest, api, wide)
            yield f"{where}, all known", partial(largest, api, wide, KNOWN, known=True)
    most = MAX_FETCH_REQUEST_BYTES // FETCH_PARTITION_BYTES - 2
    yield "Fetch, as many partitions as are taken", partial(full_fetch, most)
    most = MAX_PRODUCE_PARTITIONS
    yield "Produce, as many partitions as are taken", partial(full_produce, most)
    yield f"CreateTopics, {NEW_TOPICS:,} new ones", partial(new_topics, NEW_TOPICS)
    tiny = batch(random_values(1, 1))
    yield "Produce, as many batches as are taken", partial(full_produce, most, TOPIC, tiny)


def measure_session(broker: HandDrivenBroker, meeting: Meeting) -> tuple[int, Stall]:
    """Measures incremental Fetches of a large session, sent together: each has 50 bytes and asks for all of it."""
    hostile = broker.connect()
    meeting.measure(hostile, session_fetch(0, 0, SESSION_PARTITIONS), 1)
    session = int.from_bytes(hostile.answers.pop()[10:14], "big")
    flood = b"".join(session_fetch(session, epoch, 0) for epoch in range(1, SESSION_FETCHES + 1))
    return len(flood), meeting.measure(hostile, flood, SESSION_FETCHES)


def measure_all(broker: HandDrivenBroker, only: str) -> Iterator[tuple[str, int, Stall | None]]:
    """Yields case, bytes sent, and what was measured; None if no answer came."""
    meeting = Meeting(broker)
    for name, make in cases():
        data = make() if only in name else None
        if data is None:
            continue
        try:
            yield name, len(data), meeting.measure(broker.connect(), data, 1)
        except NoAnswer:
            yield name, len(data), None
    name = f"Fetch, {SESSION_FETCHES} of a session of {SESSION_PARTITIONS:,}"
    if only in name:
        try:
            yield name, *measure_session(broker, meeting)
        except NoAnswer:
            yield name, 0, None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args(arguments)
    seen: list[tuple[float, str]] = []
    print(HEADINGS)
    with tempfile.TemporaryDirectory() as directory:
        broker = HandDrivenBroker(Path(directory), divided=True)
        settle_memory()
        broker.create_topic(TOPIC)
        for name, size, found in measure_all(broker, options.only):
            print(line(name, size, found), flush=True)
            seen.append((found.longest_turn if found is not None else PATIENCE_SECONDS, name))
        broker.close()
    over = sum(seconds > GOAL_SECONDS for seconds, _ in seen)
    longest, where = max(seen, default=(0.0, "nothing"))
    print(
        f"{len(seen)} cases, {over} over the goal of {GOAL_SECONDS * 1000:.0f} ms;"
        f" the longest turn took {longest * 1000:.1f} ms: {where}"
    )
    return 1 if over else 0


HEADINGS = (
    f"{'CASE':58} {'SENT MB':>7} {'LONGEST TURN MS':>16} {'GARBAGE MS':>11} {'TURNS':>6} {'POLITE ANSWERS':>15}"
)


def line(name: str, size: int, found: Stall | None) -> str:
    if found is None:
        return f"{name:58} {size / 1e6:7.1f} {'no answer':>16}"
    mark = "  over the goal" if found.longest_turn > GOAL_SECONDS else ""
    return (
        f"{name:58} {size / 1e6:7.1f} {found.longest_turn * 1000:16.1f} {found.longest_collection * 1000:11.1f}"
        f" {found.turns:6,} {found.polite_answers:15,}{mark}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
