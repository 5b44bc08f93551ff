"""Apache Kafka's own tools over TLS: each mechanism of SASL, client certificates, rights, and what is refused.

The settings of the broker are the same lines for Headrace and for Apache Kafka (`--broker=kafka`), and so are the
outcomes. Run with `--with-java`, as in `make conformance`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import command_line
from headrace.env.certificates import make_authority, make_certificate
from headrace.testing.apache_kafka import ApacheKafka
from headrace.testing.process import ServerProcess, free_port
from tests.compat.issuer import AUDIENCE, CLIENT, ISSUER, SECRET, Issuer, IssuerServer
from tests.compat.java_tools import ACLS, CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, JavaTools
from tests.compat.secured import MTLS, PASSWORDS, PLAIN_MODULE, SCRAM_MODULE, STORE_PASSWORD, FileBroker

pytestmark = pytest.mark.java

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTH = "OAUTHBEARER"
MECHANISMS = ("PLAIN", *SCRAM, OAUTH)
WAYS = (*MECHANISMS, MTLS)
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"


def server_lines(folder: Path, ports: tuple[int, int], keys: str) -> list[str]:
    """What an operator of Kafka writes about SASL_SSL, SSL with client certificates, and access rules."""
    plain = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    own = f'username="admin" password="{PASSWORDS["admin"]}"'
    sasl = "listener.name.sasl_ssl"
    return [
        f"listeners=SASL_SSL://127.0.0.1:{ports[0]},SSL://127.0.0.1:{ports[1]}",
        "inter.broker.listener.name=SASL_SSL",
        "ssl.keystore.type=PKCS12",
        f"ssl.keystore.location={folder / 'broker.p12'}",
        f"ssl.keystore.password={STORE_PASSWORD}",
        f"ssl.key.password={STORE_PASSWORD}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'ca.pem'}",
        "listener.name.ssl.ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:^CN=(.*?),OU=clients,.*$/$1/L,DEFAULT",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512",
        f"{sasl}.plain.sasl.jaas.config={PLAIN_MODULE} required {plain};",
        f"{sasl}.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required;",
        f"{sasl}.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required {own};",
        f"{sasl}.oauthbearer.sasl.jaas.config={OAUTH_PACKAGE}.OAuthBearerLoginModule required;",
        f"{sasl}.oauthbearer.sasl.server.callback.handler.class={OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"sasl.oauthbearer.jwks.endpoint.url={keys}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin;User:ANONYMOUS",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=2",
    ]


class SecuredKafka(ApacheKafka):
    lines: list[str]

    def properties(self) -> dict[str, str]:
        given = dict(line.split("=", 1) for line in self.lines)
        given["listeners"] += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        given["listener.security.protocol.map"] = "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL"
        return super().properties() | given


class SecuredByJava:
    """A broker of either kind, a Java for the tools, and the files of clients."""

    def __init__(self, folder: Path, kind: str, stack: ExitStack) -> None:
        self.folder = folder
        self.issuer = Issuer(folder)
        self.tokens = stack.enter_context(closing(IssuerServer(self.issuer)))
        self._write_certificates()
        (folder / "run").mkdir()
        self.mtls_port = free_port()
        self.server = self._kafka() if kind == "kafka" else self._headrace()
        stack.enter_context(self.server)
        urls = ",".join((self.tokens.url("token"), f"file://{folder / 'expired.token'}"))
        options = (f"{ALLOWED}.urls={urls}", f"{ALLOWED}.files={folder / 'expired.token'}")
        self.tools = stack.enter_context(JavaTools(*options))

    def _write_certificates(self) -> None:
        authority = make_authority("Headrace test")
        broker = make_certificate(authority, "CN=broker,O=Headrace", ("127.0.0.1", "localhost"))
        (self.folder / "ca.pem").write_text(authority.pem)
        (self.folder / "other-ca.pem").write_text(make_authority("Headrace test").pem)
        (self.folder / "broker.p12").write_bytes(broker.pkcs12(STORE_PASSWORD, authority))
        for user in PASSWORDS:
            shown = make_certificate(authority, f"CN={user.title()},OU=clients,O=Headrace")
            (self.folder / f"{user}.pem").write_text(shown.store)

    def _kafka(self) -> ServerProcess:
        made = SecuredKafka(root=self.folder / "run")
        made.lines = self._lines(made)
        made.jvm_flags = (*made.jvm_flags, f"{ALLOWED}.urls={self.tokens.url('keys')}")
        first = [f'{mechanism}=[name=admin,password="{PASSWORDS["admin"]}"]' for mechanism in SCRAM]
        made.format_flags = (*made.format_flags, *(word for one in first for word in ("--add-scram", one)))
        return made

    def _headrace(self) -> ServerProcess:
        made = FileBroker(root=self.folder / "run")
        made.settings = self.folder / "server.properties"
        lines = [*self._lines(made), f"log.dirs={self.folder / 'data'}", "headrace.admin.port=0"]
        made.settings.write_text("\n".join(lines) + "\n")
        (self.folder / "admin.password").write_text(PASSWORDS["admin"])
        for mechanism in SCRAM:
            words = ["user", "add", "admin", "-m", mechanism, "--offline", str(made.settings)]
            words += ["--password-file", str(self.folder / "admin.password")]
            added = CliRunner().invoke(command_line, words)
            assert added.exit_code == 0, added.output
        return made

    def _lines(self, server: ServerProcess) -> list[str]:
        return server_lines(self.folder, (server.port, self.mtls_port), self.tokens.url("keys"))

    def login(self, way: str, user: str = "alice", **changes: str) -> tuple[str, ...]:
        """The words for a tool: where, and the file with how."""
        name, password = user, changes.pop("password", PASSWORDS[user])
        settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": way}
        if way == MTLS:
            settings = {"security.protocol": "SSL", "ssl.keystore.type": "PEM"}
            settings["ssl.keystore.location"] = str(self.folder / f"{user}.pem")
        elif way == OAUTH:
            settings["sasl.jaas.config"] = f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required;"
            settings["sasl.login.callback.handler.class"] = f"{OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler"
            settings["sasl.oauthbearer.token.endpoint.url"] = self.tokens.url("token")
            settings["sasl.oauthbearer.client.credentials.client.id"] = CLIENT
            settings["sasl.oauthbearer.client.credentials.client.secret"] = SECRET
        else:
            module = PLAIN_MODULE if way == "PLAIN" else SCRAM_MODULE
            settings["sasl.jaas.config"] = f'{module} required username="{name}" password="{password}";'
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.location"] = str(self.folder / "ca.pem")
        settings["default.api.timeout.ms"] = settings["request.timeout.ms"] = "60000"
        settings |= {key.replace("_", "."): value for key, value in changes.items()}
        path = self.folder / "client.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value))
        port = self.mtls_port if settings["security.protocol"] == "SSL" else self.server.port
        return ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(path))

    def set_up(self) -> None:
        """As the administrator, with the tools: users, a topic, and what alice may."""
        tools = self.tools
        for mechanism in SCRAM:
            given = ("--add-config", f"{mechanism}=[password={PASSWORDS['alice']}]")
            entity = ("--entity-type", "users", "--entity-name", "alice")
            tools.must(CONFIGS, *self.login("SCRAM-SHA-512", "admin"), "--alter", *entity, *given)
        admin = self.login(MTLS, "admin")
        for topic in (*(f"orders-{way}" for way in WAYS), "forbidden"):
            tools.must(TOPICS, *admin, "--create", "--topic", topic)
        alice = ("--add", "--allow-principal", "User:alice", "--resource-pattern-type", "prefixed")
        tools.must(ACLS, *admin, *alice, "--operation", "Write", "--operation", "Read", "--topic", "orders-")
        tools.must(ACLS, *admin, *alice, "--operation", "Read", "--group", "g-")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, broker_kind: str) -> Iterator[SecuredByJava]:
    with ExitStack() as stack:
        made = SecuredByJava(tmp_path_factory.mktemp("secured"), broker_kind, stack)
        made.set_up()
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_who_may_write_and_read_does(secured: SecuredByJava, way: str) -> None:
    alice = secured.login(way)
    tools = secured.tools
    topic = ("--topic", f"orders-{way}")
    tools.must(CONSOLE_PRODUCER, *alice, *topic, "--request-timeout-ms", "60000", stdin=f"by {way}\n")
    reading = ("--group", f"g-{way}", "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
    assert f"by {way}\n" in tools.must(CONSOLE_CONSUMER, *alice, *topic, *reading)
    listed = tools.must(TOPICS, *alice, "--list").split()
    assert set(listed) >= {f"orders-{each}" for each in WAYS}
    assert "forbidden" not in listed


@pytest.mark.parametrize("way", WAYS)
def test_what_one_may_not(secured: SecuredByJava, way: str) -> None:
    alice = secured.login(way)
    tools = secured.tools
    said = tools.run(CONSOLE_PRODUCER, *alice, "--topic", "forbidden", stdin="x\n")[1]
    assert "TopicAuthorizationException" in said
    code, said = tools.run(TOPICS, *alice, "--create", "--topic", "another")
    assert code == 1
    assert "TopicAuthorizationException" in said
    code, said = tools.run(CONFIGS, *alice, "--describe", "--entity-type", "brokers", "--entity-default")
    assert code == 1
    assert "ClusterAuthorizationException" in said
    said = tools.run(ACLS, *alice, "--list")[1]
    assert "ClusterAuthorizationException" in said


@pytest.mark.parametrize("way", ["PLAIN", *SCRAM])
def test_a_wrong_password(secured: SecuredByJava, way: str) -> None:
    code, said = secured.tools.run(TOPICS, *secured.login(way, password="guessed"), "--list")
    assert code == 1
    assert "SaslAuthenticationException: Authentication failed" in said


def test_an_expired_token(secured: SecuredByJava) -> None:
    path = secured.folder / "expired.token"
    path.write_text(secured.issuer.token(seconds=-300, iat=1))
    words = secured.login(OAUTH, sasl_oauthbearer_token_endpoint_url=f"file://{path}")
    code, said = secured.tools.run(TOPICS, *words, "--list")
    assert code == 1
    assert "SaslAuthenticationException" in said


@pytest.mark.parametrize("way", ["PLAIN", OAUTH, MTLS])
def test_a_broker_that_is_not_trusted(secured: SecuredByJava, way: str) -> None:
    other = str(secured.folder / "other-ca.pem")
    code, said = secured.tools.run(TOPICS, *secured.login(way, ssl_truststore_location=other), "--list")
    assert code == 1
    assert "SslAuthenticationException: SSL handshake failed" in said


def test_no_certificate(secured: SecuredByJava) -> None:
    words = secured.login(MTLS, ssl_keystore_type="", ssl_keystore_location="")
    code, said = secured.tools.run(TOPICS, *words, "--list")
    assert code == 1
    assert "SslAuthenticationException" in said


def test_a_right_that_is_taken_away(secured: SecuredByJava) -> None:
    """And given: both take effect at once."""
    admin = secured.login(MTLS, "admin")
    allowed = ("--operation", "Describe", "--operation", "DescribeConfigs", "--topic", "forbidden")
    rule = ("--allow-principal", "User:alice", *allowed)
    secured.tools.must(ACLS, *admin, "--add", *rule)
    described = ("--describe", "--topic", "forbidden")
    assert "PartitionCount: 1" in secured.tools.must(TOPICS, *secured.login("SCRAM-SHA-256"), *described)
    secured.tools.must(ACLS, *secured.login(MTLS, "admin"), "--remove", "--force", *rule)
    code, said = secured.tools.run(TOPICS, *secured.login("SCRAM-SHA-256"), *described)
    assert code == 1
    assert "does not exist" in said or "TopicAuthorizationException" in said
