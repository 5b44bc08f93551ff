"""The gate of listeners with SASL: until a client has logged in, it may ask for versions and log in, and nothing
else.

The state of a login is on the exchange. Its steps are those of `security.sasl`. A failed one is answered after
a pause and in words that fit every reason; the reason is a line of `headrace.audit`. A session that was limited
(`connections.max.reauth.ms`, KIP-368) ends unless the client logs in again as the same user.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.config.broker_config import BrokerConfig
from headrace.handlers.broker import Broker
from headrace.handlers.context import Context, LoginStep, SaslConversation
from headrace.handlers.registry import Api, ColdHandler, HotHandler
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode
from headrace.security.sasl import FAILURE, Mechanism, SaslListener, ScramUsers, begin
from headrace.security.scram import MECHANISMS, AuthenticationFailed
from headrace.security.tokens import UnknownKey
from headrace.server.audit_lines import audit, pairs
from headrace.server.authorization.table import OPEN
from headrace.server.gate import ColdBody, Guard
from headrace.server.line_limit import LineLimit
from headrace.services.reply import CloseConnection
from headrace.services.token_keys import TokenKeys

if TYPE_CHECKING:
    from headrace.server.exchange import Exchange

LINGER_SECONDS = 1.0
"""How long a client has to read the answer to a failed login before its connection ends."""


class SaslLogin:
    """The login of one connection."""

    def __init__(self, guard: LoginGuard, exchange: Exchange, listener: SaslListener) -> None:
        self._guard = guard
        self._exchange = exchange
        self._listener = listener
        self._mechanism = ""
        self._running: Mechanism | None = None
        self._user = ""
        self._failed = False
        self.for_ever = False
        self._expires = 0.0
        """When the login expires, by the monotonic clock; 0 for never."""

    def valid(self, now: float) -> bool:
        return bool(self._user) and not self._failed and (not self._expires or now < self._expires)

    def handshake(self, mechanism: str) -> tuple[ErrorCode, tuple[str, ...]]:
        offered = self._listener.mechanisms
        if self._failed or self._running is not None:
            return ErrorCode.ILLEGAL_SASL_STATE, offered
        if mechanism not in offered or (self._user and mechanism != self._mechanism):
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered
        self._mechanism = mechanism
        self._running = self._guard.begin(mechanism, self._listener)
        return ErrorCode.NONE, offered

    async def authenticate(self, message: bytes) -> LoginStep:
        running = self._running
        if running is None or self._failed:
            return LoginStep(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first.")
        try:
            try:
                answer = running.step(message)
            except UnknownKey as unknown:
                await self._guard.refresh_keys(self._exchange.listener, unknown)
                answer = running.step(message)
            if not running.done:
                return LoginStep(answer=answer)
            if self._user and running.user != self._user:
                raise AuthenticationFailed(f"it was {self._user} before")
        except AuthenticationFailed as error:
            self._failed = True
            self.for_ever = False
            return await self._guard.refuse(self._exchange, running.user, self._mechanism, str(error))
        self._running = None
        self._user = running.user
        self._exchange.prove(f"User:{running.user}")
        session_ms = self._guard.session_ms(self._listener, running)
        self._expires = self._guard.now() + session_ms / 1000 if session_ms else 0.0
        self.for_ever = not session_ms
        return LoginStep(answer=answer, session_ms=session_ms)


def listeners_without_users(config: BrokerConfig, image: MetadataImage) -> list[str]:
    """The listeners where no login is possible: they offer only SCRAM, and no user has a password for it."""
    known = {mechanism for mechanisms in image.users.values() for mechanism in mechanisms}
    return [
        name
        for name, settings in config.sasl.items()
        if set(settings.mechanisms) <= MECHANISMS.keys() and not known & set(settings.mechanisms)
    ]


class LoginGuard:
    def __init__(self, broker: Broker, inner: Guard | None) -> None:
        """`inner` decides after the login what the user may do."""
        self._broker = broker
        self.inner = inner
        """The guard after the login. May be replaced before the dispatcher uses this guard again."""
        self._lines = LineLimit(broker.env.clock, audit)
        self.now = broker.env.clock.monotonic
        self._delay = broker.config.integer("connection.failed.authentication.delay.ms") / 1000
        self._users = ScramUsers(broker.metadata.image.users)
        self.keys = {
            name: TokenKeys(broker.env, settings.oauth)
            for name, settings in broker.config.sasl.items()
            if settings.oauth is not None
        }
        """The keys for checking tokens, by listener."""
        self._listeners = {
            name: SaslListener(
                settings.mechanisms,
                settings.passwords,
                settings.max_reauth_ms,
                self.keys[name].check if name in self.keys else None,
            )
            for name, settings in broker.config.sasl.items()
        }

    def login(self, exchange: Exchange) -> SaslConversation | None:
        if exchange.login is None and (listener := self._listeners.get(exchange.listener)) is not None:
            exchange.login = SaslLogin(self, exchange, listener)
        return exchange.login

    def begin(self, mechanism: str, listener: SaslListener) -> Mechanism:
        image = self._broker.metadata.image
        if self._users.users is not image.users:
            self._users = ScramUsers(image.users)
        return begin(mechanism, listener, self._users, self._broker.env.rng.bytes, image.secret)

    async def refresh_keys(self, listener: str, unknown: UnknownKey) -> None:
        await self.keys[listener].refresh(unknown)

    def session_ms(self, listener: SaslListener, mechanism: Mechanism) -> int:
        """How long a login is valid: as long as is allowed, and no longer than the token; 0: no limit."""
        limits = [listener.max_session_ms] if listener.max_session_ms else []
        if mechanism.expires_s is not None:
            left = mechanism.expires_s * 1000 - self._broker.env.clock.wall_ms()
            limits.append(max(int(left), 1))
        return min(limits, default=0)

    async def refuse(self, exchange: Exchange, user: str, mechanism: str, why: str) -> LoginStep:
        line = pairs("login-failed", user=user or None, host=exchange.client_host, mechanism=mechanism, reason=why)
        self._lines.say_pairs(logging.WARNING, "audit event=login-failed", line)
        clock = self._broker.env.clock
        await clock.sleep(self._delay)
        clock.call_later(LINGER_SECONDS, exchange.hang_up)
        return LoginStep(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILURE)

    # -- what the dispatcher calls

    def enter(self, exchange: Exchange, api: Api, request_bytes: int) -> None:
        if api.key not in OPEN:
            self._check(exchange, api)
        if self.inner is not None:
            self.inner.enter(exchange, api, request_bytes)

    def _check(self, exchange: Exchange, api: Api) -> None:
        login = self.login(exchange)
        if login is not None:
            assert isinstance(login, SaslLogin)
            if not login.valid(self.now()):
                raise CloseConnection(f"{api.name} came without a login, or after its session had ended")

    def cold(self, api: Api, handle: ColdHandler) -> ColdHandler:
        return handle if self.inner is None else self.inner.cold(api, handle)

    def leave(self, exchange: Exchange, api: Api, context: Context, body: ColdBody, seconds: float) -> ColdBody:
        return body if self.inner is None else self.inner.leave(exchange, api, context, body, seconds)

    def quick(self, api: Api, handle: HotHandler) -> None:
        """Does nothing: only the cold path checks the login."""

    def hot(self, api: Api, handle: HotHandler) -> HotHandler:
        permitted = handle if self.inner is None else self.inner.hot(api, handle)

        def logged_in(exchange: Exchange, version: int, frame: memoryview, position: int) -> Any:
            login = exchange.login
            if login is None or not login.for_ever:
                self._check(exchange, api)
            return permitted(exchange, version, frame, position)

        return logged_in
