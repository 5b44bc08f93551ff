"""A gathered frame is what a copied one would be; its large fields are sent from where they are."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import gathering
from headrace.client.gathering import APART_FROM_BYTES, MAX_VECTOR, GatheredFrame, send_pieces

LARGE = b"large" * APART_FROM_BYTES


@given(st.lists(st.binary(max_size=12)))
def test_the_same_bytes_as_a_copied_frame(fields: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "APART_FROM_BYTES", 6)
        gathered, copied = GatheredFrame(4), bytearray(4)
        for field in fields:
            for frame in (gathered, copied):
                frame.append(len(field))
                frame += memoryview(field)
        assert len(gathered) == len(copied)
        assert b"".join(gathered.pieces()) == copied


def test_a_large_field_is_not_copied() -> None:
    field = bytearray(LARGE)
    frame = GatheredFrame()
    frame += b"before"
    frame += memoryview(field)
    frame += b"after"
    field[0] = ord("L")
    assert [bytes(piece) for piece in frame.pieces()] == [b"before", bytes(field), b"after"]


@pytest.mark.parametrize("count", [0, 1, 3 * MAX_VECTOR])
def test_all_pieces_arrive_in_order(count: int) -> None:
    """Many more than the kernel takes at once, and more bytes than it buffers."""
    pieces = [b"%07d" % number * (number % 300) for number in range(count)]
    received = bytearray()
    near, far = socket.socketpair()
    with near, far:

        def read() -> None:
            while data := far.recv(1 << 16):
                received.extend(data)

        reader = threading.Thread(target=read)
        reader.start()
        near.settimeout(60)
        send_pieces(near, [memoryview(piece) for piece in pieces if piece])
        near.shutdown(socket.SHUT_WR)
        reader.join()
    assert bytes(received) == b"".join(pieces)


def test_a_peer_that_does_not_read() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(0.05)
        with pytest.raises(TimeoutError):
            send_pieces(near, [memoryview(LARGE)] * 1000)
