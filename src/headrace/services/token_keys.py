"""The public keys that tokens of OAUTHBEARER are checked with: from a file or a URL, read again now and then.

`sasl.oauthbearer.jwks.endpoint.url` is a `file:` URL or one of HTTP. Keys are read at the start, every
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names one that is not known, though not more often
than every few seconds, whatever clients send.
"""

from __future__ import annotations

import logging
import urllib.request
from urllib.parse import urlsplit

from headrace.config.oauth_settings import OAuthSettings
from headrace.env import Env
from headrace.env.env import READ_ONLY
from headrace.env.http import fetch
from headrace.env.tls import client_context
from headrace.security.tokens import (
    CheckedToken,
    TokenKeySet,
    TokenRules,
    UnknownKey,
    check_installed,
    check_token,
    parse_keys,
)

log = logging.getLogger(__name__)
MAX_BYTES = 1024 * 1024
FETCH_SECONDS = 10.0
ASKED_AGAIN_SECONDS = 10.0
"""The least time between two readings that clients cause."""


class KeysUnusable(Exception):
    """These keys cannot be used. The message says why."""


class TokenKeys:
    def __init__(self, env: Env, settings: OAuthSettings) -> None:
        self._env = env
        self._settings = settings
        self._keys = TokenKeySet(())
        self._read_at = float("-inf")
        self._reading = False
        """One at a time: a server that hangs holds one thread."""
        self.rules = TokenRules(
            settings.issuer,
            settings.audiences,
            settings.skew_seconds,
            settings.subject_claim,
            settings.scope_claim,
        )

    def check(self, token: str) -> CheckedToken:
        return check_token(token, self._keys, self.rules, self._env.clock.wall_ms() / 1000)

    async def open(self) -> None:
        """A file must exist; a server may start later."""
        try:
            check_installed()
            await self._read()
        except ImportError as error:
            raise KeysUnusable(str(error)) from error
        except (OSError, ValueError) as error:
            if urlsplit(self._settings.jwks_url).scheme == "file":
                raise KeysUnusable(f"Cannot use {self._settings.jwks_url}: {error}") from error
            log.warning("No keys for tokens yet: %s: %s", self._settings.jwks_url, error)

    async def run(self) -> None:
        """Keep reading them again, sooner after a failure; meanwhile the last keys stay valid."""
        wait = self._settings.refresh_seconds if len(self._keys) else self._settings.backoff_seconds
        while True:
            await self._env.clock.sleep(wait)
            try:
                await self._read()
                wait = self._settings.refresh_seconds
            except (OSError, ValueError) as error:
                wait = min(max(wait * 2, self._settings.backoff_seconds), self._settings.backoff_max_seconds)
                log.warning("Cannot read keys for tokens: %s: %s", self._settings.jwks_url, error)

    async def refresh(self, unknown: UnknownKey) -> None:
        """A token names an unknown key; raises that error again if the issuer has no new keys."""
        if self._reading or self._env.clock.monotonic() < self._read_at + ASKED_AGAIN_SECONDS:
            raise unknown
        try:
            await self._read()
        except (OSError, ValueError) as error:
            log.warning("Cannot read keys for tokens: %s: %s", self._settings.jwks_url, error)
            raise unknown from None

    async def _read(self) -> None:
        if self._reading:
            return
        self._reading = True
        self._read_at = self._env.clock.monotonic()
        try:
            self._keys = await self._env.run_blocking(lambda: parse_keys(self._fetch()))
        finally:
            self._reading = False

    def _fetch(self) -> bytes:
        parts = urlsplit(self._settings.jwks_url)
        if parts.scheme == "file":
            return self._read_file(urllib.request.url2pathname(parts.path))
        tls = None if self._settings.tls is None else client_context(self._settings.tls)
        return fetch(self._settings.jwks_url, FETCH_SECONDS, MAX_BYTES, tls=tls)

    def _read_file(self, path: str) -> bytes:
        disk = self._env.disk
        fd = disk.open(path, READ_ONLY)
        try:
            return disk.pread(fd, min(disk.size(fd), MAX_BYTES), 0)
        finally:
            disk.close(fd)
