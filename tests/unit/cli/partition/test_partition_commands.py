"""`headrace partition`, and Kafka's tools of the same purpose, against brokers in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from headrace.cli.common.failure import CommandError
from headrace.cli.main import command_line
from headrace.metadata.image import PartitionImage
from headrace.model.topics import TopicPartition
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from tests.unit.replication.test_three_brokers import create, produce
from tests.unit.services.test_replication_figures import PARTITION, UNDER_REPLICATED, figures

T0 = TopicPartition("t", 0)


class CommandLine:
    """Commands run in a thread, since the brokers need this one."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster

    async def __call__(self, *arguments: str) -> Result:
        return await self.through(2, *arguments)

    async def through(self, broker: int, *arguments: str) -> Result:
        result = await self._run(arguments, broker)
        assert result.exit_code == 0, (result.output, result.exception)
        return result

    async def refused(self, *arguments: str) -> tuple[int, str]:
        """The exit code and what is said."""
        error = (await self._run(arguments)).exception
        assert isinstance(error, click.ClickException), error
        return error.code if isinstance(error, CommandError) else error.exit_code, error.format_message()

    async def _run(self, arguments: Sequence[str], broker: int = 2) -> Result:
        command = ["--bootstrap-server", self.cluster.addresses[broker], *arguments]
        return await asyncio.to_thread(CliRunner().invoke, command_line, command, standalone_mode=False)


@pytest.fixture
async def headrace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CommandLine]:
    monkeypatch.setattr("headrace.cli.partition.progress.LOOK_SECONDS", 0.05)
    async with running_cluster(tmp_path / "data", 4, headrace_admin_port="0") as cluster:
        await create(cluster, 1, [1, 2])
        for _ in range(3):
            await cluster.until(lambda: cluster.replica(1, T0).is_leader)
            assert (await produce(cluster)).error_code == 0
        await cluster.until(lambda: all(cluster.image(n).partition(T0) is not None for n in cluster.nodes))
        yield CommandLine(cluster)


