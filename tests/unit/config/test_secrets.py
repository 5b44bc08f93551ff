"""Secrets are refused on a command line, wherever they belong."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import ConfigError

SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "sasl.enabled.mechanisms": "PLAIN"}
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        (JAAS, LOGIN, SASL),
        ("ssl.keystore.password", "x", {}),
        ("listener.name.plaintext.ssl.key.password", "x", {}),
        ("headrace.zookeeper.digest", "user:x", {}),
    ],
)
def test_a_secret_is_taken_from_a_file_only(name: str, value: str, others: dict[str, str]) -> None:
    assert BrokerConfig.build({**others, name: value})
    with pytest.raises(ConfigError, match=f"{name} is a secret.*settings file"):
        BrokerConfig.build(others, flags={name: value})
