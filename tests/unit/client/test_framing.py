"""Frames come out the same however the bytes arrive."""

from __future__ import annotations

import struct

import pytest

from headrace.client.framing import NO_READ_AHEAD, RECEIVE_BUFFER_BYTES, FrameReader
from headrace.model.errors import ProtocolError

SIZES = [0, 1, 4, 1000, RECEIVE_BUFFER_BYTES - 5, RECEIVE_BUFFER_BYTES - 4, RECEIVE_BUFFER_BYTES, 300_000, 7]


def stream() -> tuple[list[bytes], bytes]:
    frames = [bytes([number + 1]) * size for number, size in enumerate(SIZES)]
    return frames, b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    found: list[bytes] = []
    while data:
        room = reader.writable()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        found += [bytes(frame) for frame in reader.received(count)]
        data = data[count:]
    return found


@pytest.mark.parametrize("step", [1, 3, 4, 5, 777, 65536, 10_000_000])
def test_any_split_gives_the_same_frames(step: int) -> None:
    frames, data = stream()
    if step == 1:
        frames, data = frames[:4], data[: 4 * 4 + sum(SIZES[:4])]
    reader = FrameReader()
    found = [frame for start in range(0, len(data), step) for frame in feed(reader, data[start : start + step])]
    assert found == frames


def test_frames_stay_valid_after_more_has_come() -> None:
    reader = FrameReader()
    data = struct.pack(">i", 3) + b"abc"
    room = reader.writable()
    room[: len(data)] = data
    (first,) = reader.received(len(data))
    feed(reader, struct.pack(">i", 3) + b"xyz")
    assert bytes(first) == b"abc"


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_a_senseless_size_is_an_error(size: int) -> None:
    with pytest.raises(ProtocolError):
        feed(FrameReader(), struct.pack(">i", size))


def test_the_first_bytes_are_kept() -> None:
    reader = FrameReader()
    with pytest.raises(ProtocolError):
        feed(reader, b"\xffTTP/1.1 400 Bad Request")
    assert reader.head == b"\xffTTP/1.1 400 Bad"[:16]


def test_without_read_ahead_nothing_is_taken_beyond_a_frame() -> None:
    reader = FrameReader(NO_READ_AHEAD)
    frames, data = stream()
    for frame in frames:
        assert len(reader.writable()) == 4
        found: list[memoryview] = []
        taken = 0
        while not found:
            room = reader.writable()
            room[:] = data[taken : taken + len(room)]
            taken += len(room)
            found = reader.received(len(room))
        assert [bytes(one) for one in found] == [frame]
        assert taken == 4 + len(frame)
        data = data[taken:]


def test_large_frames_lie_in_the_memory_that_was_given() -> None:
    given: list[memoryview] = []

    def take(size: int) -> memoryview:
        given.append(memoryview(bytearray(size)))
        return given[-1]

    reader = FrameReader(64, take)
    small, large = b"s" * 10, b"l" * 1000
    found = feed(reader, struct.pack(">i", 10) + small + struct.pack(">i", 1000) + large)
    assert found == [small, large]
    assert [bytes(one) for one in given] == [large]
