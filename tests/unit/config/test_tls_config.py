"""Settings of TLS: what a stock Kafka file means, what is refused and what to write instead."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.cipher_suites import openssl_name
from headrace.config.principal_rules import PrincipalRules, distinguished_name
from headrace.config.setting import ConfigError
from headrace.config.tls_config import client_material
from headrace.model.tls import JKS, PEM, TLS_1_2, TLS_1_3

STOCK = {
    "listeners": "SASL_SSL://:9093,INTERNAL://127.0.0.1:9094",
    "advertised.listeners": "SASL_SSL://kafka.example.org:9093",
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,INTERNAL:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "ssl.keystore.location": "/etc/kafka/kafka.keystore.jks",
    "ssl.keystore.password": "changeit",
    "ssl.key.password": "changeit",
    "ssl.truststore.location": "/etc/kafka/kafka.truststore.jks",
    "ssl.truststore.password": "changeit",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "listener.name.internal.ssl.keystore.type": "PEM",
    "listener.name.internal.ssl.keystore.location": "/etc/kafka/internal.pem",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def test_a_stock_file_means_what_it_means_in_kafka() -> None:
    config = BrokerConfig.build(STOCK)
    assert not config.warnings
    clients, internal = config.tls["SASL_SSL"], config.tls["INTERNAL"]
    assert clients.material.own is not None
    assert internal.material.own is not None
    assert (clients.material.own.type, clients.material.own.location) == (JKS, "/etc/kafka/kafka.keystore.jks")
    assert (internal.material.own.type, internal.material.own.location) == (PEM, "/etc/kafka/internal.pem")
    # On a listener with SASL only what is said of that listener counts.
    assert clients.material.client_auth == "none"
    assert internal.material.client_auth == "required"
    assert (clients.names_principals, internal.names_principals) == (False, True)
    assert config.inter_broker_listener.name == "INTERNAL"
    own = BrokerConfig.build({**STOCK, "listener.name.sasl_ssl.ssl.client.auth": "requested"})
    assert own.tls["SASL_SSL"].material.client_auth == "requested"
    assert "changeit" not in repr(config.tls)


def refused(**changes: str | None) -> str:
    texts = {**STOCK, **{name.replace("__", "."): text for name, text in changes.items()}}
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.build({name: text for name, text in texts.items() if text is not None})
    return str(caught.value)


def test_the_class_that_kafka_has_itself_may_be_named() -> None:
    own = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    built = BrokerConfig.build({**STOCK, "principal.builder.class": own, "create.topic.policy.class.name": ""})
    assert any("principal.builder.class" in warning for warning in built.warnings)


def test_what_is_wrong_is_said_with_what_to_write() -> None:
    assert "headrace tls dev" in refused(ssl__keystore__location=None)
    assert "ssl.truststore.location=FILE" in refused(ssl__truststore__location=None)
    assert "TLSv1.1 is not secure" in refused(ssl__enabled__protocols="TLSv1.1,TLSv1.2")
    assert "is not one of PEM, PKCS12" in refused(ssl__keystore__type="BCFKS")
    assert "Java classes" in refused(ssl__engine__factory__class="com.example.Factory")
    assert "Java classes" in refused(ssl__provider="BC")
    assert "ssl.principal.mapping.rules" in refused(principal__builder__class="com.example.Names")
    assert "Java classes" in refused(listener__name__internal__principal__builder__class="com.example.Names")
    assert "headrace acl" in refused(create__topic__policy__class__name="com.example.Policy")
    assert "headrace acl" in refused(alter__config__policy__class__name="com.example.Policy")
    assert "headrace quota" in refused(client__quota__callback__class="com.example.Quotas")
    assert "required, requested, none" in refused(listener__name__internal__ssl__client__auth="yes")
    assert "cannot be combined" in refused(ssl__keystore__key="x", ssl__keystore__certificate__chain="y")
    assert "did you mean ssl.keystore.location" in refused(listener__name__internal__ssl__keystor__location="x")
    assert "not a cipher suite" in refused(ssl__cipher__suites="the best")
    assert "cannot be combined" in refused(security__inter__broker__protocol="SSL")
    assert "not https" in refused(ssl__endpoint__identification__algorithm="ldap")
    assert "RULE:pattern/replacement/" in refused(ssl__principal__mapping__rules="RULE:x")
    with pytest.raises(ConfigError, match="command line"):
        BrokerConfig.build(STOCK, {}, {"listener.name.internal.ssl.keystore.password": "secret"})


def test_an_open_listener_needs_authentication() -> None:
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "x.pem", "ssl.truststore.location": "x.pem"}
    network = {"listeners": "SSL://0.0.0.0:9093", "advertised.listeners": "SSL://here:9093", **pem}
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth=required"):
        BrokerConfig.build(network)
    with pytest.raises(ConfigError, match="without authentication"):
        BrokerConfig.build({**network, "ssl.client.auth": "requested"})
    assert BrokerConfig.build({**network, "ssl.client.auth": "required"}).tls
    assert BrokerConfig.build({**network, "headrace.allow.insecure": "true"}).tls
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username=b password=p user_b=p;"
    sasl = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_ssl.plain.sasl.jaas.config": plain}
    over_tls = {**pem, **sasl, "listeners": "SASL_SSL://10.0.0.1:9093"}
    assert BrokerConfig.build(over_tls).sasl, "passwords of PLAIN are not in clear over TLS"


def test_the_listener_between_brokers_by_its_protocol() -> None:
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "x.pem"}
    two = {**pem, "listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2"}
    assert BrokerConfig.build(two).inter_broker_listener.name == "PLAINTEXT"
    assert BrokerConfig.build({**two, "security.inter.broker.protocol": "SSL"}).inter_broker_listener.name == "SSL"
    with pytest.raises(ConfigError, match="none of the listeners"):
        BrokerConfig.build({**two, "security.inter.broker.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert openssl_name("ssl.cipher.suites", java) == openssl


def test_cipher_suites_choose_the_version() -> None:
    newer = client_material({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}.get)
    assert (newer.minimum, newer.maximum, newer.ciphers) == (TLS_1_3, TLS_1_3, "")
    older = client_material({"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"}.get)
    assert (older.minimum, older.maximum) == (TLS_1_2, TLS_1_2)
    with pytest.raises(ConfigError, match="no TLS version in common"):
        client_material({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"}.get)


def test_clients_may_use_the_names_of_librdkafka() -> None:
    material = client_material(
        {
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": "me.pem",
            "ssl.key.location": "me.key",
            "ssl.endpoint.identification.algorithm": "none",
        }.get
    )
    assert material.files == ("me.pem", "me.key", "ca.pem")
    assert material.verify
    assert not material.verify_host
    assert client_material(lambda name: None).verify_host
    assert not client_material({"enable.ssl.certificate.verification": "false"}.get).verify


ALICE = ((("countryName", "DE"),), (("organizationName", "Acme, Inc."),), (("commonName", "Alice"),))


def test_names_are_written_as_java_does() -> None:
    assert distinguished_name(ALICE) == r"CN=Alice,O=Acme\, Inc.,C=DE"
    with_mail = (*ALICE, (("emailAddress", "a@b.c"),))
    assert distinguished_name(with_mail).startswith("1.2.840.113549.1.9.1=#1605614062")
    assert distinguished_name(((("commonName", "a"), ("userId", "b")),)) == "CN=a+UID=b"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (" #x ", r"\ \#x\ "),
        ("  a  b  ", r"\ \ a  b\ \ "),
        (" ", r"\ "),
        ("a=b", r"a\=b"),
        ("a#b", r"a\#b"),
        ('+"\\<>;,', r"\+\"\\\<\>\;\,"),
        ("O=x,CN=admin", r"O\=x\,CN\=admin"),
        ("a\nb\u00e9", "a\nb\u00e9"),
    ],
)
def test_what_is_special_in_a_name_is_escaped_as_java_does(value: str, written: str) -> None:
    """Seen from `X500Principal.getName` of Java 17, whose names the rules of a Kafka cluster have."""
    assert distinguished_name(((("commonName", value),),)) == f"CN={written}"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),.*$/$1/", "CN=Alice,O=b", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "CN=Alice,O=b", "alice"),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/U , DEFAULT", "CN=Alice,O=b", "ALICE@B"),
        ("RULE:^OU=.*$/x/,RULE:^CN=([a-z]{1,3}),.*$/$1/", "CN=bob,O=b", "bob"),
        ("RULE:^OU=.*$/x/", "CN=bob,O=b", None),
        (r"RULE:^CN=(.*?)\/x,.*$/$1/", "CN=bob/x,O=b", "bob"),
    ],
)
def test_rules_from_names_to_users(rules: str, name: str, user: str | None) -> None:
    assert PrincipalRules.parse(rules).user(name) == user
