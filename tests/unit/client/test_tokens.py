"""Tokens for a client: from a file, and from an issuer by the client credentials grant."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import pathname2url

import jwt
import pytest

import headrace.client.tokens as module
from headrace.client.tokens import KEPT_PART, KeptTokens, TokenSource
from headrace.config.oauth_settings import token_endpoint
from headrace.config.setting import ConfigError
from headrace.env.certificates import make_authority, make_certificate
from headrace.model.errors import ErrorCode, KafkaError
from tests.compat.issuer import CLIENT, SECRET, Issuer, IssuerServer

URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
KEY = "sasl.oauthbearer.client.credentials.client.secret"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IssuerServer]:
    made = IssuerServer(Issuer(tmp_path))
    yield made
    made.close()


def token(settings: Mapping[str, str], **jaas: str) -> str:
    source: TokenSource = pickle.loads(pickle.dumps(TokenSource(token_endpoint(settings.get, jaas))))
    return source()  # as a task of Spark has it


def subject(text: str) -> str:
    return str(jwt.decode(text, options={"verify_signature": False})["sub"])


def test_names_of_java_and_of_librdkafka(server: IssuerServer) -> None:
    url = {URL: server.url("token")}
    assert subject(token({**url, ID: CLIENT, KEY: SECRET})) == "alice"
    librdkafka = {"sasl.oauthbearer.client.id": CLIENT, "sasl.oauthbearer.client.secret": SECRET}
    assert subject(token({**url, **librdkafka, "sasl.oauthbearer.scope": "orders read"})) == "alice"
    assert subject(token(url, clientId=CLIENT, clientSecret=SECRET, scope="all")) == "alice"
    encoded = {"sasl.oauthbearer.header.urlencode": "true"}
    assert subject(token({**url, **encoded, ID: CLIENT, KEY: SECRET})) == "alice"
    assert server.scopes == [None, "orders read", "all", None]


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("aaa.bbb.ccc\n")
    assert token({URL: f"file://{pathname2url(str(path))}"}) == "aaa.bbb.ccc"
    path.write_text("not a token")
    for url in (f"file://{pathname2url(str(path))}", f"file://{tmp_path}/nothing"):
        with pytest.raises(KafkaError) as caught:
            token({URL: url})
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_what_goes_wrong_is_said_without_the_secret(server: IssuerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(settings: Mapping[str, str]) -> str:
        with pytest.raises(KafkaError) as caught:
            token(settings)
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert SECRET not in str(caught.value)
        return str(caught.value)

    good = {URL: server.url("token"), ID: CLIENT, KEY: SECRET}
    assert "401" in said({**good, ID: "somebody"})
    assert "400" in said({**good, URL: server.url("nothing")})
    monkeypatch.setattr(module, "FETCH_SECONDS", 0.1)
    server.go.clear()
    assert "timed out" in said(good)
    server.close()
    assert "refused" in said(good)
    assert SECRET not in repr(token_endpoint(good.get, {}))
    with pytest.raises(ConfigError, match=r"client\.secret are missing"):
        token({URL: server.url("token"), ID: CLIENT})
    with pytest.raises(ConfigError, match="must be file:///path or https"):
        token({})


def test_an_issuer_with_an_authority_of_its_own(tmp_path: Path) -> None:
    authority = make_authority("issuer")
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "server.pem").write_text(make_certificate(authority, "issuer", ("127.0.0.1",)).store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = IssuerServer(Issuer(tmp_path), context)
    try:
        good = {URL: server.url("token"), ID: CLIENT, KEY: SECRET}
        assert subject(token({**good, "https.ca.location": str(tmp_path / "ca.pem")})) == "alice"
        java = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
        assert subject(token(good, **java)) == "alice"
        with pytest.raises(KafkaError, match="certificate verify failed"):
            token(good)
    finally:
        server.close()


def test_a_broker_keeps_its_token_until_shortly_before_it_expires(server: IssuerServer) -> None:
    settings = {URL: server.url("token"), ID: CLIENT, KEY: SECRET}
    now = [100.0]
    tokens = KeptTokens(TokenSource(token_endpoint(settings.get, {})), lambda: now[0])
    first = tokens()
    now[0] += 600 * KEPT_PART - 1
    assert tokens() == first
    assert server.requests == ["/token"]
    now[0] += 2
    tokens()
    tokens()
    assert len(server.requests) == 2
    tokens.forget()
    tokens()
    assert len(server.requests) == 3


@pytest.mark.parametrize("said", [None, 0, -5, "soon", [], 1e300, float("nan")])
def test_a_token_of_unknown_length_is_not_kept(server: IssuerServer, said: object) -> None:
    server.expires_in = said
    settings = {URL: server.url("token"), ID: CLIENT, KEY: SECRET}
    tokens = KeptTokens(TokenSource(token_endpoint(settings.get, {})), lambda: 1.0)
    tokens()
    tokens()
    assert len(server.requests) == 2


def test_a_length_may_be_a_text_and_a_file_is_read_every_time(server: IssuerServer, tmp_path: Path) -> None:
    server.expires_in = "600"
    settings = {URL: server.url("token"), ID: CLIENT, KEY: SECRET}
    tokens = KeptTokens(TokenSource(token_endpoint(settings.get, {})), lambda: 1.0)
    assert tokens() == tokens()
    assert len(server.requests) == 1
    path = tmp_path / "token"
    path.write_text("first")
    kept = KeptTokens(TokenSource(token_endpoint({URL: f"file://{pathname2url(str(path))}"}.get, {})), lambda: 1.0)
    assert kept() == "first"
    path.write_text("second")
    assert kept() == "second"
