"""The certificates of listeners and their trusted authorities, exchanged while the broker runs.

New TLS contexts come from dynamic settings (`listener.name.NAME.ssl.*`) and from files that changed. They are
created in a thread, and if that fails, the old ones stay. Open connections keep theirs, but for those whose
certificate determines the principal: they end when the trusted certificates change, so that revoked clients lose
access.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from headrace.config.broker_config import BrokerConfig
from headrace.config.listeners import ConfiguredListener
from headrace.config.setting import ConfigError
from headrace.config.tls_config import ListenerTls, is_tls_setting, listener_setting, listener_tls
from headrace.config.topic_config import DynamicConfigs
from headrace.env import Env
from headrace.env.tls import client_context, fingerprint, is_for_this_machine, server_context
from headrace.metadata.image import MetadataImage
from headrace.model.tls import TlsFault

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The TLS contexts for some settings."""

    settings: ListenerTls
    server: ssl.SSLContext
    client: ssl.SSLContext
    """The context for connections to the same listener of other brokers."""
    seen: tuple[tuple[int, ...], ...]
    """The fingerprint of the files from before they were read."""

    @classmethod
    def make(cls, settings: ListenerTls) -> TlsContexts:
        """Create the contexts; `TlsFault` if that is impossible."""
        material = settings.material
        seen = fingerprint(material)  # before they are read: changes in the meantime are noticed
        return cls(settings, server_context(material), client_context(material), seen)

    @property
    def trust(self) -> object:
        """A value that differs if the trusted certificates do."""
        trusted = self.settings.material.trusted
        return trusted, self.seen[-1] if trusted is not None and trusted.location else ()


class TlsIdentity:
    """The TLS contexts of one listener."""

    def __init__(self, listener: ConfiguredListener, settings: ListenerTls) -> None:
        self.listener = listener
        self.trust_changed: Callable[[], None] = lambda: None
        self._settings = settings
        self._contexts: TlsContexts | None = None
        self._refused: tuple[tuple[int, ...], ...] = ()
        """The fingerprint of files that were read and could not be used."""

    @property
    def contexts(self) -> TlsContexts:
        assert self._contexts is not None, "loaded when the listener is opened"
        return self._contexts

    def load(self) -> None:
        """Create the contexts for the settings; `TlsFault` if that is impossible."""
        if not self.listener.loopback and is_for_this_machine(self._settings.material):
            raise TlsFault(
                "its certificate was made by `headrace tls dev` for this machine only. Use one of your own "
                "authority, or make it with `headrace tls dev --network`"
            )
        self._contexts = TlsContexts.make(self._settings)

    def changed_on_disk(self) -> bool:
        now = fingerprint(self.contexts.settings.material)
        return now not in (self.contexts.seen, self._refused)

    async def reload(self, env: Env) -> None:
        await self.exchange(env, self.contexts.settings, "their files have changed")

    async def exchange(self, env: Env, settings: ListenerTls, why: str) -> None:
        """Use these settings from now on, if they can be used."""
        self._refused = await env.run_blocking(partial(fingerprint, settings.material))
        try:
            made = await env.run_blocking(partial(TlsContexts.make, settings))
        except TlsFault as error:
            log.error("Listener %s keeps its certificates: %s", self.listener.name, error)
            return
        before, self._contexts = self.contexts, made
        self._refused = ()
        log.info("Listener %s uses new certificates: %s", self.listener.name, why)
        if made.trust != before.trust:
            self.trust_changed()


class TlsIdentities:
    """The TLS contexts of all listeners of a broker that have TLS."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._by_name = {
            listener.name: TlsIdentity(listener, config.tls[listener.name])
            for listener in config.listeners
            if listener.name in config.tls
        }
        self._dynamic: Mapping[str, str] = {}

    def of(self, listener: str) -> TlsIdentity | None:
        return self._by_name.get(listener)

    async def watch(self, env: Env) -> None:
        """Check regularly whether files have changed."""
        interval_s = self._config.integer("headrace.tls.reload.interval.ms") / 1000
        while self._by_name and interval_s > 0:
            await env.clock.sleep(interval_s)
            for identity in self._by_name.values():
                if await env.run_blocking(identity.changed_on_disk):
                    await identity.reload(env)

    def follow(self, env: Env, old: MetadataImage, new: MetadataImage) -> None:
        """Apply the dynamic settings of an image."""
        if old is not new and old.broker_configs is new.broker_configs:
            return
        given = DynamicConfigs.of(new.broker_configs, self._config.node_id).broker
        dynamic = {name: text for name, text in given.items() if is_tls_setting(name)}
        if dynamic != self._dynamic:
            names = {listener_setting(name)[0] for name in {*dynamic, *self._dynamic}}
            self._dynamic = dynamic
            for name in names & self._by_name.keys():
                env.background.start(f"New certificates of {name}", self._apply(env, self._by_name[name]))

    async def _apply(self, env: Env, identity: TlsIdentity) -> None:
        try:
            settings = listener_tls(identity.listener, {**self._config.tls_texts, **self._dynamic})
            self._config.check_closed(identity.listener, settings)
        except ConfigError as error:
            log.error("Listener %s keeps its certificates: %s", identity.listener.name, error)
            return
        await identity.exchange(env, settings, "its settings have changed")
