"""Where a client of OAUTHBEARER gets its token: from a file, or from the issuer for its own id and secret.

The settings are those of Kafka's Java client or of librdkafka:

    sasl.oauthbearer.token.endpoint.url             file:///path of a token, or https://... of the issuer
    sasl.oauthbearer.client.credentials.client.id   or sasl.oauthbearer.client.id
    sasl.oauthbearer.client.credentials.client.secret   or sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope

or the options clientId, clientSecret and scope of sasl.jaas.config. The issuer is asked by the client credentials
grant (RFC 6749, 4.4). A token is got anew at every login.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from urllib.parse import quote_plus, urlencode, urlsplit

from headrace.config.setting import ConfigError
from headrace.config.tls_config import Get
from headrace.model.errors import ErrorCode, KafkaError

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
FETCH_SECONDS = 10.0
MAX_BYTES = 64 * 1024


def token_source(get: Get, jaas: Mapping[str, str]) -> Callable[[], str]:
    """What gets a token; it blocks, and raises SASL_AUTHENTICATION_FAILED when there is none to be had."""
    url = get(ENDPOINT) or ""
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return lambda: _from_file(url)
    if scheme not in ("http", "https"):
        raise ConfigError(f"{ENDPOINT} must be file:///path or https://...")
    client = (
        get("sasl.oauthbearer.client.credentials.client.id")
        or get("sasl.oauthbearer.client.id")
        or jaas.get("clientId")
    )
    secret = (
        get("sasl.oauthbearer.client.credentials.client.secret")
        or get("sasl.oauthbearer.client.secret")
        or jaas.get("clientSecret")
    )
    scope = get("sasl.oauthbearer.scope") or jaas.get("scope")
    if not client or not secret:
        raise ConfigError(
            "sasl.oauthbearer.client.credentials.client.id and ...client.secret are missing: "
            f"{url} gives tokens to clients that it knows"
        )
    return lambda: _from_issuer(url, client, secret, scope)


def _from_file(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as file:
            return _checked(file.read(MAX_BYTES).decode("ascii").strip(), url)
    except (OSError, UnicodeDecodeError) as error:
        raise _failed(f"no token in {url}: {error}") from None


def _from_issuer(url: str, client: str, secret: str, scope: str | None) -> str:
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    login = base64.b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()
    request = urllib.request.Request(
        url,
        urlencode(form).encode(),
        {"Authorization": f"Basic {login}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=FETCH_SECONDS) as response:
            answer = json.loads(response.read(MAX_BYTES))
    except (OSError, ValueError) as error:
        raise _failed(f"{url} gives no token: {error}") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    return _checked(token if isinstance(token, str) else "", url)


def _checked(token: str, url: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _failed(f"what {url} holds is not a token")
    return token


def _failed(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Cannot log in: {why}.")
