"""A real ZooKeeper for all tests of this folder, and a root of its own for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from headrace.testing.zookeeper import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def chroot() -> str:
    return f"/tests/{uuid.uuid4().hex}"
