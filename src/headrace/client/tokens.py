"""Where a client of OAUTHBEARER gets its token: from a file, or from the issuer for its own id and secret.

The settings are those of Kafka's Java client or of librdkafka:

    sasl.oauthbearer.token.endpoint.url             file:///path of a token, or https://... of the issuer
    sasl.oauthbearer.client.credentials.client.id   or sasl.oauthbearer.client.id
    sasl.oauthbearer.client.credentials.client.secret   or sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope
    sasl.oauthbearer.header.urlencode               whether id and secret are encoded first, as RFC 6749 has it
    https.ca.location                               whom to trust to be the issuer; else the system's authorities

or the options clientId, clientSecret, scope and ssl.* of sasl.jaas.config. The issuer is asked by the client
credentials grant (RFC 6749, 4.4). A token is got anew at every login.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from urllib.parse import quote_plus, urlencode, urlsplit

from headrace.config.oauth_settings import TokenEndpoint
from headrace.env.http import fetch
from headrace.env.tls import client_context
from headrace.model.errors import ErrorCode, KafkaError

FETCH_SECONDS = 10.0
MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Called, it gets a token. It blocks, and raises SASL_AUTHENTICATION_FAILED when there is none to be had."""

    endpoint: TokenEndpoint

    def __call__(self) -> str:
        url = self.endpoint.url
        if urlsplit(url).scheme == "file":
            return _from_file(url)
        return _from_issuer(self.endpoint)


def _from_file(url: str) -> str:
    try:
        return _checked(fetch(url, FETCH_SECONDS, MAX_BYTES).decode("ascii").strip(), url)
    except (OSError, ValueError) as error:
        raise _failed(f"no token in {url}: {error}") from None


def _from_issuer(endpoint: TokenEndpoint) -> str:
    form = {"grant_type": "client_credentials", **({"scope": endpoint.scope} if endpoint.scope else {})}
    parts = [endpoint.client, endpoint.secret]
    login = base64.b64encode(":".join(map(quote_plus, parts) if endpoint.encode else parts).encode()).decode()
    try:
        said = fetch(
            endpoint.url,
            FETCH_SECONDS,
            MAX_BYTES,
            form=urlencode(form).encode(),
            headers={"Authorization": f"Basic {login}", "Accept": "application/json"},
            tls=None if endpoint.tls is None else client_context(endpoint.tls),
        )
        answer = json.loads(said)
    except (OSError, ValueError, RecursionError) as error:
        raise _failed(f"{endpoint.url} gives no token: {error}") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    return _checked(token if isinstance(token, str) else "", endpoint.url)


def _checked(token: str, url: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _failed(f"what {url} holds is not a token")
    return token


def _failed(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Cannot log in: {why}.")
