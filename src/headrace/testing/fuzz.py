"""Frames that no honest client sends: random ones, and valid requests of every API and version made wrong.

    python -m headrace.testing.fuzz --frames 1000000            decoders only, in this process
    python -m headrace.testing.fuzz --frames 100000 --broker    also sent to a broker, with a good client beside it

Rules: a decoder returns a request or raises ProtocolError (KafkaError for records), and nothing else. A broker
lives, its memory comes back, and the good client sees no error. Seeded: `--seed` repeats a run.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.model.errors import KafkaError, ProtocolError
from headrace.records.batch import HEADER_SIZE, checked_header
from headrace.records.builder import NewRecord, build_batch
from headrace.records.compression import Codec
from headrace.records.reader import read_records
from headrace.wire.fetch import parse_fetch
from headrace.wire.header import parse_request_header
from headrace.wire.produce import parse_produce
from headrace.wire.schema import Array, Request, Response, Struct

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 32767, -32768, 2**31 - 1, -(2**31), 1_000_000)
NAMES = ("t", "", "..", "a/b", "x" * 249, "x" * 250, "__consumer_offsets", "\u00fc", "nul\0")
PRODUCE, FETCH = 0, 1
LIMIT_BYTES = 16 * 1024 * 1024
MAX_EDITS = 4
RECORD_COUNT = 57


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid request: where the header ends is where its body begins."""

    key: int
    version: int
    frame: bytes


def load_requests() -> None:
    load_all()
    from importlib import import_module
    from pkgutil import iter_modules

    from headrace.wire import messages

    for module in iter_modules(messages.__path__):
        import_module(f"{messages.__name__}.{module.name}")


Kind = TypeVar("Kind", Request, Response)


def message_types(base: type[Kind]) -> list[type[Kind]]:
    """Every request, or response, there is a schema for, served or not."""
    load_requests()
    found: list[type[Kind]] = []
    todo = list(base.__subclasses__())
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        found.append(kind)
    return sorted(found, key=lambda kind: (kind.api_key, kind.__name__))


def make_request(rng: random.Random, kind: type[Struct], version: int, depth: int = 0) -> Any:
    """A request with something in every field that the version has."""
    fields = {name: spec for name, spec in kind._fields.items() if spec.in_version(version)}
    return kind(**{name: _value(rng, spec.type, version, depth) for name, spec in fields.items()})


def _value(rng: random.Random, kind: Any, version: int, depth: int) -> Any:
    if isinstance(kind, Array):
        count = rng.randrange(3 if depth < 3 else 1)
        return [_value(rng, kind.element, version, depth + 1) for _ in range(count)]
    if isinstance(kind, type):
        return make_request(rng, kind, version, depth + 1)
    if kind.name in ("string", "compact_string"):
        return rng.choice(NAMES)
    if kind.name == "records":
        return bytes(build_batch([NewRecord(b"v", b"k")], codec=rng.choice(list(Codec))))
    if kind.name == "bytes":
        return rng.randbytes(rng.randrange(20))
    if kind.name == "uuid":
        return rng.randbytes(16)
    if kind.name in ("bool", "boolean"):
        return rng.random() < 0.5
    if kind.name.startswith("float"):
        return rng.random()
    return _number(rng, kind)


def _number(rng: random.Random, kind: Any) -> int:
    """One that the type can hold."""
    while True:
        value = rng.choice(NUMBERS)
        out = bytearray()
        try:
            kind.write(out, value)
        except (struct.error, OverflowError):
            continue
        return value


def seeds(rng: random.Random) -> list[Seed]:
    """Valid requests, several of every API and version."""
    found: list[Seed] = []
    for kind in message_types(Request):
        for version in kind.versions:
            for correlation in range(3):
                head = struct.pack(">hhih", kind.api_key, version, correlation, 4) + b"fuzz"
                head += b"\0" if version >= kind.flexible_since else b""
                body = make_request(rng, kind, version).encode(version)
                found.append(Seed(kind.api_key, version, head + body))
    return found


