"""Topics created and deleted while the controller is killed: what was acknowledged must hold."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from headrace.testing.drills.scene import Scene, repeat
from headrace.testing.drills.workload import QUIET
from headrace.testing.process_cluster import wait_until

DOWN_SECONDS = 1.0
SETTLE_SECONDS = 2.0
REQUEST_SECONDS = 20.0
PREFIX = "churn-"


@dataclass(slots=True)
class TopicChurn:
    """Creates topics in a thread, and deletes every other one. An error leaves a topic unknown."""

    bootstrap: str
    made: set[str] = field(default_factory=set)
    """Acknowledged, and never asked to be deleted."""
    deleted: set[str] = field(default_factory=set)
    unknown: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        number = 0
        while not self._stop.is_set():
            name, number = f"{PREFIX}{number}", number + 1
            try:
                made = admin.create_topics([NewTopic(name, 1, 3)], request_timeout=REQUEST_SECONDS)
                made[name].result()
                if number % 2:
                    self.made.add(name)
                    continue
                admin.delete_topics([name], request_timeout=REQUEST_SECONDS)[name].result()
                self.deleted.add(name)
            except KafkaException:
                self.unknown += 1
                time.sleep(0.1)


def names(bootstrap: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=30).topics)


def controller(bootstrap: str) -> int:
    from confluent_kafka.admin import AdminClient

    return int(AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=30).controller_id)


def kill_controller(scene: Scene, seconds: float) -> None:
    with TopicChurn(scene.cluster.bootstrap) as churn:

        def kill() -> None:
            wait_until(lambda: controller(scene.bootstrap) in scene.brokers, "there is a controller")
            broker = scene.brokers[controller(scene.bootstrap)]
            scene.note_fault(f"kill -9 controller {broker.broker_id}")
            broker.kill()
            time.sleep(DOWN_SECONDS)
            broker.start()
            time.sleep(SETTLE_SECONDS)

        repeat(scene, seconds, kill)
        scene.until_whole()
    wait_until(
        lambda: len({frozenset(names(b.bootstrap)) for b in scene.brokers.values()}) == 1, "one list of topics"
    )
    there = names(scene.bootstrap)
    scene.check(churn.made <= there, f"acknowledged topics are lost: {sorted(churn.made - there)}")
    scene.check(not churn.deleted & there, f"deleted topics are there: {sorted(churn.deleted & there)}")
    scene.check(len(churn.made) > 1, "no topics could be made")
    scene.check_controllers()
    scene.notes.append(f"{len(churn.made)} topics made, {len(churn.deleted)} deleted, {churn.unknown} unknown")
