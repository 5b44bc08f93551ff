"""`headrace broker drain|undrain|decommission` against brokers in this process."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.broker import drain
from headrace.cli.partition.progress import carry_out
from headrace.client.cluster import Cluster
from headrace.client.view import ClusterView
from headrace.metadata.cordons import CORDONED
from headrace.metadata.image import NO_LEADER
from headrace.replication.partition import Partition
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from tests.unit.cli.partition.test_partition_commands import T0, CommandLine, all_see
from tests.unit.replication.test_three_brokers import create, produce


@pytest.fixture
async def headrace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CommandLine]:
    monkeypatch.setattr("headrace.cli.broker.drain.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("headrace.cli.partition.progress.LOOK_SECONDS", 0.05)
    async with running_cluster(tmp_path, 3, auto_leader_rebalance_enable="false") as cluster:
        await create(cluster, 1, [1, 3])
        await cluster.until(lambda: cluster.replica(1, T0).is_leader)
        assert (await produce(cluster)).error_code == 0
        await cluster.until(lambda: all(cluster.image(n).partition(T0) is not None for n in cluster.nodes))
        yield CommandLine(cluster)


def copy_nothing_until(cluster: InProcessCluster, broker_id: int) -> Callable[[], None]:
    """So that a move to this broker does not end before the result is called."""
    fetchers = cluster.nodes[broker_id].replicas._fetchers
    assert fetchers is not None
    follow = fetchers.follow
    waiting: list[Partition] = []
    fetchers.follow = lambda partition: waiting.append(partition)  # type: ignore[method-assign]

    def go_on() -> None:
        fetchers.follow = follow  # type: ignore[method-assign]
        for partition in waiting:
            follow(partition)

    return go_on


def when_moves_begin(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a command, which has a loop of its own, has made its plan."""
    planned = threading.Event()

    def begin(*arguments: Any) -> Any:
        planned.set()
        return carry_out(*arguments)

    monkeypatch.setattr("headrace.cli.partition.move.carry_out", begin)
    return planned


