"""Ports for servers that a test starts: nobody else is given one, and no two tests get the same."""

from __future__ import annotations

import socket

from headrace.testing.process import HOST, PORTS, free_port


def given_by_the_system() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_the_system_gives_them_to_nobody() -> None:
    assert not {given_by_the_system() for _ in range(300)} & set(PORTS)
    assert {free_port() for _ in range(300)} <= set(PORTS)


def test_each_is_given_once() -> None:
    assert len({free_port() for _ in range(300)}) == 300


def test_one_that_is_taken_is_passed_over() -> None:
    following = free_port() + 1
    with socket.create_server((HOST, following if following in PORTS else PORTS[0])) as taken:
        assert taken.getsockname()[1] not in {free_port() for _ in range(300)}
