"""Tokens of OAUTHBEARER (RFC 7628, RFC 7519): what a client sends, and whether a token is to be believed.

A token is signed by who issued it. It is believed if one of the issuer's public keys (a JWKS, RFC 7517) says so,
it is meant for us, and its time has not run out. Only signatures with a private key count: never `none`, never a
shared secret. The mathematics are PyJWT's and cryptography's, which the extra `security` brings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from headrace.security.scram import AuthenticationFailed

if TYPE_CHECKING:
    from jwt import PyJWK

OAUTHBEARER = "OAUTHBEARER"
MAX_TOKEN_BYTES = 64 * 1024
MAX_KEYS = 1000
END_OF_TIME_S = 1e12
"""Nothing that JSON calls a number is a time beyond it."""
MISSING = "OAUTHBEARER needs PyJWT and cryptography: pip install 'headrace[security]'"
_ALGORITHMS = {
    "RSA": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    "EC": ["ES256", "ES384", "ES512"],
    "OKP": ["EdDSA"],
}
"""By the type of a key."""
_HEADER = re.compile(r"n,(?:a=([^,]*))?,")
_BEARER = "auth=bearer "


class UnknownKey(AuthenticationFailed):
    """Its issuer may have new keys."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    """One of them, if there are any."""
    skew_seconds: int = 30
    """How far the issuer's clock and ours may differ."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"


@dataclass(frozen=True, slots=True)
class CheckedToken:
    subject: str
    expires_s: float
    """Since the epoch."""
    scopes: frozenset[str] = frozenset()


class TokenKeySet:
    """Public keys of an issuer."""

    def __init__(self, keys: Sequence[PyJWK]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key_id: object) -> PyJWK:
        """By its id; a token that names none is tried with the only key."""
        if key_id is None and len(self._keys) == 1:
            return self._keys[0]
        for key in self._keys:
            if key_id is not None and key.key_id == key_id:
                return key
        raise UnknownKey(f"no key {str(key_id)[:80]!r} is known")


def parse_keys(text: bytes) -> TokenKeySet:
    """A JWKS; ValueError if it is not one, or holds nothing to check signatures with."""
    jwt = _jwt()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    rows = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(rows, list) or len(rows) > MAX_KEYS:
        raise ValueError(f'it is not a JWKS, an object with "keys", of which there are at most {MAX_KEYS}')
    keys: list[PyJWK] = []
    for row in rows:
        if isinstance(row, dict) and row.get("kty") in _ALGORITHMS and row.get("use", "sig") == "sig":
            try:
                keys.append(jwt.PyJWK.from_dict(row))
            except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError):
                continue  # of an unknown kind, or none at all
    if not keys:
        raise ValueError("it holds no public key for signatures")
    return TokenKeySet(keys)


def check_token(token: str, keys: TokenKeySet, rules: TokenRules, now_s: float) -> CheckedToken:
    """The claims of the token, or `AuthenticationFailed`."""
    jwt = _jwt()
    try:
        key = keys.find(jwt.get_unverified_header(token).get("kid"))
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=_ALGORITHMS[key.key_type or ""],
            audience=list(rules.audiences) or None,
            issuer=rules.issuer,
            # The times are compared below, with our own clock.
            options={
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
                "verify_aud": bool(rules.audiences),
                "verify_iss": rules.issuer is not None,
            },
        )
    except jwt.PyJWTError as error:
        raise AuthenticationFailed(f"the token is not valid: {error}") from None
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise AuthenticationFailed(f"the token is malformed: {error}") from None
    expires = claims.get("exp")
    if not _is_time(expires) or expires + rules.skew_seconds <= now_s:
        raise AuthenticationFailed("the token has expired, or does not say when it does")
    begins = claims.get("nbf", 0)
    if not _is_time(begins) or begins - rules.skew_seconds > now_s:
        raise AuthenticationFailed("the token is not valid yet")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject:
        raise AuthenticationFailed(f"the token has no {rules.subject_claim}")
    return CheckedToken(subject, float(expires), _scopes(claims.get(rules.scope_claim)))


def _is_time(claim: object) -> TypeGuard[float]:
    return isinstance(claim, (int, float)) and not isinstance(claim, bool) and abs(claim) < END_OF_TIME_S


def _scopes(claim: object) -> frozenset[str]:
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, list):
        return frozenset(one for one in claim if isinstance(one, str))
    return frozenset()


def _jwt() -> Any:
    try:
        import jwt  # only where tokens are checked
    except ImportError:
        raise AuthenticationFailed(MISSING) from None
    return jwt


def check_installed() -> None:
    """ImportError, with what to install."""
    try:
        import cryptography  # noqa: F401
        import jwt  # noqa: F401
    except ImportError:
        raise ImportError(MISSING) from None


class OAuthServer:
    """One message with a token. It is refused at once: clients of Kafka need no second message to fail."""

    def __init__(self, check: Callable[[str], CheckedToken]) -> None:
        self._check = check
        self.user = ""
        self.done = False
        self.expires_s: float | None = None

    def step(self, message: bytes) -> bytes:
        if self.done or len(message) > MAX_TOKEN_BYTES:
            raise AuthenticationFailed("the message of OAUTHBEARER is too long, or one too many")
        try:
            header, *pairs = message.decode().split("\x01")
        except UnicodeDecodeError:
            raise AuthenticationFailed("the message of OAUTHBEARER is not text") from None
        match = _HEADER.fullmatch(header)
        tokens = [pair[len(_BEARER) :] for pair in pairs if pair[: len(_BEARER)].lower() == _BEARER]
        if match is None or len(tokens) != 1 or pairs[-2:] != ["", ""]:
            raise AuthenticationFailed("the message of OAUTHBEARER is malformed")
        acts_for, token = match[1], tokens[0]
        found = self._check(token)
        if acts_for and acts_for != found.subject:
            raise AuthenticationFailed("acting for another user is not supported")
        self.user = found.subject
        self.expires_s = found.expires_s
        self.done = True
        return b""


def oauth_message(token: str) -> bytes:
    """What a client sends."""
    return b"n,,\x01auth=Bearer " + token.encode("ascii") + b"\x01\x01"
