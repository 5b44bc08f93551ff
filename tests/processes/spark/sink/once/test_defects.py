"""Without its defences the sink doubles rows, or is stuck. The same with Spark: `make sink-drills`."""

from __future__ import annotations

import pytest

from headrace.spark.sink.errors import SinkError
from headrace.testing.sink_drills.dying import no_decision, no_fence
from tests.processes.spark.sink.once.test_protocol import Scene, scene

pytestmark = pytest.mark.headrace_only
__all__ = ["scene"]


def test_without_a_decision_rows_are_there_twice(scene: Scene) -> None:
    """The driver dies before Spark notes that the batch is committed."""
    with no_decision():
        scene.whole_batch(0)
        plan = scene.restart()
        scene.commit(scene.tasks(plan, 0), 0)
    with pytest.raises(AssertionError, match="Counter"):
        scene.check(1)


def test_without_a_fence_an_old_driver_replaces_a_newer_decision(scene: Scene) -> None:
    messages = scene.tasks(scene.plan(), 0)
    plan = scene.restart()
    scene.commit(scene.tasks(plan, 0), 0)
    scene.whole_batch(1)
    with no_fence():
        for act in (lambda: scene.commit(messages, 0), scene.restart):
            with pytest.raises(SinkError, match="cannot be committed any more"):
                act()
