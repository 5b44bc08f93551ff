"""Two versions of Headrace side by side: an upgrade one by one, and an older version that is refused after it."""

from __future__ import annotations

from headrace.testing.process_cluster import ClusterBroker, ProcessCluster, wait_until

NEWER = ("headrace.testing.drills.launcher", "newer-format")
RAISED = "The format of the cluster's metadata is now at level 2"


def upgrade(broker: ClusterBroker) -> None:
    assert broker.terminate() == 0
    broker._launcher = NEWER
    broker.start()


def test_the_level_rises_with_the_last_broker_and_an_older_one_is_refused() -> None:
    with ProcessCluster(2) as cluster:
        first, second = cluster.brokers.values()
        upgrade(first)
        assert all(RAISED not in broker.log_text() for broker in (first, second))
        upgrade(second)
        wait_until(lambda: any(RAISED in broker.log_text() for broker in (first, second)), "the level is raised")
        assert first.terminate() == 0
        first._launcher = ("headrace",)
        first.launch()
        assert first.wait(60) != 0
        assert "has format level 2, but this version of Headrace reads only up to 1" in first.log_text()
        first._launcher = NEWER
        first.start()
