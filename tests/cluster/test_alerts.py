"""A real Prometheus with our alerts: they fire when brokers go, and end when they are back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.testing.process import die_with_parent, free_port
from headrace.testing.process_cluster import ProcessCluster, wait_until

ALERTS = Path(__file__).resolve().parents[2] / "docs" / "dashboards" / "alerts.yml"
ONE_BROKER_LESS = {"HeadraceBrokerMissing", "HeadraceUnderReplicated", "HeadraceAtMinIsr"}
TWO_BROKERS_LESS = {"HeadraceBrokerMissing", "HeadraceUnderReplicated", "HeadraceUnderMinIsr"}
OF_BROKERS = ONE_BROKER_LESS | TWO_BROKERS_LESS | {"HeadracePartitionsOffline", "HeadraceNoController"}
PATIENCE_SECONDS = 180.0


def impatient(rules: str) -> str:
    """The alerts as they are, but for how long something must last."""
    return re.sub(r"for: \w+", "for: 2s", rules).replace("[6h:1m]", "[10m:1s]")


@contextmanager
def prometheus(directory: Path, admin_ports: list[int]) -> Iterator[Callable[[str], Any]]:
    """Gives what asks it."""
    port = free_port()
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    targets = [{"targets": [f"127.0.0.1:{one}" for one in admin_ports]}]
    scrapes = [{"job_name": "headrace", "static_configs": targets}]
    (directory / "alerts.yml").write_text(impatient(ALERTS.read_text()))
    config = directory / "prometheus.yml"
    config.write_text(json.dumps({"global": every, "rule_files": ["alerts.yml"], "scrape_configs": scrapes}))
    flags = [f"--storage.tsdb.path={directory}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "prometheus.log").open("w") as log:
        server = subprocess.Popen(
            ["prometheus", f"--config.file={config}", *flags], stderr=log, preexec_fn=die_with_parent()
        )

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=60) as response:
            return json.load(response)["data"]

    def sees_all() -> bool:
        try:
            seen = [target["health"] for target in ask("targets")["activeTargets"]]
        except OSError:
            return False
        return seen == ["up"] * len(admin_ports)

    try:
        wait_until(sees_all, "Prometheus sees every broker", PATIENCE_SECONDS)
        yield ask
    finally:
        server.kill()
        server.wait()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus (apt-get install prometheus)")
def test_alerts_fire_when_brokers_go_and_end_when_they_are_back(tmp_path: Path) -> None:
    cluster = ProcessCluster(3)
    ports = [free_port() for _ in cluster.brokers]
    for broker, port in zip(cluster.brokers.values(), ports, strict=True):
        broker.overrides["headrace.admin.port"] = str(port)
    with cluster, prometheus(tmp_path, ports) as ask:
        topic = NewTopic("orders", 6, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([topic])["orders"].result(60)

        def until_firing(expected: set[str]) -> None:
            def fires() -> bool:
                alerts = ask("alerts")["alerts"]
                firing = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
                return firing & OF_BROKERS == expected

            wait_until(fires, f"firing: {sorted(expected) or 'nothing'}", PATIENCE_SECONDS)

        until_firing(set())
        cluster.brokers[3].kill()
        until_firing(ONE_BROKER_LESS)
        assert cluster.brokers[2].terminate() == 0
        until_firing(TWO_BROKERS_LESS)
        cluster.start()
        until_firing(set())
        assert all(rule["health"] == "ok" for group in ask("rules")["groups"] for rule in group["rules"])
