"""The way into a cluster of which some hosts are gone, for code that blocks."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from headrace.client.address import Address
from headrace.client.errors import CannotReach, NoneReachable, Reason
from headrace.spark.client import entering
from headrace.spark.client.connection import BlockingConnection, ClusterSettings
from headrace.spark.client.entering import first_to_answer
from tests.unit.spark.client.fake_cluster import FakeCluster

SETTINGS = ClusterSettings("unused", connect_timeout_s=30.0)


def connect(address: Address) -> BlockingConnection:
    return BlockingConnection.open(address, SETTINGS)


def test_a_silent_broker_is_not_waited_for() -> None:
    ended: list[Address] = []

    def noted(address: Address) -> BlockingConnection:
        try:
            return BlockingConnection.open(address, ClusterSettings("unused", connect_timeout_s=10.0))
        finally:
            ended.append(address)

    with socket.create_server(("127.0.0.1", 0)) as gone, FakeCluster() as cluster:
        silent = Address("127.0.0.1", gone.getsockname()[1])
        connection = first_to_answer([silent, cluster.address(1)], noted)
        assert ended == [connection.address] == [cluster.address(1)]
        connection.close()


def test_the_first_address_has_a_head_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "HEAD_START_S", 30.0)
    tried: list[Address] = []

    def noted(address: Address) -> BlockingConnection:
        tried.append(address)
        return connect(address)

    with FakeCluster(2) as cluster:
        connection = first_to_answer([cluster.address(1), cluster.address(2)], noted)
        connection.close()
        assert tried == [cluster.address(1)]


def test_one_that_comes_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "HEAD_START_S", 0.0)
    taken = threading.Event()
    late: list[BlockingConnection] = []

    def first_is_late(address: Address) -> BlockingConnection:
        connection = connect(address)
        if address == cluster.address(1):
            late.append(connection)
            taken.wait(30)
        return connection

    with FakeCluster(2) as cluster:
        connection = first_to_answer([cluster.address(1), cluster.address(2)], first_is_late)
        assert connection.address == cluster.address(2)
        taken.set()
        deadline = time.monotonic() + 30
        while not (late and late[0].closed):
            assert time.monotonic() < deadline, "the late connection stays open"
            time.sleep(0.01)
        assert not connection.closed
        connection.close()


def test_reasons_come_in_the_order_of_the_addresses() -> None:
    order = [Address("127.0.0.1", 3), Address("127.0.0.1", 1), Address("127.0.0.1", 2)]

    def refused(address: Address) -> BlockingConnection:
        time.sleep(0.01 * address.port)
        raise CannotReach(address, Reason.REFUSED)

    with pytest.raises(NoneReachable) as caught:
        first_to_answer(order, refused)
    assert [failure.address for failure in caught.value.failures] == order


def test_other_errors_end_it_at_once() -> None:
    def broken(address: Address) -> BlockingConnection:
        raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault of ours"):
        first_to_answer([Address("127.0.0.1", 1), Address("127.0.0.1", 2)], broken)
