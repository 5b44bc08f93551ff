"""Where a client of OAUTHBEARER gets its token: from a file, or from the issuer for its own id and secret.

The settings are those of Kafka's Java client or of librdkafka:

    sasl.oauthbearer.token.endpoint.url             file:///path of a token, or https://... of the issuer
    sasl.oauthbearer.client.credentials.client.id   or sasl.oauthbearer.client.id
    sasl.oauthbearer.client.credentials.client.secret   or sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope
    sasl.oauthbearer.header.urlencode               whether id and secret are encoded first, as RFC 6749 has it
    https.ca.location                               whom to trust to be the issuer; else the system's authorities

or the options clientId, clientSecret, scope and ssl.* of sasl.jaas.config. The issuer is asked by the client
credentials grant (RFC 6749, 4.4). A client gets a token for every login; a broker, which opens many connections,
keeps the issuer's for most of the time that it is said to be valid.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote_plus, urlencode, urlsplit

from headrace.config.oauth_settings import TokenEndpoint
from headrace.env.http import fetch
from headrace.env.tls import client_context
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.tokens import END_OF_TIME_S

FETCH_SECONDS = 10.0
MAX_BYTES = 64 * 1024
KEPT_PART = 0.8
"""The part of a token's time for which it is used again. It is less than the part of a session after which a
client logs in again: the client then needs a new token."""


@dataclass(frozen=True, slots=True)
class GivenToken:
    text: str
    seconds: float = 0.0
    """How long it is valid, according to the issuer; 0 if the issuer does not say."""


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Returns a token when called. It blocks, and raises SASL_AUTHENTICATION_FAILED if it gets none."""

    endpoint: TokenEndpoint

    def __call__(self) -> str:
        return self.get().text

    def get(self) -> GivenToken:
        url = self.endpoint.url
        if urlsplit(url).scheme == "file":
            return _from_file(url)
        return _from_issuer(self.endpoint)


class KeptTokens:
    """A source that requests a new token only shortly before the last one expires, or when that was refused.

    Called by several threads: if two find no token, both request one, which does no harm.
    """

    def __init__(self, source: TokenSource, now: Callable[[], float]) -> None:
        self._source = source
        self._now = now
        self._kept: tuple[str, float] | None = None
        """A token, and the time until which it is used."""

    def __call__(self) -> str:
        kept, now = self._kept, self._now()
        if kept is not None and now < kept[1]:
            return kept[0]
        token = self._source.get()
        self._kept = (token.text, now + token.seconds * KEPT_PART)
        return token.text

    def forget(self) -> None:
        """Drop a token that was refused: the issuer may have new keys, or has revoked it."""
        self._kept = None


def _from_file(url: str) -> GivenToken:
    try:
        return _checked(fetch(url, FETCH_SECONDS, MAX_BYTES).decode("ascii").strip(), url)
    except (OSError, ValueError) as error:
        raise _failed(f"no token in {url}: {error}") from None


def _from_issuer(endpoint: TokenEndpoint) -> GivenToken:
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
        raise _failed(f"{endpoint.url} did not issue a token: {error}") from None
    said_token, said_seconds = (
        (answer.get("access_token"), answer.get("expires_in")) if isinstance(answer, dict) else (None, None)
    )
    return _checked(said_token if isinstance(said_token, str) else "", endpoint.url, _seconds(said_seconds))


def _seconds(said: object) -> float:
    """The lifetime as a number: some issuers write it as text."""
    try:
        seconds = float(said) if isinstance(said, (int, float, str)) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return seconds if 0 < seconds < END_OF_TIME_S else 0.0


def _checked(token: str, url: str, seconds: float = 0.0) -> GivenToken:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _failed(f"the content of {url} is not a token")
    return GivenToken(token, seconds)


def _failed(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Cannot log in: {why}.")
