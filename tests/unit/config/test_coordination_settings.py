"""Which store the brokers share, as `zookeeper.connect` says it, and how long their sessions live."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.coordination_settings import parse_zookeeper_connect
from headrace.config.settings import ConfigError
from headrace.metadata.stores import session_timeout, store_path, zookeeper_address


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk:2181", ("zk:2181",), ""),
        ("zk", ("zk:2181",), ""),
        ("a:1, b:2,c:3/kafka", ("a:1", "b:2", "c:3"), "/kafka"),
        ("a:1/one/two/", ("a:1",), "/one/two"),
        ("a:1/", ("a:1",), ""),
        ("[::1]:2182,[::1]", ("[::1]:2182", "[::1]:2181"), ""),
    ],
)
def test_connect_names_servers_and_a_chroot(text: str, servers: tuple[str, ...], chroot: str) -> None:
    assert parse_zookeeper_connect(text) == (servers, chroot)


@pytest.mark.parametrize("text", ["a:x", "a:0", "a:70000", "a:1,", ":2181", "a:1//b", "a:1/../b", "/chroot"])
def test_a_malformed_connect_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        BrokerConfig.build({"zookeeper.connect": text})


def test_without_zookeeper_the_store_is_a_file_of_the_first_directory() -> None:
    config = BrokerConfig.build({"log.dirs": "one,two"})
    assert zookeeper_address(config) is None
    assert store_path(config) == "one/cluster.db"
    assert session_timeout(config) == 6.0


def test_with_zookeeper_there_is_no_file_and_its_own_timeout_wins() -> None:
    config = BrokerConfig.build({"zookeeper.connect": "a:1,b:2/x", "broker.session.timeout.ms": "9000"})
    assert str(zookeeper_address(config)) == "a:1,b:2/x"
    assert store_path(config) is None
    assert session_timeout(config) == 9.0
    own = {"zookeeper.connect": "a:1", "zookeeper.session.timeout.ms": "18000"}
    assert session_timeout(BrokerConfig.build(own)) == 18.0
