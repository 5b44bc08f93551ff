"""`headrace sink`: what a driver that is gone has left, shown and ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.common.failure import FAILED, NOT_FOUND
from headrace.spark.client.transactions import TransactionClient
from headrace.spark.sink.once.names import task_id
from tests.compat.test_cli import refused, run
from tests.processes.spark.sink.once.test_protocol import Killed, Scene, dying, scene

pytestmark = pytest.mark.headrace_only
__all__ = ["scene"]


@pytest.fixture
def decided(scene: Scene) -> Scene:
    """A sink whose driver died after the decision on batch 1, with something that a losing attempt left."""
    scene.whole_batch(0)
    plan = scene.plan()
    scene.write(plan, 1, partition=1, attempt=1)
    messages = scene.tasks(plan, 1)
    with pytest.MonkeyPatch.context() as patch:
        dying(scene, patch, TransactionClient, "end", 0)
        with pytest.raises(Killed):
            scene.commit(messages, 1)
    return scene


def command(scene: Scene, *arguments: str) -> str:
    done = run(scene.topics.bootstrap, "sink", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def listed(scene: Scene) -> dict[str, Any]:
    rows = json.loads(command(scene, "list", "--format", "json"))
    (row,) = [row for row in rows if row["sink"] == scene.sink.sink_id]
    return dict(row)


def test_what_is_decided_is_committed_and_the_rest_aborted(decided: Scene) -> None:
    row = listed(decided)
    assert (row["batch"], row["state"], row["rows"], row["query"]) == (1, "decided", 10, "q")
    name = decided.sink.sink_id
    assert row["transactions"] == [task_id(name, 0, 0), task_id(name, 1, 0), task_id(name, 1, 1)]
    assert name in command(decided, "list")
    told = "is decided, and not all of it is committed"
    refused(decided.topics.bootstrap, FAILED, told, "sink", "abort", name, "--yes")
    command(decided, "commit", name, "--yes")
    row = listed(decided)
    assert (row["batch"], row["state"], row["open"]) == (1, "done", 0)
    decided.check(2)
    decided.restart()
    decided.whole_batch(2)
    decided.check(3)


def test_what_is_not_decided_is_aborted(scene: Scene) -> None:
    messages = scene.tasks(scene.plan(), 0)
    assert listed(scene)["state"] == "none"
    command(scene, "abort", scene.sink.sink_id, "--yes")
    assert listed(scene)["open"] == 0
    with pytest.raises(Exception, match="another driver"):
        scene.commit(messages, 0)
    scene.check(0)


def test_what_is_decided_is_lost_only_on_request(decided: Scene) -> None:
    command(decided, "abort", decided.sink.sink_id, "--lose-decided", "--yes")
    assert (listed(decided)["state"], listed(decided)["open"]) == ("done", 0)
    decided.check(1)


def test_what_is_decided_and_committed_by_name_is_committed(decided: Scene) -> None:
    """The driver's own commit of it is refused then."""
    done = run(decided.topics.bootstrap, "txn", "commit", task_id(decided.sink.sink_id, 1, 0), "--yes")
    assert done.returncode == 0, done.stderr.decode()
    command(decided, "commit", decided.sink.sink_id, "--yes")
    assert (listed(decided)["state"], listed(decided)["open"]) == ("done", 0)
    decided.check(2)


def test_a_sink_that_is_not_there(bootstrap: str) -> None:
    refused(bootstrap, NOT_FOUND, "There is no sink nobody", "sink", "commit", "nobody", "--yes")
