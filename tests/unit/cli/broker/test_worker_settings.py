"""What each of several workers is told, and what they cannot share."""

from __future__ import annotations

import pytest

from headrace.cli.broker.worker_settings import wanted_ports, worker_settings
from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import ConfigError


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.build(
        {name.replace("_", "."): text for name, text in settings.items()}, {}, {}, lambda: "h"
    )


def test_ids_and_ports_count_up() -> None:
    first, second, third = worker_settings(config(), 3, "box")
    assert first == {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "broker.rack": "box",
        "default.replication.factor": "3",
    }
    assert second["node.id"] == "2"
    assert second["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert third["listeners"] == "PLAINTEXT://127.0.0.1:9094"


def test_what_is_set_counts() -> None:
    given = config(
        broker_id="5",
        listeners="PLAINTEXT://[::1]:9092,PLAINTEXT2://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,PLAINTEXT2:PLAINTEXT",
        advertised_listeners="PLAINTEXT://log.example:19092",
        headrace_admin_port="7000",
        broker_rack="r1",
        default_replication_factor="2",
    )
    assert worker_settings(given, 3, "box")[2] == {
        "node.id": "7",
        "broker.id": "7",
        "listeners": "PLAINTEXT://[::1]:9094,PLAINTEXT2://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://log.example:19094,PLAINTEXT2://127.0.0.1:0",
        "headrace.admin.port": "7002",
    }
    assert list(wanted_ports(given, 2)) == [
        ("::1", 9092, 5),
        ("127.0.0.1", 7000, 5),
        ("::1", 9093, 6),
        ("127.0.0.1", 7001, 6),
    ]


def test_two_workers_keep_the_default_of_one_replica() -> None:
    assert "default.replication.factor" not in worker_settings(config(), 2, "box")[0]


def test_free_ports_stay_free_ports() -> None:
    given = config(listeners="PLAINTEXT://127.0.0.1:0", headrace_admin_port="0")
    for settings in worker_settings(given, 2, "box"):
        assert settings["listeners"] == "PLAINTEXT://127.0.0.1:0"
        assert "headrace.admin.port" not in settings
    assert not list(wanted_ports(given, 2))


@pytest.mark.parametrize(
    ("listeners", "problem"),
    [
        ("PLAINTEXT://127.0.0.1:65534", "leaves no room for 3 workers"),
        ("PLAINTEXT://127.0.0.1:9092,PLAINTEXT2://127.0.0.1:9094", "too close for 3 workers"),
    ],
)
def test_ports_that_do_not_fit(listeners: str, problem: str) -> None:
    given = config(listeners=listeners, listener_security_protocol_map="PLAINTEXT:PLAINTEXT,PLAINTEXT2:PLAINTEXT")
    with pytest.raises(ConfigError, match=problem):
        worker_settings(given, 3, "box")
