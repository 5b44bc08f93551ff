"""The whole matrix of what can die around an exactly-once sink: each drill with one broker and with three.

A drill gets a scene and the brokers, does its worst, and leaves the count to the runner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.spark.pipelines.running.session import find_java
from headrace.spark.sink.once.driver import ANOTHER_DRIVER
from headrace.testing.process import ServerProcess
from headrace.testing.sink_drills.driver import FAILED
from headrace.testing.sink_drills.dying import OVERTAKEN, STAGES
from headrace.testing.sink_drills.scene import Scene
from headrace.testing.spark_cluster import EXECUTOR_MEMORY, SparkCluster

IN_COMMIT = tuple(stage for stage in STAGES if stage != "task")
CLUSTER = "local-cluster[2,1,1024]"
"""A master with two executors in processes of their own."""
HOSTS = ("127.0.0.2", "127.0.0.3")
"""The addresses of two workers: Spark runs no second attempt of a task on the host of the first."""


@dataclass
class Stage:
    """The environment of a drill."""

    scene: Scene
    brokers: list[ServerProcess]
    mutant: str | None = None


def kill_everywhere(at: Stage) -> None:
    for batch, stage in enumerate(STAGES, start=1):
        at.scene.killed(stage, batch, at.mutant)
    at.scene.finished(mutant=at.mutant)


def kill_done(at: Stage) -> None:
    at.scene.killed("done", 1, at.mutant)
    at.scene.finished(mutant=at.mutant)


def fail_everywhere(at: Stage) -> None:
    dooms = [{"stage": stage, "act": "raise", "batch": batch} for batch, stage in enumerate(STAGES, start=1)]
    at.scene.finished(*dooms, {}, mutant=at.mutant)


def two_drivers(at: Stage) -> None:
    old = at.scene.start({"stage": "before", "act": "hold", "batch": 1}, mutant=at.mutant)
    at.scene.reached("before", old)
    at.scene.finished(mutant=at.mutant)
    at.scene.go()
    assert old.wait() == FAILED, f"the old driver was not fenced:\n{old.told()}"
    assert ANOTHER_DRIVER in old.told(), old.told()
    at.scene.send(100)
    at.scene.finished(mutant=at.mutant)


def older_checkpoint(at: Stage) -> None:
    at.scene.killed("before", 3)
    at.scene.save_checkpoint("old")
    at.scene.finished()
    at.scene.restore_checkpoint("old")
    run = at.scene.start()
    assert run.wait() == FAILED, run.told()
    assert "the checkpoint is older than the sink" in run.told(), run.told()


def speculation(at: Stage) -> None:
    """In every batch the first attempt of one task waits in its middle until a second one has prepared its rows:
    then Spark ends it, or it continues, too late. (On a busy machine one may be overtaken before it is there.)"""
    java = str(find_java(os.environ).home)
    with SparkCluster(java, at.scene.folder / "spark", HOSTS) as cluster:
        at.scene.master = cluster.url
        at.scene.settings = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.executor.memory": EXECUTOR_MEMORY,
        }
        at.scene.finished({"act": "wait"}, mutant=at.mutant)
    assert any(at.scene.folder.glob(f"{OVERTAKEN}*")), "no attempt was overtaken in its middle"


def killed_executor(at: Stage) -> None:
    """An executor dies in the middle of a task; Spark runs the task again on another."""
    at.scene.master = CLUSTER
    at.scene.settings = {"spark.executor.memory": "512m"}
    at.scene.finished({"stage": "task", "act": "executor", "batch": 1}, mutant=at.mutant)


def killed_brokers(stage: str) -> Callable[[Stage], None]:
    """While the driver waits at a stage every broker is killed and started again, one after the other."""

    def drill(at: Stage) -> None:
        run = at.scene.start({"stage": stage, "act": "hold", "batch": 1}, mutant=at.mutant)
        at.scene.reached(stage, run)
        for broker in at.brokers[:-1]:
            broker.kill()
            broker.start()
        at.brokers[-1].kill()
        at.scene.go()
        at.brokers[-1].start()
        assert run.wait() == 0, run.told()

    return drill


@dataclass(frozen=True, slots=True)
class SinkDrill:
    about: str
    play: Callable[[Stage], None]
    mutant: str | None = None
    """The defect that it must find."""
    brokers: tuple[int, ...] = (1, 3)
    batches: int = 3
    """The number of batches that it needs; the short form has no more."""


DRILLS: Mapping[str, SinkDrill] = {
    "kill-everywhere": SinkDrill("the driver is killed at every stage in turn", kill_everywhere, batches=8),
    "kill-done": SinkDrill("the driver is killed before Spark notes the batch", kill_done, "no-decision", (1,)),
    "fail-everywhere": SinkDrill("a task, and commits at every stage, raise", fail_everywhere, batches=8),
    "two-drivers": SinkDrill("two drivers with one checkpoint; the first is fenced", two_drivers, "no-fence"),
    "older-checkpoint": SinkDrill(
        "an older checkpoint is restored: an error", older_checkpoint, brokers=(1,), batches=5
    ),
    "speculation": SinkDrill("attempts are overtaken by others", speculation),
    "killed-executor": SinkDrill("an executor is killed in a task", killed_executor),
    **{
        f"brokers-{stage}": SinkDrill(f"every broker is killed at the stage {stage}", killed_brokers(stage))
        for stage in IN_COMMIT
    },
}


@dataclass
class SinkDrillResult:
    name: str
    brokers: int
    seconds: float
    problems: list[str] = field(default_factory=list)
