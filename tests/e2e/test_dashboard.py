"""What a broker exposes keeps to Prometheus' conventions, and the dashboard asks for nothing else (R-OPS-3)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer

from headrace.testing import Broker
from headrace.testing.process import free_port

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "dashboards" / "headrace.json"
ALERTS = DASHBOARD.with_name("alerts.yml")
METRIC = re.compile(r"\b(?:headrace|kafka|process)_[a-z_]+\b")
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\)")
LAST_TO_COME = "headrace_consumergroup_lag_seconds"
"""A broker looks at the lag of groups every now and then."""
ADDED_BY_PROMETHEUS = {"instance"}
EXPORTER_NAMES = {"kafka_consumergroup_lag_sum"}
"""Names of the common Kafka exporter that break a convention; docs/operations.md says so."""


@pytest.fixture(scope="module")
def scraped() -> str:
    """The metrics of a broker with a topic and a group."""
    port = free_port()
    with Broker({"headrace.admin.port": str(port)}) as broker:
        topic = broker.create_topic("watched")
        cluster = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(cluster)
        for number in range(2):
            producer.produce(topic, str(number))
        assert producer.flush(60) == 0
        consumer = Consumer(cluster | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        consumer.commit(message=message, asynchronous=False)
        deadline = time.monotonic() + 60
        while f"\n{LAST_TO_COME}{{" not in (text := scrape(port)) and time.monotonic() < deadline:
            time.sleep(0.1)
        consumer.close()
    return text


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        body: bytes = response.read()
    return body.decode()


@pytest.fixture(scope="module")
def exposed(scraped: str) -> dict[str, set[str]]:
    """The metrics by name, with their labels."""
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", scraped, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def problems(expression: str, exposed: dict[str, set[str]]) -> list[str]:
    names = METRIC.findall(expression)
    found = [f"{name} is not exposed" for name in names if name not in exposed]
    for name, selector in SELECTOR.findall(expression):
        wanted = set(re.findall(r"(\w+)=~?\"", selector))
        missing = wanted - exposed.get(name, set()) - ADDED_BY_PROMETHEUS
        found += [f"{name} has no label {label}" for label in sorted(missing)]
    for labels in GROUPED.findall(expression):
        missing = {label.strip() for label in labels.split(",")} - ADDED_BY_PROMETHEUS
        found += [f"no label {label}" for label in missing if not any(label in exposed.get(n, ()) for n in names)]
    return found if names else ["it names no metric of ours"]


def test_every_expression_can_be_answered(exposed: dict[str, set[str]]) -> None:
    asked = list(expressions(json.loads(DASHBOARD.read_text())))
    assert len(asked) > 20
    assert {one: wrong for one in asked if (wrong := problems(one, exposed))} == {}


def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_every_alert_can_fire_and_says_what_to_do(exposed: dict[str, set[str]]) -> None:
    assert {name: wrong for name, rule in alerts().items() if (wrong := problems(rule["expr"], exposed))} == {}
    for rule in alerts().values():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_takes_the_alerts() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_finds_what_is_not_there(exposed: dict[str, set[str]]) -> None:
    assert problems("rate(headrace_reqests_total[1m])", exposed)
    assert problems('kafka_brokers{topic="x"}', exposed)
    assert problems("sum by (topic) (kafka_brokers)", exposed)
    assert problems("up", exposed)


def convention_problems(text: str) -> set[str]:
    """The rules of `promtool check metrics` that a text of gauges and counters can break."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    helped = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    broken = {name for name in kinds if not helped.get(name)}
    broken |= {name for name, kind in kinds.items() if (kind == "counter") != name.endswith("_total")}
    broken |= {name for name in kinds if re.search(r"_(count|sum|bucket|info|counter|gauge)$|[A-Z:]", name)}
    units = r"_(ms|milliseconds|minutes|hours|kilobytes|kb|megabytes|mb)(_|$)"
    return broken | {name for name in kinds if re.search(units, name)}


def test_names_keep_to_the_conventions(scraped: str) -> None:
    assert convention_problems(scraped) == EXPORTER_NAMES


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_has_nothing_to_say(scraped: str) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=scraped, text=True, capture_output=True)
    complaints = {line.split()[0] for line in (done.stdout + done.stderr).splitlines()}
    assert complaints <= EXPORTER_NAMES, done.stdout + done.stderr


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
