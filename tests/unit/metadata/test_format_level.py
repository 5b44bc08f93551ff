"""A level that newer versions raise and older ones refuse (R-OPS-8)."""

from __future__ import annotations

import pytest

from headrace.coordination.memory import MemoryCluster
from headrace.env.real import real_env
from headrace.metadata import levels
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.format_level import decide_level
from headrace.metadata.image import BrokerImage
from headrace.metadata.layout import FORMAT
from headrace.metadata.levels import LevelRefused
from headrace.metadata.registration import register
from headrace.model.errors import ErrorCode, KafkaError


def brokers(**of: int) -> dict[int, BrokerImage]:
    return {int(name[1:]): BrokerImage(int(name[1:]), 1, (), format_level=level) for name, level in of.items()}


@pytest.mark.parametrize(
    ("level", "known", "alive", "expected"),
    [
        pytest.param(1, [1, 2], brokers(b1=1, b2=1), 1, id="all are as the cluster is"),
        pytest.param(1, [1, 2], brokers(b1=2, b2=1), 1, id="one is newer"),
        pytest.param(1, [1, 2], brokers(b1=2, b2=3), 2, id="all are newer"),
        pytest.param(1, [1, 2, 3], brokers(b1=2, b2=2), 1, id="one is stopped, and may be older"),
        pytest.param(3, [1], brokers(b1=2), 3, id="never back"),
        pytest.param(1, [], {}, 1, id="nobody"),
    ],
)
def test_the_level_is_raised_when_everybody_can_read_it(
    level: int, known: list[int], alive: dict[int, BrokerImage], expected: int
) -> None:
    assert decide_level(level, known, alive) == expected


async def test_an_older_version_reads_nothing_and_does_not_register(monkeypatch: pytest.MonkeyPatch) -> None:
    env = real_env()
    store = MemoryCluster(env).connect()
    metadata = ClusterMetadata(env, store)
    await metadata.start()
    node = await store.get(FORMAT)
    assert node is not None
    assert int(node.value) == 1
    await store.put(FORMAT, b"2", node.version)
    with pytest.raises(KafkaError) as refused:
        await register(store, BrokerImage(1, 0, ()), env.clock)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(LevelRefused, match="format level 2, but this version of Headrace reads only up to 1"):
        await ClusterMetadata(env, store).start()
    monkeypatch.setattr(levels, "METADATA_LEVEL", 2)
    newer = ClusterMetadata(env, store)
    await newer.start()
    assert (await register(store, BrokerImage(1, 0, (), format_level=2), env.clock)).epoch == 1
    await newer.close()
    await metadata.close()
