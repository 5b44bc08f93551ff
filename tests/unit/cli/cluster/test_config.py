"""`headrace cluster config` against brokers in this process."""

from __future__ import annotations

from pathlib import Path

from headrace.testing.in_process_cluster import running_cluster
from tests.unit.cli.partition.test_partition_commands import CommandLine


async def test_settings_that_do_not_exist(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        headrace = CommandLine(cluster)
        code, told = await headrace.refused("cluster", "config", "--set", "nonsense=1")
        assert (code, "Unknown broker config name: nonsense" in told) == (1, True)
        assert "`headrace cluster config --all` lists the settings." in told
        assert await headrace.refused("cluster", "config", "--delete", "nonsense") == (
            4,
            "Broker 1 has no setting nonsense.",
        )
        code, told = await headrace.refused("group", "config", "g", "--set", "nonsense=1")
        assert "`headrace group config --all GROUP` lists the settings." in told
        assert "Changed 1 setting" in (await headrace("cluster", "config", "--delete", "message.max.bytes")).stderr
