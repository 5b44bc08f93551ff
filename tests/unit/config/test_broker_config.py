"""What one broker was told: precedence, names, listeners."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig, environment_name
from headrace.config.listeners import ConfiguredListener
from headrace.config.setting import ConfigError

STOCK_KRAFT_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def test_defaults() -> None:
    """R-TOP-5: explicit creation; R-OPS-5: loopback."""
    config = BrokerConfig.build()
    assert config.listeners == (ConfiguredListener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == config.listeners
    assert config.inter_broker_listener == config.listeners[0]
    assert config.node_id == 1
    assert config.log_dirs == ("data",)
    assert config.rack is None
    assert config.boolean("auto.create.topics.enable") is False
    assert config.integer("message.max.bytes") == 1048588
    assert config.warnings == ()


def test_flag_wins_over_environment_wins_over_file() -> None:
    file = {"num.partitions": "1", "log.retention.hours": "1", "broker.rack": "file"}
    environment = {"HEADRACE_NUM_PARTITIONS": "2", "HEADRACE_LOG_RETENTION_HOURS": "2", "PATH": "/bin"}
    config = BrokerConfig.build(file, environment, {"num.partitions": "3"})
    assert config.integer("num.partitions") == 3
    assert config.integer("log.retention.hours") == 2
    assert config.rack == "file"
    assert [config.sources[name] for name in ("num.partitions", "log.retention.hours", "broker.rack")] == [
        "flag",
        "environment",
        "file",
    ]
    assert config.given("num.partitions") == "3"
    assert config.given("default.replication.factor") is None


def test_our_own_settings_do_not_repeat_the_prefix_in_the_environment() -> None:
    assert environment_name("headrace.allow.insecure") == "HEADRACE_ALLOW_INSECURE"
    config = BrokerConfig.build({"listeners": "PLAINTEXT://:9092"}, {"HEADRACE_ALLOW_INSECURE": "true"})
    assert config.boolean("headrace.allow.insecure")


def test_a_strange_environment_variable_only_warns() -> None:
    """Container platforms set HEADRACE_PORT and the like for a service of that name."""
    config = BrokerConfig.build(environment={"HEADRACE_PORT": "tcp://10.0.0.1:9092"})
    assert config.warnings == ("The environment variable HEADRACE_PORT is not a known setting; it is ignored.",)


def test_a_name_nobody_knows_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"num\.partition; did you mean num\.partitions\?"):
        BrokerConfig.build({"num.partition": "1"})


@pytest.mark.parametrize("name", ["num.io.threads", "zookeeper.clientCnxnSocket", "listener.name.plaintext.other"])
def test_a_name_that_only_kafka_uses_warns_once(name: str) -> None:
    config = BrokerConfig.build({name: "8"}, flags={name: "9"})
    assert config.warnings == (f"{name} is a Kafka setting that Headrace does not use; it is ignored.",)


def test_a_setting_that_has_no_effect_yet_says_so() -> None:
    config = BrokerConfig.build({"log.preallocate": "true", "log.segment.bytes": "2000000"})
    assert config.warnings == ("log.preallocate is accepted, but has no effect in this version.",)


def test_a_wrong_value_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig.build({"num.partitions": "0"})


def test_a_stock_kraft_file_starts_when_its_open_listener_is_accepted() -> None:
    config = BrokerConfig.build(STOCK_KRAFT_FILE, flags={"headrace.allow.insecure": "true"})
    assert config.listeners == (ConfiguredListener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == (ConfiguredListener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert any("CONTROLLER://:9093" in warning for warning in config.warnings)


def test_an_open_listener_is_refused_with_the_two_ways_out() -> None:
    """R-OPS-5."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.build(STOCK_KRAFT_FILE)
    assert "SASL_SSL with SCRAM" in str(caught.value)
    assert "--insecure" in str(caught.value)
    assert "headrace.allow.insecure=true" in str(caught.value)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "10.1.2.3", "example.org", "127.evil.example.org"])
