"""SASL in the settings: Kafka's texts mean the same, and what cannot be done says what to write instead."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.sasl_config import parse_jaas
from headrace.config.setting import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OWN = f'{SCRAM} required username="admin" password="p;w\\"d";'
FILE = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": OWN,
}


def refused(**more: str | None) -> str:
    file = dict(FILE)
    for name, value in more.items():
        if value is None:
            file.pop(name.replace("__", "."), None)
        else:
            file[name.replace("__", ".")] = value
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.build(file)
    return str(caught.value)


def test_a_listener_with_scram() -> None:
    config = BrokerConfig.build(FILE)
    assert config.sasl["SASL_PLAINTEXT"].mechanisms == ("SCRAM-SHA-512",)
    assert config.own_login is not None
    assert (config.own_login.user, config.own_login.password) == ("admin", 'p;w"d')
    assert config.warnings == ()
    assert "p;w" not in repr(config.sasl) + repr(config.own_login)


def test_a_listener_may_differ_from_the_others() -> None:
    config = BrokerConfig.build(
        FILE
        | {
            "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "IN",
            "listener.name.out.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.out.plain.sasl.jaas.config": f'{PLAIN} required user_alice="a" user_bob=b;',
        }
    )
    assert set(config.sasl) == {"OUT"}
    assert config.sasl["OUT"].passwords == {"alice": "a", "bob": "b"}
    assert config.own_login is None


def test_scram_may_be_open_to_a_network_and_plain_may_not() -> None:
    open_file = FILE | {"listeners": "SASL_PLAINTEXT://:9092"}
    assert BrokerConfig.build(open_file).sasl
    plain = open_file | {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required username=a password=a user_a=a;",
    }
    with pytest.raises(ConfigError, match="unencrypted"):
        BrokerConfig.build(plain)
    assert BrokerConfig.build(plain | {"headrace.allow.insecure": "true"}).sasl


def test_what_is_missing_is_said() -> None:
    assert "sasl.enabled.mechanisms" in refused(sasl__enabled__mechanisms=None)
    assert "GSSAPI is not served" in refused(sasl__enabled__mechanisms="GSSAPI")
    assert "user_alice" in refused(sasl__enabled__mechanisms="PLAIN")
    key = "listener__name__sasl_plaintext__scram-sha-512__sasl__jaas__config"
    assert "inter.broker.listener.name" in refused(**{key: None})


def test_passwords_are_not_for_the_command_line() -> None:
    with pytest.raises(ConfigError, match="command line"):
        BrokerConfig.build(FILE, {}, {"listener.name.x.plain.sasl.jaas.config": OWN})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("com.example.MyLogin required secret=hush;", "Java classes cannot be loaded"),
        (f"{PLAIN} required secret=hush;", "not the login module of SCRAM-SHA-512"),
        (f"{SCRAM} secret=hush;", "the form is"),
        (f"{SCRAM} required secret=hush", "the form is"),
        (f'{SCRAM} required secret="hush;', "option 1"),
        (f"{SCRAM} required good=1 hush;", "option 2"),
    ],
)
def test_texts_that_are_refused_without_showing_them(text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas("key", text, "SCRAM-SHA-512")
    assert part in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("text", ["required;", "required ;", "  required\t;", "required\n ;"])
def test_a_text_without_options(text: str) -> None:
    """As people write it for SCRAM, whose users are elsewhere, and for OAUTHBEARER."""
    assert parse_jaas("key", f"{SCRAM} {text}", "SCRAM-SHA-512") == {}


def test_tokens_that_others_can_make_are_warned_of() -> None:
    def warned(**changes: str) -> str:
        tokens = {
            "listeners": "SASL_SSL://10.0.0.1:9092",
            "ssl.keystore.location": "x.pem",
            "ssl.keystore.type": "PEM",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
            "sasl.oauthbearer.expected.audience": "headrace",
            "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
            "sasl.oauthbearer.client.credentials.client.id": "broker",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
        }
        changed = {f"sasl.oauthbearer.{name.replace('_', '.')}": text for name, text in changes.items()}
        found = "\n".join(BrokerConfig.build(tokens | changed).warnings)
        assert "hush" not in found
        return found

    assert warned() == ""
    assert "accepts every token" in warned(expected_audience="")
    assert warned(expected_audience="", expected_issuer="https://issuer.example") == ""
    assert "can log in as anybody" in warned(jwks_endpoint_url="http://issuer.example/keys")
    assert warned(jwks_endpoint_url="http://127.0.0.1:80/keys") == ""
    assert "secret is sent unencrypted" in warned(token_endpoint_url="http://issuer.example/token")
