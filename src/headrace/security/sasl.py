"""SASL on one connection, without I/O: which mechanism, then its messages, then who it is.

PLAIN is one message with a name and a password. SCRAM is in `scram`, OAUTHBEARER in `tokens`. A mechanism tells
only whether it succeeded: why it failed is for the broker's log, and takes the same time whether the user exists
or not.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.security.scram import (
    MAX_MESSAGE_BYTES,
    MECHANISMS,
    NONCE_BYTES,
    AuthenticationFailed,
    ScramCredential,
    ScramServer,
    ScramShape,
    shapes_of,
)
from headrace.security.tokens import OAUTHBEARER, CheckedToken, OAuthServer

PLAIN = "PLAIN"
SUPPORTED = (PLAIN, *MECHANISMS, OAUTHBEARER)
FAILURE = "Authentication failed: wrong credentials, or a mechanism that this user does not have."


class Mechanism(Protocol):
    user: str
    done: bool
    expires_s: float | None
    """Since the epoch: when what was shown is not worth anything any more."""

    def step(self, message: bytes) -> bytes:
        """The answer to the peer's message; `AuthenticationFailed` ends it."""
        ...


class PlainServer:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""
        self.done = False
        self.expires_s: float | None = None

    def step(self, message: bytes) -> bytes:
        parts = message[: MAX_MESSAGE_BYTES + 1].split(b"\0")
        if self.done or len(message) > MAX_MESSAGE_BYTES or len(parts) != 3 or not parts[1] or not parts[2]:
            raise AuthenticationFailed("the message of PLAIN is malformed")
        try:
            acts_for, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationFailed("the message of PLAIN is not text") from None
        if acts_for and acts_for != user:
            raise AuthenticationFailed("acting for another user is not supported")
        self.user = user  # who it wants to be, for the audit line if it fails
        # Both are always compared, so that the time says nothing.
        kept = self._passwords.get(user)
        right = hmac.compare_digest(_digest(kept or ""), _digest(password))
        if not right or not kept:
            raise AuthenticationFailed("wrong password, or no such user")
        self.done = True
        return b""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def plain_message(user: str, password: str) -> bytes:
    """What a client sends."""
    return b"\0" + user.encode() + b"\0" + password.encode()


@dataclass(frozen=True, slots=True)
class SaslListener:
    """How one listener authenticates."""

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The passwords for PLAIN, by user."""
    max_session_ms: int = 0
    """After which a client must authenticate again (KIP-368); 0 if never."""
    check_token: Callable[[str], CheckedToken] | None = None
    """What checks a token of OAUTHBEARER."""


class ScramUsers:
    """The credentials of all users, by name and mechanism."""

    def __init__(self, users: Mapping[str, Mapping[str, ScramCredential]]) -> None:
        self.users = users
        self._shapes: dict[str, tuple[ScramShape, ...]] = {}

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.users.get(user, {}).get(mechanism)

    def shapes(self, mechanism: str) -> tuple[ScramShape, ...]:
        known = self._shapes.get(mechanism)
        if known is None:
            credentials = (one[mechanism] for one in self.users.values() if mechanism in one)
            known = self._shapes[mechanism] = shapes_of(credentials)
        return known


def begin(
    mechanism: str,
    listener: SaslListener,
    users: ScramUsers,
    random: Callable[[int], bytes],
    secret: bytes,
) -> Mechanism:
    if mechanism == PLAIN:
        return PlainServer(listener.passwords)
    if mechanism == OAUTHBEARER:
        assert listener.check_token is not None
        return OAuthServer(listener.check_token)
    nonce = random(NONCE_BYTES)
    return ScramServer(mechanism, lambda user: users.find(mechanism, user), nonce, secret, users.shapes(mechanism))