def mutate(rng: random.Random, frame: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or put in, most often a number that counts something."""
    data = bytearray(frame)
    for _ in range(rng.randrange(1, MAX_EDITS + 1)):
        position = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0:
                del data[position:]
            case 1:
                data[position:position] = rng.randbytes(rng.randrange(9))
            case 2:
                del data[position : position + rng.randrange(1, 9)]
            case 3:
                data[position : position + 4] = struct.pack(">i", rng.choice(NUMBERS))
            case 4 if position < len(data):
                data[position] = rng.choice(INTERESTING)
            case 5 if position < len(data):
                data[position] ^= 1 << rng.randrange(8)
            case _:
                size = rng.randrange(1, 33)
                data[position:position] = data[position : position + size]
    return bytes(data)


def frames(rng: random.Random, count: int) -> Iterator[bytes]:
    """One in ten is random from its first byte, or from the end of a valid header."""
    valid = seeds(rng)
    for number in range(count):
        seed = valid[number % len(valid)] if number < 2 * len(valid) else rng.choice(valid)
        if number % 10:
            yield mutate(rng, seed.frame)
        elif rng.random() < 0.5:
            yield rng.randbytes(rng.randrange(200))
        else:
            yield seed.frame[:10] + rng.randbytes(rng.randrange(300))


def decode(frame: bytes) -> bool:
    """As the broker would; whether it made sense. Anything but our own errors is a fault of ours."""
    view = memoryview(frame)
    try:
        header = parse_request_header(view)
        key, version = header.api_key, header.api_version
        if key == PRODUCE and version in APIS[PRODUCE].versions:
            _decode_batches(parse_produce(view, header.body, version)[3])
        elif key == FETCH and version in APIS[FETCH].versions:
            parse_fetch(view, header.body, version)
        elif (kind := _schemas().get((key, version))) is not None:
            kind.decode(view, version, header.body)
        else:
            return False
    except (ProtocolError, KafkaError):
        return False
    return True


def _decode_batches(topics: list[Any]) -> None:
    for _, _, partitions in topics:
        for _, batch in partitions:
            if batch is not None:
                decode_batch(bytes(batch))


def decode_batch(batch: bytes, check: bool = True) -> None:
    if check:
        checked_header(memoryview(batch))
    for _ in read_records(batch, LIMIT_BYTES):
        pass


_by_version: dict[tuple[int, int], type[Request]] = {}


def _schemas() -> dict[tuple[int, int], type[Request]]:
    if not _by_version:
        for kind in message_types(Request):
            _by_version.update({(kind.api_key, version): kind for version in kind.versions})
    return _by_version


def batches(rng: random.Random, count: int) -> Iterator[bytes]:
    """Record batches of every codec with their records spoilt: the CRC is not looked at for these."""
    for _ in range(count):
        records = [
            NewRecord(rng.randbytes(rng.randrange(50)), rng.randbytes(4), rng.choice((0, -1, 2**62)))
            for _ in range(rng.randrange(1, 5))
        ]
        batch = bytearray(build_batch(records, codec=rng.choice(list(Codec))))
        if rng.random() < 0.2:
            batch[RECORD_COUNT : RECORD_COUNT + 4] = struct.pack(">i", rng.choice(NUMBERS))
        yield bytes(batch[:HEADER_SIZE]) + mutate(rng, bytes(batch[HEADER_SIZE:]))


def fuzz_responses(rng: random.Random, count: int) -> None:
    """What our own clients do with the answers of a broken broker."""
    kinds = [(kind, version) for kind in message_types(Response) for version in kind.versions]
    for _ in range(count):
        kind, version = rng.choice(kinds)
        body = mutate(rng, make_request(rng, kind, version).encode(version))
        try:
            kind.decode(body, version)
        except ProtocolError:
            continue
        except BaseException as fault:
            fault.add_note(f"{kind.__name__} v{version}: {body.hex()}")
            raise


def fuzz_decoders(seed: int, count: int, progress: Callable[[int], None] = lambda done: None) -> int:
    """How many of `count` made sense. Raises at the first frame that something else came of than our errors."""
    rng = random.Random(seed)
    understood = 0
    for number, frame in enumerate(frames(rng, count)):
        try:
            understood += decode(frame)
        except BaseException as fault:
            fault.add_note(f"seed {seed}, frame {number}: {frame.hex()}")
            raise
        if number % 10_000 == 0:
            progress(number)
    fuzz_responses(rng, count // 10)
    for batch in batches(rng, count // 10):
        try:
            decode_batch(batch, check=False)
        except (KafkaError, ProtocolError):
            continue
        except BaseException as fault:
            fault.add_note(f"seed {seed}, batch {batch.hex()}")
            raise
    return understood


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.testing.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--broker", action="store_true", help="send the frames to a broker")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    if options.broker:
        from headrace.testing.fuzz_broker import fuzz_broker

        report = fuzz_broker(options.seed, options.frames)
    else:
        report = f"{fuzz_decoders(options.seed, options.frames)} made sense"
    seconds = time.monotonic() - began
    sys.stdout.write(f"seed {options.seed}: {options.frames} frames in {seconds:.0f} s; {report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
