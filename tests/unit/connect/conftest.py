"""A broker in this process, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.env.real import real_env
from headrace.testing.in_process import running_node


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with (
        running_node(tmp_path / "data") as address,
        Cluster(real_env(), parse_bootstrap(address)) as cluster,
    ):
        yield cluster
