"""How long one client can hold up all others: `python -m bench.stalls`.

A broker whose loop is turned by hand gets the largest request of each API that it takes. While it works on it, the
CPU time of every turn is measured: nobody else is served during a turn, so the longest one is what others wait at
most on a free machine. A polite client asks between the turns and must be answered: its answers are counted.
"""

from __future__ import annotations

import argparse
import gc
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.hand_driven import Client, HandDrivenBroker
from bench.requests import batch, random_values
from headrace.handlers import load_all
from headrace.handlers.registry import APIS, Api
from headrace.model.limits import MAX_FETCH_REQUEST_BYTES, MAX_PRODUCE_PARTITIONS
from headrace.node import settle_memory
from headrace.wire.primitives import Primitive
from headrace.wire.schema import Array, Field, Request, Struct

PARTITIONS = 100_000
SAMPLE = 100
GOAL_SECONDS = 0.05
TOPIC = "stalls"
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
PATIENCE_SECONDS = 120.0
FETCH_PARTITION_BYTES = 28
"""In version 11."""


@dataclass(frozen=True, slots=True)
class Stall:
    longest_turn: float
    longest_collection: float
    """Of garbage, within a turn."""
    turns: int
    polite_answers: int


def frame(key: int, version: int, body: bytes, flexible: bool) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


# -- the largest request of an API, from its schema


def largest(api: Api, wide: bool, most: int = PARTITIONS) -> bytes | None:
    """The largest that is taken, of `most` elements at most; None if it has no arrays.

    They are in one array inside (`wide` false), or at the top.
    """
    assert api.request is not None
    sample = _request(api, wide, SAMPLE)
    if sample is None:
        return None
    per_element = -(-_elements(sample) // SAMPLE)
    count = min(most, api.request.max_elements // per_element - 1)
    request = _request(api, wide, count)
    assert request is not None
    version = api.versions[-1]
    return frame(api.key, version, request.encode(version), version >= api.flexible_since)


def _elements(struct: Struct) -> int:
    """Of all arrays, nested ones included: what a request may hold is limited by it."""
    total = 0
    for spec_name, spec in struct._fields.items():
        values = getattr(struct, spec_name)
        if isinstance(spec.type, Array) and values:
            total += len(values) + sum(_elements(value) for value in values if isinstance(value, Struct))
    return total


def _request(api: Api, wide: bool, count: int) -> Request | None:
    assert api.request is not None
    version = api.versions[-1]
    arrays = [name for name, spec in api.request._fields.items() if _is_array(spec, version)]
    if not arrays:
        return None
    values: dict[str, Any] = {name: _filled(api.request._fields[name], version, wide, count) for name in arrays}
    for name, spec in api.request._fields.items():
        if isinstance(spec.type, Primitive) and spec.type.name == "string" and spec.in_version(version):
            values[name] = "g"
    return api.request(**values)


def _is_array(spec: Field, version: int) -> bool:
    return isinstance(spec.type, Array) and spec.in_version(version)


def _filled(spec: Field, version: int, wide: bool, most: int) -> list[Any]:
    element: Any = spec.type.element
    deep = not isinstance(element, Primitive) and any(
        _is_array(inner, version) for inner in element._fields.values()
    )
    count = most if wide or not deep else 1
    return [_element(element, version, index, 1 if wide else most) for index in range(count)]


def _element(kind: Any, version: int, index: int, inner: int) -> Any:
    if isinstance(kind, Primitive):
        return _value(kind, index)
    values: dict[str, Any] = {}
    for name, spec in kind._fields.items():
        if not spec.in_version(version):
            continue
        if isinstance(spec.type, Array):
            values[name] = [_element(spec.type.element, version, number, 1) for number in range(inner)]
        elif isinstance(spec.type, Primitive) and spec.tag is None:
            values[name] = _value(spec.type, index)
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


def full_produce(count: int, topic: str = "t", data: bytes | None = None) -> bytes:
    """Batches for one topic: none at all, or the same one for partition 0 again and again."""
    size = struct.pack(">i", -1 if data is None else len(data)) + (data or b"")
    parts = b"".join(struct.pack(">i", index if data is None else 0) + size for index in range(count))
    head = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", len(topic)) + topic.encode()
    return frame(PRODUCE, 8, head + struct.pack(">i", count) + parts, flexible=False)


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
            assert time.monotonic() < deadline, "no answer"
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
            yield f"{api.name}, {'many at the top' if wide else 'many in one'}", partial(largest, api, wide)
    most = MAX_FETCH_REQUEST_BYTES // FETCH_PARTITION_BYTES - 2
    yield "Fetch, as many partitions as are taken", partial(full_fetch, most)
    most = MAX_PRODUCE_PARTITIONS
    yield "Produce, as many partitions as are taken", partial(full_produce, most)
    tiny = batch(random_values(1, 1))
    yield "Produce, as many batches as are taken", partial(full_produce, most, TOPIC, tiny)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args(arguments)
    over = 0
    with tempfile.TemporaryDirectory() as directory:
        broker = HandDrivenBroker(Path(directory), divided=True)
        settle_memory()
        broker.create_topic(TOPIC)
        meeting = Meeting(broker)
        for name, make in cases():
            data = make() if options.only in name else None
            if data is None:
                continue
            found = meeting.measure(broker.connect(), data, 1)
            over += found.longest_turn > GOAL_SECONDS
            show(name, len(data), found)
        broker.close()
    return 1 if over else 0


def show(name: str, size: int, found: Stall) -> None:
    mark = "  <-- over the goal" if found.longest_turn > GOAL_SECONDS else ""
    print(
        f"{name:52} {size / 1e6:6.1f} MB  longest turn {found.longest_turn * 1000:7.1f} ms"
        f" (garbage {found.longest_collection * 1000:5.1f})  turns {found.turns:5}"
        f"  polite answers {found.polite_answers:5}{mark}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
