"""Who may see the admin port: users of the cluster by HTTP basic authentication, and bearers of a token in a file.

A user needs the right to describe the cluster where there are access rules. The file is read at every request, so
that tokens can be exchanged. Whoever is refused is refused after the same time, whether the user exists or not.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from collections.abc import Mapping, Sequence

from headrace.env import Env
from headrace.env.env import READ_ONLY
from headrace.handlers.broker import Broker
from headrace.security.acl import Operation
from headrace.security.scram import MECHANISMS, MIN_ITERATIONS, ScramCredential, new_credential
from headrace.server.audit_lines import audit, pairs
from headrace.server.authorization.guard import AclGuard
from headrace.server.line_limit import LineLimit

MAX_TOKEN_FILE_BYTES = 64 * 1024
MAX_PASSWORD_CHARACTERS = 1024
USERS, TOKEN = "users", "token"


class AdminLogin:
    def __init__(self, broker: Broker, rights: AclGuard | None, ways: tuple[str, ...]) -> None:
        self._broker = broker
        self._rights = rights
        self._ways = ways
        self._lines = LineLimit(broker.env.clock, audit)
        self._checking = asyncio.Lock()
        """One password after the other: comparing them is work, and threads are there for the disk too."""
        self._delay = broker.config.integer("connection.failed.authentication.delay.ms") / 1000

    async def allows(self, authorization: str, host: str) -> bool:
        """`authorization` is the header of that name."""
        clock = self._broker.env.clock
        began = clock.monotonic()
        scheme, _, value = authorization.partition(" ")
        user = ""
        allowed = False
        if scheme.lower() == "bearer" and TOKEN in self._ways:
            allowed = await self._knows_token(value.strip())
        elif scheme.lower() == "basic" and USERS in self._ways:
            user, password = _basic(value)
            allowed = await self._knows_user(user, password) and self._may(user, host)
        if not allowed and authorization:
            line = pairs("login-failed", user=user or None, host=host, mechanism="admin port")
            self._lines.say_pairs(logging.WARNING, "audit event=login-failed", line)
            # How long the check took is part of it: more iterations take longer.
            await clock.sleep(max(began + self._delay - clock.monotonic(), 0.0))
        return allowed

    def _may(self, user: str, host: str) -> bool:
        if self._rights is None:
            return True
        return self._rights.rights(f"User:{user}", host).on_cluster(Operation.DESCRIBE)

    async def _knows_user(self, user: str, password: str) -> bool:
        broker = self._broker
        passwords = [one.passwords[user] for one in broker.config.sasl.values() if user in one.passwords]
        plain = _is_one_of(password, passwords)
        known = broker.metadata.image.users.get(user, {})
        secret = broker.metadata.image.secret
        async with self._checking:
            scram = await broker.env.run_blocking(lambda: _matches(known, password, secret))
        return bool(user and password) and (plain or scram)

    async def _knows_token(self, token: str) -> bool:
        env = self._broker.env
        path = self._broker.config.text("headrace.admin.token.file") or ""
        try:
            lines = (await env.run_blocking(lambda: _read(env, path))).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self._lines.say(logging.ERROR, "Cannot read %s", str(error), path)
            return False
        return _is_one_of(token, [line.strip() for line in lines if line.strip() and not line.startswith("#")])


def _is_one_of(given: str, known: Sequence[str]) -> bool:
    """Each is compared, so that the time says nothing."""
    return sum(hmac.compare_digest(one.encode(), given.encode()) for one in known) > 0


def _matches(known: Mapping[str, ScramCredential], password: str, secret: bytes) -> bool:
    """Against a credential of each mechanism; one that the user lacks takes its time all the same."""
    nobodys = ScramCredential(secret, MIN_ITERATIONS, b"", b"")
    found = False
    for mechanism in MECHANISMS:
        credential = known.get(mechanism, nobodys)
        made = new_credential(mechanism, password, credential.salt, credential.iterations)
        found |= hmac.compare_digest(made.stored_key, credential.stored_key)
    return found


def _basic(value: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", ""
    return user[:MAX_PASSWORD_CHARACTERS], password[:MAX_PASSWORD_CHARACTERS]


def _read(env: Env, path: str) -> bytes:
    fd = env.disk.open(path, READ_ONLY)
    try:
        return env.disk.pread(fd, min(env.disk.size(fd), MAX_TOKEN_FILE_BYTES), 0)
    finally:
        env.disk.close(fd)
