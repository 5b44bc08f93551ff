"""The exactly-once sink with real drivers that are killed (R-SPK-2). The whole matrix: `make sink-drills`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.sink.once.driver import ANOTHER_DRIVER
from headrace.testing.process import BrokerProcess
from headrace.testing.sink_drills.driver import FAILED
from headrace.testing.sink_drills.scene import Scene

pytestmark = [pytest.mark.headrace_only, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture
def scene(java: str, tmp_path: Path) -> Iterator[Scene]:
    with BrokerProcess({}) as broker:
        made = Scene(broker.bootstrap, tmp_path)
        yield made
        made.close()


def test_every_row_is_there_once_wherever_drivers_die(scene: Scene) -> None:
    """Killed around the decision and between two ends; then a commit and a task that fail. (In a task, and the
    others: `make sink-drills`.)"""
    scene.killed("before", batch=1)
    scene.killed("decided", batch=2)
    scene.killed("first", batch=3)
    raised = {"stage": "first", "act": "raise", "batch": 4}
    failed = {"stage": "task", "act": "raise", "batch": 5}
    scene.finished(raised, failed, {})
    scene.check()


def test_of_two_drivers_with_one_checkpoint_one_is_fenced(scene: Scene) -> None:
    """One waits before its decision; the other comes, and is done; then the first goes on, and is refused. Last a
    checkpoint of before is restored, which is an error that says so."""
    old = scene.start({"stage": "before", "act": "hold", "batch": 1})
    scene.reached("before", old)
    scene.save_checkpoint("before")
    scene.finished()
    scene.go()
    assert old.wait() == FAILED, old.told()
    assert ANOTHER_DRIVER in old.told()
    scene.check()
    scene.restore_checkpoint("before")
    restored = scene.start()
    assert restored.wait() == FAILED, restored.told()
    assert "the checkpoint is older than the sink" in restored.told()
    scene.check()
