"""An exchange without a socket: byte by byte, its limits, its turns, its end."""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.metrics.requests import RequestMeter
from headrace.server.exchange import (
    ANSWER_BYTES,
    GROWN_UP_TO,
    OWN_BUFFER_FROM,
    WAITING_BYTES,
    Exchange,
)
from headrace.server.framing import FramedPending, framed
from headrace.server.line_limit import LineLimit
from headrace.server.request_memory import AFTER_BURST_SECONDS, STALLED_SECONDS, RequestMemory
from headrace.server.turns import Turns
from headrace.services.reply import Pending, Piece

KB = 1024


class Timer:
    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback

    def cancel(self) -> None:
        self.callback = lambda: None


class HandClock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.time = 100.0
        self.soon: deque[Callable[[], object]] = deque()
        self.timers: list[Timer] = []

    def monotonic(self) -> float:
        return self.time

    boottime = monotonic

    def wall_ms(self) -> int:
        return int(self.time * 1000)

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        timer = Timer(self.time + delay, callback)
        self.timers.append(timer)
        return timer

    async def sleep(self, delay: float) -> None:
        raise AssertionError("nothing here sleeps")

    def turn(self) -> None:
        """What one turn of the loop does."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        due = [timer for timer in self.timers if timer.due <= self.time]
        self.timers = [timer for timer in self.timers if timer.due > self.time]
        for timer in due:
            timer.callback()


class Desk:
    """A dispatcher that echoes; the first byte of a frame says how, as in test_connection."""

    def __init__(self, limit: int = 1024 * KB) -> None:
        self.clock = HandClock()
        self.broker = SimpleNamespace(env=SimpleNamespace(clock=self.clock))
        self.max_request_bytes = 8 * KB * KB
        self.unproven_bytes: dict[str, int] = {}
        self.monotonic = self.clock.monotonic
        self.now = 0.0
        self.slice_seconds = 0.005
        self.turns = Turns(self.clock)
        self.lines = LineLimit(self.clock, logging.getLogger("desk"))
        self.memory = RequestMemory(limit, self.clock)
        self.meter = RequestMeter()
        self.seconds_per_request = 0.0
        self.seen: list[bytes] = []
        self.waiting: list[Pending] = []

    def dispatch(self, exchange: Exchange, frame: memoryview) -> bytes | list[Piece] | FramedPending | None:
        data = bytes(frame)
        self.seen.append(data)
        self.clock.time += self.seconds_per_request
        self.now = self.clock.time
        if data[:1] in (b"W", b"X"):
            pending = Pending()
            self.waiting.append(pending)
            return FramedPending(pending, 7, False, data[:1] == b"X", self.meter)
        if data[:1] == b"L":
            return framed([bytearray(400 * KB)], 7, False, self.meter)
        return framed(data, 7, False, self.meter)[0]  # type: ignore[return-value]

    def exchange(self) -> tuple[Exchange, Wire]:
        wire = Wire()
        exchange = Exchange(cast(Any, self), wire, "PLAINTEXT")
        wire.exchange = exchange
        return exchange, wire


class Wire:
    """A link that sends at once and notes what it was told."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.reading = True
        self.sent = bytearray()
        self.largest_send = 0
        self.end = ""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def answer(self) -> None:
        assert self.exchange is not None
        if self.exchange.writable:
            size = sum(len(cast(bytes, piece)) for piece in self.exchange.ready)
            self.largest_send = max(self.largest_send, size)
            for piece in self.exchange.ready:
                self.sent += cast(bytes, piece)
            self.exchange.ready = []

    def close(self) -> None:
        self.answer()
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def answers(self) -> list[bytes]:
        found = []
        position = 0
        while position < len(self.sent):
            size, correlation = struct.unpack_from(">ii", self.sent, position)
            assert correlation == 7
            found.append(bytes(self.sent[position + 8 : position + 4 + size]))
            position += 4 + size
        return found