async def test_a_partition_is_moved_after_the_plan_was_shown(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    only_shown = await headrace("partition", "move", "t", "--replicas", "3,4", "--dry-run")
    assert "1 partition, 2 replicas to copy" in only_shown.stderr
    assert cluster.state(T0).replicas == (1, 2)
    code, text = await headrace.refused("partition", "move", "t", "--replicas", "3,4")
    assert (code, "add --yes" in text) == (2, True)
    moved = await headrace("partition", "move", "t:0", "--replicas", "3,4", "--yes", "--throttle", "50MB/s")
    assert "Moved 1 partition." in moved.stderr
    await cluster.until(lambda: cluster.state(T0).replicas == (3, 4))
    # The limit is gone with the move.
    await cluster.until(lambda: not cluster.image(1).broker_configs.get("1"))
    await cluster.until(lambda: not cluster.image(1).topics["t"].configs)
    again = await headrace("partition", "move", "t", "--replicas", "3,4", "--yes")
    assert "Nothing to move." in again.stderr


async def test_replicas_are_added_and_taken_away(headrace: CommandLine) -> None:
    plan = await headrace("partition", "move", "t", "-r", "3", "--yes", "--format", "json")
    (row,) = json.loads(plan.stdout)
    assert row["from"] == [1, 2]
    assert len(row["to"]) == 3
    await headrace.cluster.until(lambda: len(headrace.cluster.state(T0).replicas) == 3)
    await headrace("partition", "move", "t", "--from", "2", "--to", "4", "--yes")
    await headrace.cluster.until(lambda: 2 not in headrace.cluster.state(T0).replicas)
    await headrace("partition", "move", "t", "-r", "1", "--yes")
    await headrace.cluster.until(lambda: headrace.cluster.state(T0).replicas == (1,))


async def test_mistakes(headrace: CommandLine) -> None:
    for arguments, code, text in [
        (["move", "t"], 2, "Give a destination"),
        (["move", "--replicas", "1"], 2, "Name the partitions"),
        (["move", "t", "--replicas", "1,9"], 4, "There is no broker 9; the brokers are 1, 2, 3, 4."),
        (["move", "t:7", "--replicas", "1"], 4, "t has no partition 7, only 1 partition."),
        (["move", "u", "--replicas", "1"], 4, "There is no topic u."),
        (["move", "t", "-r", "9"], 1, "9 replicas need as many brokers, and 4 are alive."),
        (["move", "--file", "/nowhere.json"], 4, "/nowhere.json cannot be read"),
        (["cancel"], 2, "Name partitions"),
        (["elect"], 2, "Name partitions"),
    ]:
        told_code, told = await headrace.refused("partition", *arguments, "--yes")
        assert told_code == code, arguments
        assert text in told


async def test_status_and_cancel(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    assert "No partition is being moved." in (await headrace("partition", "status")).stderr
    fetchers = cluster.nodes[4].replicas._fetchers
    assert fetchers is not None
    fetchers.follow = lambda partition: None  # type: ignore[method-assign]
    begun = await headrace("partition", "move", "t", "--replicas", "4,2", "--yes", "--no-wait")
    assert "1 partition will move" in begun.stderr
    status = await headrace("partition", "status", "--format", "json")
    (row,) = json.loads(status.stdout)
    assert (row["adding"], row["removing"], row["copied_bytes"]) == ([4], [1], 0)
    assert row["total_bytes"] > 0
    assert "Cancelled the moves of 1 partition." in (await headrace("partition", "cancel", "t", "-y")).stderr
    assert "No partition is being moved." in (await headrace("partition", "cancel", "--all", "-y")).stderr
    assert "None of them is being moved." in (await headrace("partition", "cancel", "t", "-y")).stderr
    await cluster.until(lambda: cluster.state(T0).replicas == (1, 2))


async def test_replicas_that_a_move_adds_are_not_missed(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    copy_nothing(cluster, 4)
    await headrace("partition", "move", "t", "--replicas", "4,2", "--yes", "--no-wait")
    await cluster.until(lambda: all_see(cluster, lambda state: state.adding == (4,)))
    healthy = (await headrace("cluster", "health")).stdout
    assert "all replicas in sync; moves are adding 1 replica" in healthy
    assert (
        json.loads((await headrace("cluster", "info", "--format", "json")).stdout)["under_replicated_partitions"]
        == 0
    )
    (listed,) = json.loads((await headrace("topic", "list", "--format", "json")).stdout)
    assert listed["under_replicated"] == 0
    shown = await headrace("kafka-topics", "--describe", "--under-replicated-partitions")
    assert shown.stdout == ""
    told = await figures(cluster, 1)
    assert (told[UNDER_REPLICATED], told[f"kafka_topic_partition_replicas{PARTITION}"]) == (0, 3)
    assert told[f"kafka_topic_partition_under_replicated_partition{PARTITION}"] == 0


def all_see(cluster: InProcessCluster, holds: Callable[[PartitionImage], bool]) -> bool:
    """Whether that is how every broker knows the partition: any of them may answer a command."""
    states = [cluster.image(n).partition(T0) for n in cluster.nodes]
    return all(state is not None and holds(state) for state in states)


def copy_nothing(cluster: InProcessCluster, broker_id: int) -> None:
    """So that a move to this broker does not end."""
    fetchers = cluster.nodes[broker_id].replicas._fetchers
    assert fetchers is not None
    fetchers.follow = lambda partition: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("arguments", "to"),
    [
        pytest.param(["move", "t", "--from", "2", "--to", "3"], [4, 3], id="another replica moves"),
        pytest.param(["move", "t", "-r", "3"], [4, 2, 1], id="one more replica"),
        pytest.param(["move", "t", "--replicas", "4,2,1"], [4, 2, 1], id="what moves away is kept"),
        pytest.param(["balance", "--without", "2"], [4, 1], id="balance"),
    ],
)
async def test_a_plan_starts_from_where_partitions_are_moving_to(
    headrace: CommandLine, arguments: list[str], to: list[int]
) -> None:
    """Replicas that are about to go do not count: otherwise the partition would end with more than it had."""
    cluster = headrace.cluster
    copy_nothing(cluster, 4)
    await headrace("partition", "move", "t", "--replicas", "4,2", "--yes", "--no-wait")
    await cluster.until(lambda: all_see(cluster, lambda state: state.replicas == (4, 2, 1)))
    plan = await headrace("partition", *arguments, "--dry-run", "--format", "json")
    (row,) = json.loads(plan.stdout)
    assert (row["from"], row["to"]) == ([4, 2, 1], to)


async def test_a_move_that_somebody_else_cancels_is_not_reported_as_done(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.partition.progress.BEHIND_SECONDS", 0.5)
    cluster = headrace.cluster
    copy_nothing(cluster, 4)
    arguments = ("partition", "move", "t", "--replicas", "4,2", "--yes", "--throttle", "50MB/s")
    waiting = asyncio.ensure_future(headrace.refused(*arguments))
    await cluster.until(lambda: all_see(cluster, lambda state: state.target == (4, 2)))
    await headrace("partition", "cancel", "t", "--yes")
    code, told = await waiting
    assert (code, "t:0 is not where it was to go" in told) == (1, True), told
    await cluster.until(lambda: not cluster.image(1).broker_configs.get("1"))
    await cluster.until(lambda: not cluster.image(1).topics["t"].configs)


async def test_brokers_that_do_not_exist(headrace: CommandLine, tmp_path: Path) -> None:
    told = "There is no broker 9; the brokers are 1, 2, 3, 4."
    assert await headrace.refused("partition", "move", "--from", "9", "--to", "3", "--dry-run") == (4, told)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 9]}]}')
    assert await headrace.refused("partition", "move", "--file", str(plan), "--dry-run") == (4, told)