async def test_leaders_or_everything_leaves_a_broker(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    led = await headrace("broker", "drain", "1", "--leaders", "--yes")
    assert "Moved 1 partition." in led.stderr
    await cluster.until(lambda: cluster.state(T0).leader == 3 and cluster.state(T0).replicas == (3, 1))
    plan = await headrace("broker", "drain", "1", "--dry-run")
    assert "1 partition, 1 replica to copy" in plan.stderr
    assert not cluster.image(1).broker_configs.get("1")
    await headrace("broker", "drain", "1", "--yes")
    await cluster.until(lambda: sorted(cluster.state(T0).replicas) == [2, 3])
    await cluster.until(lambda: cluster.image(1).broker_configs["1"] == {CORDONED: "*"})
    code, told = await headrace.refused("partition", "move", "t", "--replicas", "1,2", "--yes")
    assert (code, "No partition is being moved." in told) == (1, True)
    await headrace("broker", "undrain", "1")
    await headrace("partition", "move", "t", "--replicas", "1,2", "--yes")
    await cluster.until(lambda: cluster.state(T0).replicas == (1, 2))


async def test_a_broker_is_cordoned_only_once_that_was_confirmed(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    code, told = await headrace.refused("broker", "drain", "3")
    assert (code, "add --yes" in told) == (2, True)
    await headrace("partition", "move", "t", "--replicas", "3,2", "--yes")
    assert not cluster.image(1).broker_configs.get("3")


async def test_replicas_that_a_drain_leaves_to_nobody_are_told_of(headrace: CommandLine) -> None:
    await headrace("partition", "move", "t", "--replicas", "1,2,3", "--yes")
    plan = await headrace("broker", "drain", "3", "--dry-run")
    assert "1 will have fewer replicas than now." in plan.stderr
    assert "No other broker can take some replicas of t." in plan.stderr
    assert "`headrace partition move t -r 3` does" in plan.stderr


async def test_nothing_is_planned_to_go_to_a_drained_broker(tmp_path: Path) -> None:
    """It has the fewest replicas, and the controller would refuse them: a second drain moved nothing."""
    async with running_cluster(tmp_path, 4, auto_leader_rebalance_enable="false") as cluster:
        headrace = CommandLine(cluster)
        await create(cluster, 1, [1, 3])
        await cluster.until(lambda: all(cluster.image(n).partition(T0) is not None for n in cluster.nodes))
        await headrace("broker", "drain", "2", "--yes")
        await cluster.until(lambda: all(CORDONED in cluster.image(n).broker_configs["2"] for n in cluster.nodes))
        assert "Moved 1 partition." in (await headrace("broker", "drain", "3", "--yes")).stderr
        assert cluster.state(T0).replicas == (1, 4)
        await cluster.until(lambda: all(CORDONED in cluster.image(n).broker_configs["3"] for n in cluster.nodes))
        code, told = await headrace.refused("partition", "move", "t", "-r", "3", "--yes")
        assert (code, "t:0 cannot get 3 replicas: some of the brokers get no new ones." in told) == (1, True)
        assert "nothing to move" in (await headrace("partition", "balance", "--yes")).stderr
        checked = (await headrace("cluster", "check")).stdout
        assert "cordoned.log.dirs differs" not in checked


async def test_a_broker_is_drained_in_the_middle_of_a_move(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds what moves away, and what moves to it: the number of replicas stays, and both are waited for."""
    cluster = headrace.cluster
    go_on = copy_nothing_until(cluster, 2)
    await headrace("partition", "move", "t", "--replicas", "1,2", "--yes", "--no-wait")
    await cluster.until(lambda: all_see(cluster, lambda state: state.target == (1, 2)))
    planned = when_moves_begin(monkeypatch)
    draining = asyncio.ensure_future(headrace("broker", "drain", "3", "--yes"))
    await cluster.until(planned.is_set)
    assert cluster.image(1).broker_configs.get("3") == {CORDONED: "*"}
    go_on()
    assert "Moved 1 partition." in (await draining).stderr
    assert cluster.state(T0).replicas == (1, 2)


async def test_a_drain_whose_moves_end_before_it_begins_them_says_so(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a move that was running ended between plan and start, and the drain said nothing of it."""
    cluster = headrace.cluster
    go_on = copy_nothing_until(cluster, 2)
    await headrace("partition", "move", "t", "--replicas", "1,2", "--yes", "--no-wait")
    await cluster.until(lambda: all_see(cluster, lambda state: state.target == (1, 2)))
    has_ended = threading.Event()
    cordon = drain._cordon

    async def cordon_and_wait(*arguments: Any) -> None:
        await cordon(*arguments)
        assert await asyncio.to_thread(has_ended.wait, 60)

    monkeypatch.setattr(drain, "_cordon", cordon_and_wait)
    draining = asyncio.ensure_future(headrace("broker", "drain", "3", "--yes"))
    await cluster.until(lambda: cluster.image(1).broker_configs.get("3") == {CORDONED: "*"})
    go_on()
    await cluster.until(lambda: all_see(cluster, lambda state: state.replicas == (1, 2) and not state.target))
    has_ended.set()
    said = (await draining).stderr
    assert "Nothing is left to move: the moves that were running have ended." in said
    assert "Broker 3 gets no new partitions" in said


async def test_a_plan_trusts_the_controller_and_not_a_broker_that_is_behind_it(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that still shows a move which the controller no longer lists: its replicas were planned for as if all
    stayed, and a drain gave the partition one more."""
    metadata = Cluster.metadata

    async def behind(self: Cluster, *asked: Any, **of: Any) -> ClusterView:
        view = await metadata(self, *asked, **of)
        if asked or of:
            return view
        (partition,) = view.topics["t"].partitions
        moving = partition._replace(replicas=(1, 3, 2))
        return view._replace(topics={"t": view.topics["t"]._replace(partitions=(moving,))})

    monkeypatch.setattr(Cluster, "metadata", behind)
    plan = await headrace("broker", "drain", "2", "--dry-run")
    assert "Broker 2 holds no partitions that can move." in plan.stderr


async def test_a_broker_that_moves_are_pending_to_is_decommissioned(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    await headrace("partition", "move", "t", "--replicas", "1,2", "--yes")
    copy_nothing_until(cluster, 3)
    await headrace("partition", "move", "t", "--replicas", "1,3", "--yes", "--no-wait")
    await cluster.until(lambda: all_see(cluster, lambda state: state.target == (1, 3)))
    going = asyncio.ensure_future(headrace("broker", "decommission", "3", "--yes"))
    await cluster.until(lambda: cluster.state(T0).replicas == (1, 2))
    await cluster.stop(3)
    assert "Removed broker 3 from the cluster." in (await going).stderr
    assert cluster.state(T0).replicas == (1, 2)


async def test_a_dead_broker_with_the_only_copy_is_not_waited_for(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = headrace.cluster
    await headrace("partition", "move", "t", "--replicas", "3", "--yes")
    await cluster.until(lambda: cluster.state(T0).replicas == (3,))
    await cluster.stop(3)
    await cluster.until(
        lambda: all(3 not in cluster.image(n).brokers and cluster.state(T0).leader < 0 for n in cluster.nodes)
    )
    monkeypatch.setattr("headrace.cli.partition.progress.BEHIND_SECONDS", 0.5)
    code, told = await headrace.refused("broker", "decommission", "3", "--yes")
    assert (code, "Broker 3 still holds 1 partition: t:0" in told) == (1, True), told
    assert cluster.state(T0).replicas == (3,)
    assert not cluster.state(T0).target


async def test_a_broker_is_forgotten_once_it_has_stopped(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    going = asyncio.ensure_future(headrace("broker", "decommission", "3", "--yes"))
    await cluster.until(lambda: 3 not in cluster.state(T0).replicas)
    await cluster.until(lambda: not cluster.state(T0).target)
    await cluster.stop(3)
    assert "Removed broker 3 from the cluster." in (await going).stderr
    await cluster.until(lambda: "3" not in cluster.image(1).broker_configs)
    code, told = await headrace.refused("broker", "decommission", "3", "--yes")
    assert (code, "not registered" in told) == (4, True)


async def test_a_dead_broker_is_replaced_and_forgotten(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    await cluster.stop(3)
    await cluster.until(lambda: all(3 not in cluster.image(n).brokers for n in cluster.nodes))
    await cluster.until(lambda: all_see(cluster, lambda state: state.isr == (1,)))
    done = await headrace("broker", "decommission", "3", "--yes")
    assert "Removed broker 3 from the cluster." in done.stderr
    await cluster.until(lambda: cluster.state(T0).replicas == (1, 2))


async def test_a_drain_leaves_alone_what_is_on_another_broker_that_is_down(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 4, auto_leader_rebalance_enable="false") as cluster:
        headrace = CommandLine(cluster)
        await create(cluster, 1, [1, 3])
        await cluster.until(lambda: cluster.replica(1, T0).is_leader)
        await cluster.stop(3)
        await cluster.until(lambda: all_see(cluster, lambda state: state.isr == (1,)))
        await cluster.until(lambda: all(3 not in cluster.image(n).brokers for n in cluster.nodes))
        done = await headrace("broker", "drain", "1", "--yes", "--no-wait")
        assert "Broker 3 is down, and keeps its replicas of 1 partition: t:0." in done.stderr
        taker, kept = cluster.state(T0).target
        assert (taker in (2, 4), kept) == (True, 3)
        await cluster.start(3)
        await cluster.until(lambda: cluster.state(T0).replicas == (taker, 3))


async def test_what_is_offline_is_never_just_dropped(headrace: CommandLine) -> None:
    """Where nobody can take a lost replica it stays, and where nothing is left to copy from no move is begun."""
    cluster = headrace.cluster
    await headrace("partition", "move", "t", "-r", "3", "--yes")
    await cluster.until(lambda: len(cluster.state(T0).isr) == 3 and not cluster.state(T0).target)
    await headrace("topic", "create", "alone", "--partitions", "3", "--replication-factor", "1")
    await cluster.until(lambda: all("alone" in cluster.image(n).topics for n in cluster.nodes))
    await cluster.stop(3)
    lost = [one.replicas for one in cluster.image(2).topics["alone"].partitions].index((3,))

    def known(n: int) -> bool:
        image = cluster.image(n)
        gone = 3 not in image.brokers and image.topics["alone"].partitions[lost].leader == NO_LEADER
        return gone and sorted(image.topics["t"].partitions[0].isr) == [1, 2]

    await cluster.until(lambda: known(1) and known(2))  # either may answer the command
    told = (await headrace("partition", "move", "--offline", "--yes")).stderr
    assert "t:0: every other broker holds a replica already, or gets no new ones." in told
    assert f"alone:{lost}: no replica is left to copy from." in told
    assert "Nothing to move." in told
    assert sorted(cluster.state(T0).replicas) == [1, 2, 3]
    fewer = await headrace("partition", "move", "t", "-r", "2", "--yes")
    assert "1 will have fewer replicas than now" in fewer.stderr
    await cluster.until(lambda: sorted(cluster.state(T0).replicas) == [1, 2])


async def test_all_replicas_of_a_broker_go_to_another(headrace: CommandLine) -> None:
    await headrace("partition", "move", "--from", "3", "--to", "2", "--yes")
    await headrace.cluster.until(lambda: headrace.cluster.state(T0).replicas == (1, 2))


async def test_the_partitions_of_a_failed_directory_go_elsewhere(tmp_path: Path) -> None:
    """To another broker; and back, to another directory of the one whose disk failed."""
    directories = f"{tmp_path}/one,{tmp_path}/two"
    async with running_cluster(tmp_path / "one", 3, log_dirs=directories) as cluster:
        headrace = CommandLine(cluster)
        await create(cluster, 1, [1, 3])
        await cluster.until(lambda: cluster.replica(1, T0).is_leader)
        assert (await produce(cluster)).error_code == 0
        failed = next(one for one in cluster.nodes[3]._directories if T0 in one.logs)
        failed.fail(OSError(errno.EIO, "made up"))
        await cluster.until(lambda: any(broker.offline for broker in cluster.image(2).brokers.values()))
        await cluster.until(lambda: cluster.image(2).partition(T0) is not None)
        await headrace("partition", "move", "--offline", "--yes")
        await cluster.until(lambda: cluster.state(T0).replicas == (1, 2))
        await cluster.until(lambda: not cluster.nodes[3].replicas.offline)
        await headrace("partition", "move", "t", "--replicas", "3,1", "--yes")
        await cluster.until(lambda: cluster.replica(3, T0).is_leader)
        assert not cluster.replica(3, T0).log.directory.startswith(failed.path)