def test_what_counts_as_open(host: str) -> None:
    with pytest.raises(ConfigError, match="without authentication"):
        BrokerConfig.build({"listeners": f"PLAINTEXT://{host}:9092"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_what_counts_as_loopback(host: str) -> None:
    config = BrokerConfig.build({"listeners": f"PLAINTEXT://{host}:0"})
    assert config.listeners[0].host == host.strip("[]")
    assert str(config.listeners[0]) == f"PLAINTEXT://{host}:0"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"listeners": "localhost:9092"}, "name://host:port"),
        ({"listeners": "PLAINTEXT://localhost"}, "name://host:port"),
        ({"listeners": "PLAINTEXT://localhost:http"}, "name://host:port"),
        ({"listeners": "PLAINTEXT://localhost:70000"}, "above 65535"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "brackets"),
        ({"listeners": "PUBLIC://localhost:9092"}, "listener.security.protocol.map does not map"),
        ({"listeners": "PLAINTEXT://localhost:1,PLAINTEXT://localhost:2"}, "listed twice"),
        ({"listeners": ","}, "no listener"),
        ({"listeners": "SSL://localhost:9092"}, "needs a certificate"),
        (
            {"listeners": "A://localhost:1,B://localhost:1", "listener.security.protocol.map": "A:SSL,B:SSL"},
            "same port",
        ),
        ({"listener.security.protocol.map": "A"}, "name:protocol"),
        ({"listener.security.protocol.map": "A:TLS"}, "is not one of"),
        ({"listener.security.protocol.map": "A:SSL,A:SSL"}, "twice"),
        ({"advertised.listeners": "SSL://localhost:9092"}, "not one of the listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "set one"),
        ({"inter.broker.listener.name": "SSL"}, "not one of the listeners"),
        ({"log.dirs": " , "}, "log.dirs is empty"),
        ({"log.dirs": "a,b,a"}, "twice"),
        ({"node.id": "1", "broker.id": "2"}, "contradict"),
        ({"node.id": "-1"}, "at least 0"),
        ({"group.consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms (45000)"),
        ({"group.consumer.session.timeout.ms": "60001"}, "group.consumer.max.session.timeout.ms (60000)"),
        ({"group.consumer.heartbeat.interval.ms": "4999"}, "group.consumer.min.heartbeat.interval.ms (5000)"),
        ({"group.consumer.assignment.interval.ms": "15001"}, "group.consumer.max.assignment.interval.ms (15000)"),
        ({"group.consumer.max.session.timeout.ms": "1"}, "greater than or equal to"),
        (
            {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "45000"},
            "must be less than group.consumer.session.timeout.ms",
        ),
    ],
)
def test_mistakes_are_explained(settings: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.build(settings)
    assert part in str(caught.value)


def test_named_listeners() -> None:
    config = BrokerConfig.build(
        {
            "listeners": "INSIDE://127.0.0.1:9092, outside://127.0.0.1:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "advertised.listeners": "OUTSIDE://broker.example.org:443",
            "inter.broker.listener.name": "inside",
        }
    )
    assert [listener.name for listener in config.listeners] == ["INSIDE", "OUTSIDE"]
    assert [str(listener) for listener in config.advertised_listeners] == [
        "INSIDE://127.0.0.1:9092",
        "OUTSIDE://broker.example.org:443",
    ]
    assert config.inter_broker_listener.name == "INSIDE"


@pytest.mark.parametrize(
    ("settings", "node_id"),
    [
        ({}, 1),
        ({"broker.id": "5"}, 5),
        ({"node.id": "0"}, 0),
        ({"broker.id": "-1"}, 1),
        ({"node.id": "3", "broker.id": "3"}, 3),
    ],
)
def test_node_id(settings: dict[str, str], node_id: int) -> None:
    assert BrokerConfig.build(settings).node_id == node_id


def test_a_listener_on_every_interface_is_advertised_under_the_hosts_name() -> None:
    flags = {"headrace.allow.insecure": "true", "listeners": "PLAINTEXT://:9092"}
    config = BrokerConfig.build(flags=flags, host_name=lambda: "broker.example.org")
    assert str(config.advertised_listeners[0]) == "PLAINTEXT://broker.example.org:9092"
    assert config.listeners[0].host == ""
    with pytest.raises(ConfigError, match="set one"):
        BrokerConfig.build(flags=flags | {"listeners": "PLAINTEXT://0.0.0.0:9092"})


def test_log_dirs_win_over_log_dir() -> None:
    assert BrokerConfig.build({"log.dir": "a"}).log_dirs == ("a",)
    assert BrokerConfig.build({"log.dir": "a", "log.dirs": "b, c"}).log_dirs == ("b", "c")


def test_a_mistake_in_the_listeners_is_told_with_the_others_and_its_place() -> None:
    file = {"num.partitions": "many", "listeners": "PLAINTEXT://:70000"}
    places = {"num.partitions": "s.properties, line 1", "listeners": "s.properties, line 2"}
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.build(file, places=places)
    first, second = str(refused.value).split("\n")
    assert first.startswith("s.properties, line 1: Invalid value 'many'")
    assert second == "s.properties, line 2: listeners: 'PLAINTEXT://:70000' has a port above 65535"
    with pytest.raises(ConfigError, match=r"^listeners: "):
        BrokerConfig.build({"listeners": "PLAINTEXT://:70000"})


def test_mistakes_of_several_settings_together_are_told_at_once_in_the_order_of_the_file() -> None:
    file = {
        "log.dirs": "a,a",
        "listeners": "PLAINTEXT://10.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
        "node.id": "1",
        "advertised.listeners": "PLAINTEXT://0.0.0.0:9092",
        "num.partitions": "many",
        "sasl.enabled.mechanisms": "GSSAPI",
        "broker.id": "2",
        "headrace.admin.auth": "token",
    }
    places = {name: f"s.properties, line {number}" for number, name in enumerate(file, 1)}
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.build(file, places=places)
    told = [line.partition(", line ")[2] for line in str(refused.value).split("\n")]
    starts = (
        "1: log.dirs lists a data directory twice",
        "3: node.id=1 and broker.id=2",
        "4: advertised.listeners: ",
        "5: Invalid value 'many'",
        "6: sasl.enabled.mechanisms: GSSAPI is not served",
        "8: headrace.admin.auth=token needs",
    )
    assert [line.startswith(start) for line, start in zip(told, starts, strict=True)] == [True] * 6, told
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.build(file | {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, places=places)
    assert "line 2: listener PLAINTEXT://10.0.0.1:9092 lets everybody" in str(refused.value)