async def test_a_plan_may_keep_replicas_on_a_broker_that_is_down(headrace: CommandLine, tmp_path: Path) -> None:
    cluster = headrace.cluster
    await cluster.stop(2)
    await cluster.until(lambda: all(2 not in cluster.image(n).brokers for n in cluster.nodes))
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}')
    shown = await headrace.through(1, "partition", "move", "--file", str(plan), "--dry-run", "--format", "json")
    assert [row["to"] for row in json.loads(shown.stdout)] == [[1, 2, 3]]


async def test_a_broker_that_is_down_is_not_balanced_away(headrace: CommandLine) -> None:
    """It may be back in a minute: all that it held was to be copied, or to have one replica fewer."""
    cluster = headrace.cluster
    await headrace("partition", "move", "t", "--replicas", "3,4", "--yes")
    await cluster.stop(4)
    await cluster.until(lambda: all(4 not in cluster.image(n).brokers for n in cluster.nodes))
    code, told = await headrace.refused("partition", "balance", "--yes")
    assert (code, "Broker 4 is down and holds replicas" in told) == (1, True)
    assert "add --without 4" in told
    plan = await headrace("partition", "balance", "--without", "4", "--dry-run", "--format", "json")
    (row,) = json.loads(plan.stdout)
    assert 4 not in row["to"]