def frames(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def deliver(exchange: Exchange, wire: Wire, data: bytes, step: int = 1 << 30) -> None:
    """As a link would: into the exchange's own buffer where it has one."""
    position = 0
    while position < len(data) and wire.reading and not wire.end:
        piece = data[position : position + step]
        if exchange.target is not None:
            piece = piece[: len(exchange.target)]
            exchange.target[: len(piece)] = piece
            exchange.filled(len(piece))
        else:
            piece = piece[: 256 * KB]
            exchange.receive(memoryview(bytearray(piece)))
        position += len(piece)
        wire.answer()


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 7, 1000, 1 << 30])
def test_the_same_whatever_the_pieces(step: int) -> None:
    bodies = [b"e", b"echo" * 100, b"e" * 5, b"e" * 2000]
    exchange, wire = (desk := Desk()).exchange()
    deliver(exchange, wire, frames(*bodies), step)
    assert wire.answers() == bodies
    assert desk.memory.grown == desk.memory.reserved == 0


@pytest.mark.parametrize("step", [10_000, 100_000, 1 << 30])
@pytest.mark.parametrize("size", [OWN_BUFFER_FROM, GROWN_UP_TO - 4, GROWN_UP_TO - 3, 700 * KB, 5 * KB * KB])
def test_long_frames_whatever_the_pieces(size: int, step: int) -> None:
    body = b"e" + bytes(range(256)) * (size // 256)
    exchange, wire = (desk := Desk()).exchange()
    deliver(exchange, wire, frames(b"e1", body, b"e2"), step)
    assert wire.answers() == [b"e1", body, b"e2"]
    assert desk.memory.grown == desk.memory.reserved == 0


@pytest.mark.parametrize("step", [10_000, 70_000, 100_000, 130_000, 200_000, 1 << 30])
def test_a_long_frame_begins_where_another_ends(step: int) -> None:
    """Batches of 256 KB from a Java producer: the memory of the second was let go of, and the broker ended."""
    bodies = [b"e" + bytes(size) for size in (110 * KB, 700 * KB, 200 * KB, 300 * KB, 150 * KB, 260 * KB)]
    exchange, wire = (desk := Desk()).exchange()
    data = frames(*bodies)
    for start in range(0, len(data), step):
        deliver(exchange, wire, data[start : start + step])
        if exchange.target is not None:
            assert desk.memory.reserved == len(exchange._own or b"")
    assert wire.answers() == bodies
    assert desk.memory.grown == desk.memory.reserved == 0


def test_a_long_frame_begins_in_what_was_put_aside() -> None:
    exchange, wire = (desk := Desk()).exchange()
    body = b"e" + bytes(700 * KB)
    data = frames(b"X", body)
    deliver(exchange, wire, data[: 200 * KB])
    desk.waiting[0].complete(b"done")
    assert exchange.target is not None
    assert desk.memory.reserved == len(body) + 4
    deliver(exchange, wire, data[200 * KB :], 100_000)
    assert wire.answers()[1] == body
    assert desk.memory.grown == desk.memory.reserved == 0


def test_a_frame_that_has_not_come_holds_what_has_come_of_it() -> None:
    """Once a frame of 256 KB took that much after five bytes of it."""
    desk = Desk()
    for _ in range(300):
        exchange, wire = desk.exchange()
        deliver(exchange, wire, struct.pack(">i", 255 * KB) + b"x")
        assert exchange.target is None
    assert desk.memory.grown == 300 * 5


def test_a_long_frame_gets_its_buffer_when_a_good_part_is_there() -> None:
    desk = Desk()
    exchange, wire = desk.exchange()
    deliver(exchange, wire, struct.pack(">i", 900 * KB) + bytes(100))
    assert (desk.memory.grown, desk.memory.reserved) == (104, 0)
    deliver(exchange, wire, bytes(OWN_BUFFER_FROM))
    assert (desk.memory.grown, desk.memory.reserved) == (0, 900 * KB + 4)
    exchange.lost()
    assert desk.memory.reserved == 0


def test_beginnings_that_grow_beyond_the_limit_cost_the_silent_ones_their_connection() -> None:
    desk = Desk(limit=400 * KB)
    pairs = [desk.exchange() for _ in range(10)]
    for exchange, wire in pairs:
        deliver(exchange, wire, struct.pack(">i", 200 * KB) + bytes(20 * KB))
    ends = [wire.end for _, wire in pairs]
    assert ends[:5] == ["aborted"] * 5
    assert ends[-4:] == [""] * 4
    assert desk.memory.grown <= 100 * KB


def test_who_stops_in_the_middle_gives_way_to_who_waits() -> None:
    desk = Desk(limit=1000 * KB)
    silent, silent_wire = desk.exchange()
    deliver(silent, silent_wire, struct.pack(">i", 900 * KB) + bytes(100 * KB))
    other, other_wire = desk.exchange()
    body = b"e" + bytes(500 * KB)
    deliver(other, other_wire, frames(body)[: 300 * KB])
    assert not other_wire.reading
    desk.clock.pass_time(STALLED_SECONDS)
    desk.clock.turn()
    assert silent_wire.end == "aborted"
    assert other_wire.reading
    deliver(other, other_wire, frames(body)[256 * KB :])
    assert other_wire.answers() == [body]


def test_a_turn_has_its_time_and_others_are_served_between() -> None:
    """2.6 KB of pipelined requests once stopped the broker for seconds."""
    desk = Desk()
    desk.seconds_per_request = 0.003
    hostile, hostile_wire = desk.exchange()
    polite, polite_wire = desk.exchange()
    deliver(hostile, hostile_wire, frames(*[b"e-hostile"] * 50))
    handled = [len(desk.seen)]
    served = 0
    while len(hostile_wire.answers()) < 50:
        deliver(polite, polite_wire, frames(b"e-polite"))
        served += 1
        assert len(polite_wire.answers()) == served, "it never waits"
        desk.clock.turn()
        handled.append(len(hostile_wire.answers()))
    assert max(later - earlier for earlier, later in pairwise(handled)) <= 2
    assert served >= 20
    assert hostile_wire.reading


def test_however_many_use_up_their_turn_one_goes_on_at_a_time() -> None:
    desk = Desk()
    desk.seconds_per_request = 0.01
    pairs = [desk.exchange() for _ in range(20)]
    for exchange, wire in pairs:
        deliver(exchange, wire, frames(*[b"e"] * 3))
    for _ in range(5):
        before = len(desk.seen)
        desk.clock.turn()
        assert len(desk.seen) == before + 1
    while any(len(wire.answers()) < 3 for _, wire in pairs):
        desk.clock.turn()


def test_a_turn_makes_so_many_bytes_of_answers() -> None:
    """2,000 pipelined requests of 50 bytes with answers of a megabyte once took gigabytes."""
    desk = Desk()
    exchange, wire = desk.exchange()
    deliver(exchange, wire, frames(*[b"L"] * 50))
    assert len(desk.seen) == 3
    exchange.pause_writing()
    for _ in range(10):
        desk.clock.turn()
    assert len(desk.seen) == 3, "while the peer does not read, nothing more is made"
    exchange.resume_writing()
    while len(desk.seen) < 50:
        desk.clock.turn()
    assert len(wire.answers()) == 50
    assert wire.largest_send <= ANSWER_BYTES + 401 * KB


def test_what_waits_in_order_is_bounded_in_bytes() -> None:
    desk = Desk()
    exchange, wire = desk.exchange()
    deliver(exchange, wire, frames(b"W", *[b"L"] * 100))
    for _ in range(100):
        desk.clock.turn()
    assert len(desk.seen) == 1 + WAITING_BYTES // (400 * KB) + 1
    desk.waiting[0].complete(b"now")
    while len(desk.seen) < 101:
        desk.clock.turn()
    assert [len(answer) for answer in wire.answers()] == [3, *[400 * KB] * 100]


def test_an_answer_that_fails_ends_its_own_exchange(caplog: pytest.LogCaptureFixture) -> None:
    """Once the connection hung for ever."""
    desk = Desk()
    exchange, wire = desk.exchange()
    deliver(exchange, wire, frames(b"e", b"W", b"X"))
    with caplog.at_level(logging.ERROR, "desk"):
        desk.waiting[0].fail(ZeroDivisionError("as asked"))
    assert wire.end == "closed"
    assert wire.answers() == [b"e"]
    assert "ZeroDivisionError" in caplog.text
    exchange.lost()
    assert desk.waiting[1].done


def test_what_is_put_aside_is_counted_and_not_copied_again() -> None:
    desk = Desk()
    exchange, wire = desk.exchange()
    deliver(exchange, wire, frames(*[b"X"] * 3, b"e"))
    assert desk.memory.grown == len(frames(b"X", b"X", b"e"))
    stash = cast(memoryview, exchange._stash).obj
    desk.waiting[0].complete(b"1")
    assert cast(memoryview, exchange._stash).obj is stash
    desk.waiting[1].complete(b"2")
    desk.waiting[2].complete(b"3")
    assert wire.answers() == [b"1", b"2", b"3", b"e"]
    assert desk.memory.grown == 0
    assert wire.reading


def test_a_client_can_be_held_back() -> None:
    """What a quota does."""
    desk = Desk()
    exchange, wire = desk.exchange()
    exchange.hold_back(2.0)
    assert not wire.reading
    exchange.resume()
    assert not wire.reading
    desk.clock.pass_time(2.0)
    assert wire.reading


def test_who_is_held_back_longer_waits_longer() -> None:
    desk = Desk()
    exchange, wire = desk.exchange()
    exchange.hold_back(2.0)
    exchange.hold_back(5.0)
    exchange.hold_back(1.0)
    desk.clock.pass_time(2.5)
    assert not wire.reading
    assert not exchange.is_idle
    desk.clock.pass_time(2.5)
    assert wire.reading
    exchange.hold_back(100.0)
    exchange.let_go()
    assert wire.reading


@pytest.mark.parametrize("first", [1, 3])
def test_what_came_with_a_request_that_is_held_back_waits_too(first: int) -> None:
    """Also if the request came in two pieces."""
    desk = Desk()
    exchange, wire = desk.exchange()
    answer = desk.dispatch

    def dispatch(client: Exchange, frame: memoryview) -> bytes | list[Piece] | FramedPending | None:
        client.hold_back(1.0)
        return answer(client, frame)

    cast(Any, desk).dispatch = dispatch
    data = frames(b"a", b"b", b"c")
    exchange.receive(memoryview(data[:first]))
    deliver(exchange, wire, data[first:])
    for number in range(1, 4):
        desk.clock.turn()
        assert wire.answers() == [b"a", b"b", b"c"][:number]
        assert not wire.reading
        desk.clock.pass_time(1.0)
    assert wire.reading
    assert desk.memory.grown == 0


def test_hostile_connections_share_their_lines(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    with caplog.at_level(logging.INFO, "desk"):
        for length in range(1000):
            exchange, wire = desk.exchange()
            deliver(exchange, wire, struct.pack(">i", -1 - length))
            assert wire.end == "closed"
        assert len(caplog.records) == 1
        desk.clock.pass_time(10.0)
        assert len(caplog.records) == 2
        assert "999 more in the last 10 s" in caplog.text
        desk.clock.pass_time(10.0)
        desk.clock.pass_time(10.0)
        assert len(caplog.records) == 2
        deliver(*desk.exchange(), struct.pack(">i", -1))
        assert len(caplog.records) == 3


def test_the_end_of_a_burst_is_noticed() -> None:
    clock = HandClock()
    bursts: list[float] = []
    memory = RequestMemory(-1, clock, lambda: bursts.append(clock.time))
    holders = [Desk().exchange()[0] for _ in range(200)]
    for _ in range(2):
        for holder in holders:
            memory.hold(holder, 100 * KB)
        for holder in holders:
            memory.forget(holder)
        clock.pass_time(AFTER_BURST_SECONDS)
    assert len(bursts) == 2
    memory.hold(holders[0], 100 * KB)
    memory.forget(holders[0])
    clock.pass_time(AFTER_BURST_SECONDS)
    assert len(bursts) == 2
