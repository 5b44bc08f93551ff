"""The selector that lets connections read at once: a selector like any other, and who is called when."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from headrace.server.direct_loop import PIECES_AT_ONCE, DirectLoop, DirectSelector, new_loop

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def selector() -> Iterator[DirectSelector]:
    found = DirectSelector()
    yield found
    found.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_it_tells_what_is_ready(selector: DirectSelector, pair: Pair) -> None:
    ours, theirs = pair
    assert selector.select(0) == []
    key = selector.register(ours.fileno(), EVENT_READ, "data")
    assert selector.get_key(ours.fileno()) is key
    assert selector.select(0) == []
    theirs.send(b"x")
    assert selector.select(None) == [(key, EVENT_READ)]
    both = selector.modify(ours.fileno(), EVENT_READ | EVENT_WRITE, "more")
    assert selector.select(0) == [(both, EVENT_READ | EVENT_WRITE)]
    assert both.data == "more"
    writing = selector.modify(ours.fileno(), EVENT_WRITE)
    assert selector.select(0) == [(writing, EVENT_WRITE)]
    assert selector.unregister(ours.fileno()) == writing
    assert selector.select(0) == []
    with pytest.raises(KeyError):
        selector.get_key(ours.fileno())


def test_it_refuses_what_it_has_and_what_it_has_not(selector: DirectSelector, pair: Pair) -> None:
    selector.register(pair[0], EVENT_READ)
    with pytest.raises(KeyError):
        selector.register(pair[0].fileno(), EVENT_READ)
    with pytest.raises(KeyError):
        selector.unregister(pair[1])
    with pytest.raises(KeyError):
        selector.modify(pair[1], EVENT_READ)


def test_one_that_was_closed_before_can_still_be_unregistered(selector: DirectSelector) -> None:
    ours, theirs = socket.socketpair()
    descriptor = ours.fileno()
    selector.register(descriptor, EVENT_READ)
    ours.close()
    theirs.close()
    assert selector.unregister(descriptor).fd == descriptor


def test_a_direct_reader_is_called_in_place_of_the_loop(selector: DirectSelector, pair: Pair) -> None:
    ours, theirs = pair
    key = selector.register(ours.fileno(), EVENT_READ)
    read: list[bytes] = []

    def reader() -> bool:
        read.append(ours.recv(10))
        return True

    selector.read_directly(ours.fileno(), reader)
    theirs.send(b"one")
    assert (selector.select(0), read) == ([], [b"one"])
    selector.forget(ours.fileno())
    theirs.send(b"two")
    assert (selector.select(0), read) == ([(key, EVENT_READ)], [b"one"])


def test_what_a_direct_reader_declines_reaches_the_loop(selector: DirectSelector, pair: Pair) -> None:
    ours, theirs = pair
    key = selector.register(ours.fileno(), EVENT_READ)
    selector.read_directly(ours.fileno(), lambda: False)
    theirs.send(b"x")
    assert selector.select(0) == [(key, EVENT_READ)]


def test_the_end_of_the_stream_is_the_loops(selector: DirectSelector, pair: Pair) -> None:
    ours, theirs = pair
    key = selector.register(ours.fileno(), EVENT_READ)

    def nobody_may_call() -> bool:
        raise AssertionError("called at the end of the stream")

    selector.read_directly(ours.fileno(), nobody_may_call)
    theirs.close()
    assert selector.select(0) == [(key, EVENT_READ)]


def test_who_is_ended_by_another_in_the_same_turn_is_not_called(selector: DirectSelector) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    called: list[int] = []

    def reader(number: int) -> bool:
        called.append(number)
        selector.unregister(pairs[1 - number][0])
        return True

    for number, (ours, theirs) in enumerate(pairs):
        selector.register(ours, EVENT_READ)
        selector.read_directly(ours.fileno(), functools.partial(reader, number))
        theirs.send(b"x")
    assert selector.select(0) == []
    assert len(called) == 1
    for pair in pairs:
        for one in pair:
            one.close()


def answer_order(selector: DirectSelector, pieces: int) -> list[str]:
    """Three connections are readable in one turn, and each answers in so many pieces."""
    order: list[str] = []
    with contextlib.ExitStack() as sockets:

        def reader(name: str, ours: socket.socket) -> bool:
            ours.recv(10)
            order.append(f"read {name}")
            selector.answer(lambda: order.append(f"answer {name}"), pieces)
            return True

        for name in "abc":
            ours, theirs = (sockets.enter_context(one) for one in socket.socketpair())
            selector.register(ours, EVENT_READ)
            selector.read_directly(ours.fileno(), functools.partial(reader, name, ours))
            theirs.send(b"x")
        assert selector.select(0) == []
        for descriptor in list(selector.get_map()):
            selector.unregister(descriptor)
            selector.forget(descriptor)
    return order


def test_connections_are_answered_after_all_of_the_turn_were_read_from(selector: DirectSelector) -> None:
    assert answer_order(selector, 1) == [*(f"read {n}" for n in "abc"), *(f"answer {n}" for n in "abc")]


def test_not_too_many_answers_are_collected(selector: DirectSelector) -> None:
    assert answer_order(selector, PIECES_AT_ONCE) == [f"{what} {n}" for n in "abc" for what in ("read", "answer")]
    assert answer_order(selector, PIECES_AT_ONCE // 2) == [
        *("read a", "read b", "answer a", "answer b"),
        *("read c", "answer c"),
    ]


def test_an_answer_outside_of_the_turn_leaves_at_once(selector: DirectSelector) -> None:
    sent: list[str] = []
    selector.answer(lambda: sent.append("before any turn"), 1)
    assert sent == ["before any turn"]
    answer_order(selector, 1)
    selector.answer(lambda: sent.append("after one"), 1)
    assert sent[1:] == ["after one"]


def test_timers_callbacks_and_threads_work_on_the_loop() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, DirectLoop)
        order: list[str] = []
        started = loop.time()
        loop.call_later(0.01, order.append, "timer")
        loop.call_soon(order.append, "soon")
        order.append(await asyncio.to_thread(lambda: "thread"))
        await asyncio.sleep(0.02)
        assert loop.time() - started >= 0.02
        return order

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert sorted(runner.run(main())) == ["soon", "thread", "timer"]