async def test_a_move_that_is_refused_leaves_no_throttle(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    await headrace("broker", "drain", "3", "--yes")
    code, told = await headrace.refused(
        "partition", "move", "t", "--replicas", "3,2", "--yes", "--throttle", "50MB/s"
    )
    assert (code, "No partition is being moved." in told) == (1, True)
    await cluster.until(lambda: not cluster.image(1).broker_configs.get("1"))
    await cluster.until(lambda: not cluster.image(1).topics["t"].configs)


async def test_two_throttled_moves_of_one_topic(headrace: CommandLine) -> None:
    """Each limits its own partitions, and takes only those limits away; what somebody had set stays."""
    cluster = headrace.cluster
    await headrace("kafka-topics", "--create", "--topic", "u", "--replica-assignment", "1:2,1:2")
    user = "follower.replication.throttled.replicas=7:9"
    await headrace("topic", "alter", "u", "--set", user)
    await cluster.until(lambda: len(cluster.image(2).topics["u"].configs) == 1)
    throttled = ("--yes", "--throttle", "50MB/s")
    copy_nothing(cluster, 4)
    await headrace("partition", "move", "u:0", "--replicas", "4,2", "--no-wait", *throttled)
    await cluster.until(lambda: bool(cluster.image(2).topics["u"].partitions[0].target))
    await headrace("partition", "move", "u:1", "--replicas", "3,2", *throttled)
    await cluster.until(
        lambda: (
            cluster.image(2).topics["u"].configs
            == {
                "leader.replication.throttled.replicas": "0:1,0:2",
                "follower.replication.throttled.replicas": "7:9,0:4",
            }
        )
    )
    assert cluster.image(2).broker_configs["2"], "the other move still needs the rates"


async def test_a_throttle_that_nothing_needs_any_more_is_reported(headrace: CommandLine) -> None:
    cluster = headrace.cluster
    copy_nothing(cluster, 4)
    arguments = ("partition", "move", "t", "--replicas", "4,2", "--yes", "--throttle", "50MB/s", "--no-wait")
    await headrace(*arguments)
    assert "throttle" not in (await headrace("partition", "status")).stderr
    await headrace("partition", "cancel", "t", "--yes")
    await cluster.until(lambda: all_see(cluster, lambda state: not state.target))
    told = (await headrace("partition", "status")).stderr
    assert "No partition is being moved." in told
    assert "`headrace partition status --remove-throttle` removes them" in told
    removed = await headrace("partition", "status", "--remove-throttle")
    assert "Removed the throttles of broker 1, " in removed.stderr
    await cluster.until(lambda: not cluster.image(2).topics["t"].configs)
    assert "throttle" not in (await headrace("partition", "status")).stderr


async def test_a_new_broker_gets_its_share_and_leaders_are_elected(headrace: CommandLine) -> None:
    balanced = await headrace("partition", "balance", "--yes", "--without", "1,2")
    assert "Moved 1 partition." in balanced.stderr
    await headrace.cluster.until(lambda: sorted(headrace.cluster.state(T0).replicas) == [3, 4])
    await headrace.cluster.until(
        lambda: headrace.cluster.state(T0).leader == headrace.cluster.state(T0).replicas[0]
    )
    assert "nothing to move" in (await headrace("partition", "balance", "--without", "1,2")).stderr
    elected = await headrace("partition", "elect", "t")
    assert "All leaders are already as requested." in elected.stderr


async def test_kafkas_tools(headrace: CommandLine, tmp_path: Path) -> None:
    cluster = headrace.cluster
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    tool = "kafka-reassign-partitions"
    generated = await headrace(
        tool, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "3,4"
    )
    lines = generated.stdout.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert lines[3] == "Proposed partition reassignment configuration"
    plan.write_text(lines[4])
    file = ("--reassignment-json-file", str(plan))
    executed = await headrace(tool + ".sh", "--execute", *file, "--throttle", "1000000")
    assert "Successfully started partition reassignment for t-0" in executed.stdout
    assert "The inter-broker throttle limit was set to 1000000 B/s" in executed.stdout
    await cluster.until(lambda: sorted(cluster.state(T0).replicas) == [3, 4])
    verified = await headrace(tool, "--verify", *file)
    assert "Reassignment of partition t-0 is completed." in verified.stdout
    assert "Clearing broker-level throttles on brokers 1,2,3,4" in verified.stdout
    assert "Clearing topic-level throttles on topic t" in verified.stdout
    await cluster.until(lambda: not cluster.image(2).topics["t"].configs)
    assert "No partition reassignments found." in (await headrace(tool, "--list")).stdout
    cancelled = await headrace(tool, "--cancel", *file)
    assert "None of the specified partition reassignments are active." in cancelled.stdout
    elect = ("kafka-leader-election", "--election-type", "PREFERRED")
    one = await headrace(*elect, "--topic", "t", "--partition", "0")
    assert "t-0" in one.stdout
    await headrace(*elect, "--all-topic-partitions")
