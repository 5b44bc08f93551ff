"""What the settings say about SASL on a listener, in Kafka's words: mechanisms, and JAAS texts.

    sasl.enabled.mechanisms=SCRAM-SHA-512
    listener.name.NAME.sasl.enabled.mechanisms=PLAIN
    listener.name.NAME.MECHANISM.sasl.jaas.config=CLASS required username="..." password="..." user_NAME="...";

Of a JAAS text, `user_NAME` are the users of PLAIN and their passwords; `username` and `password` are the broker's
own, with which it logs in at other brokers. The class is one of Kafka's, and only checked. With OAUTHBEARER a
broker logs in with a token, from where `sasl.oauthbearer.token.endpoint.url` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headrace.config.listeners import LISTENER_PREFIX, ConfiguredListener, is_loopback
from headrace.config.oauth_settings import (
    AUDIENCE,
    CLIENT_SECRET,
    ISSUER,
    JWKS_URL,
    OAUTHBEARER,
    TOKEN_URL,
    OAuthSettings,
    TokenEndpoint,
    is_oauth_setting,
    oauth_of,
    token_endpoint,
)
from headrace.config.secrets import refuse_in_flags
from headrace.config.setting import ConfigError

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SERVED_MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
INTER_BROKER = "sasl.mechanism.inter.broker.protocol"
MAX_REAUTH = "connections.max.reauth.ms"
_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": (PLAIN,),
    "org.apache.kafka.common.security.scram.ScramLoginModule": SCRAM,
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": (OAUTHBEARER,),
}
_HANDLER = "sasl.server.callback.handler.class"
_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's own handlers for tokens with a signature: they do what happens here anyway."""
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_LOGIN_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_OPTION = re.compile(r"""\s*([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials with which a broker logs in at another one."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenEndpoint | None = None
    """The source of its tokens, with OAUTHBEARER."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL settings of one listener."""

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The users of PLAIN."""
    max_reauth_ms: int = 0
    own: Mapping[str, Login] = field(default_factory=dict, repr=False)
    """The broker's own name and password, by mechanism."""
    oauth: OAuthSettings | None = None
    """How tokens are checked, with OAUTHBEARER."""


def is_sasl_setting(name: str) -> bool:
    """Whether a setting of a listener is one of these."""
    return name.startswith(LISTENER_PREFIX) and (
        name.endswith((ENABLED, JAAS, MAX_REAUTH, _HANDLER, _LOGIN_HANDLER)) or is_oauth_setting(name)
    )


def sasl_of(
    listeners: tuple[ConfiguredListener, ...], texts: Mapping[str, str], sources: Mapping[str, str]
) -> dict[str, SaslSettings]:
    """The SASL settings by listener name, for the listeners that have SASL."""
    refuse_in_flags(sources, JAAS, CLIENT_SECRET)
    return {
        listener.name: _of_one(listener, texts)
        for listener in listeners
        if listener.security_protocol.startswith("SASL_")
    }


def _of_one(listener: ConfiguredListener, texts: Mapping[str, str]) -> SaslSettings:
    prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
    enabled = texts.get(prefix + ENABLED) or texts.get(ENABLED) or ""
    mechanisms = tuple(part.strip().upper() for part in enabled.split(",") if part.strip())
    if not mechanisms:
        raise ConfigError(f"listener {listener} needs {ENABLED}: any of {', '.join(SERVED_MECHANISMS)}")
    for mechanism in mechanisms:
        if mechanism not in SERVED_MECHANISMS:
            raise ConfigError(
                f"{ENABLED}: {mechanism} is not served by this version; use {', '.join(SERVED_MECHANISMS)}"
            )
    passwords: dict[str, str] = {}
    own: dict[str, Login] = {}
    of_tokens: dict[str, str] = {}
    for mechanism in mechanisms:
        key = f"{prefix}{mechanism.lower()}.{JAAS}"
        text = texts.get(key) or texts.get(JAAS) or ""
        if not text:
            continue
        options = parse_jaas(key, text, mechanism)
        if mechanism == OAUTHBEARER:
            of_tokens = options
        elif mechanism == PLAIN:
            passwords = {name[5:]: value for name, value in options.items() if name.startswith("user_")}
        if "username" in options and "password" in options:
            own[mechanism] = Login(mechanism, options["username"], options["password"])
    if PLAIN in mechanisms and not passwords:
        raise ConfigError(
            f"listener {listener} uses PLAIN but has no users: write {prefix}plain.{JAAS}="
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="her password";'
        )
    oauth = None
    if OAUTHBEARER in mechanisms:
        named = f"{prefix}{OAUTHBEARER.lower()}."
        _check_handler(named + _HANDLER, texts, _HANDLERS)
        _check_handler(named + _LOGIN_HANDLER, texts, _LOGIN_HANDLERS)

        def text_of(name: str) -> str | None:
            return texts.get(prefix + name) or texts.get(name)

        oauth = oauth_of(listener, text_of, of_tokens)
        if text_of(TOKEN_URL):
            own[OAUTHBEARER] = Login(OAUTHBEARER, tokens=token_endpoint(text_of, of_tokens))
    return SaslSettings(mechanisms, passwords, _max_reauth(prefix, texts), own, oauth)


def _check_handler(name: str, texts: Mapping[str, str], known: tuple[str, ...]) -> None:
    given = texts.get(name)
    if given and given not in known:
        raise ConfigError(f"{name}: Java classes cannot be loaded here. Leave it out, or write {known[0]}")


def _max_reauth(prefix: str, texts: Mapping[str, str]) -> int:
    text = texts.get(prefix + MAX_REAUTH) or texts.get(MAX_REAUTH) or "0"
    if not text.strip().isdigit():
        raise ConfigError(f"{MAX_REAUTH}: {text!r} is not a number of milliseconds")
    return int(text)


def parse_jaas(key: str, text: str, mechanism: str) -> dict[str, str]:
    """The options of a login module. Errors do not quote the text: there are passwords in it."""
    text, ended = text.strip().removesuffix(";"), text.strip().endswith(";")
    module, flag, rest = (*text.split(maxsplit=2), "", "", "")[:3]
    if module not in _MODULES:
        listed = " or ".join(_MODULES)
        raise ConfigError(f"{key}: Java classes cannot be loaded here; the login module is {listed}")
    if mechanism not in _MODULES[module]:
        raise ConfigError(f"{key}: {module.rpartition('.')[2]} is not the login module of {mechanism}")
    if flag.lower() not in ("required", "requisite", "sufficient", "optional") or not ended:
        raise ConfigError(f'{key}: the form is: {module} required name="value" ... ;')
    options: dict[str, str] = {}
    rest = rest.strip()
    while rest:
        match = _OPTION.match(rest)
        if match is None:
            raise ConfigError(f'{key}: option {len(options) + 1} is not of the form name="value"')
        quoted = match[2]
        options[match[1]] = _ESCAPE.sub(r"\1", quoted) if quoted is not None else match[3]
        rest = rest[match.end() :].strip()
    return options


def check_open(listener: ConfiguredListener, sasl: SaslSettings, allow_insecure: bool) -> None:
    """Refuse unencrypted passwords and tokens, except on this machine or with --insecure."""
    encrypted = listener.security_protocol == "SASL_SSL"
    if OAUTHBEARER in sasl.mechanisms and not (encrypted or listener.loopback or allow_insecure):
        raise ConfigError(
            f"listener {listener} would send OAUTHBEARER tokens unencrypted over the network. Use SASL_SSL, "
            "listen on 127.0.0.1, or accept the risk with --insecure (headrace.allow.insecure=true)."
        )
    if PLAIN in sasl.mechanisms and not (encrypted or listener.loopback or allow_insecure):
        raise ConfigError(
            f"listener {listener} would send PLAIN passwords unencrypted over the network. Use SASL_SSL or SCRAM, "
            "listen on 127.0.0.1, or accept the risk with --insecure (headrace.allow.insecure=true)."
        )


def token_warnings(name: str, sasl: SaslSettings) -> Iterator[str]:
    """Warnings about settings with which Kafka starts too, although they let others in."""
    if sasl.oauth is None:
        return
    if sasl.oauth.issuer is None and not sasl.oauth.audiences:
        yield (
            f"Listener {name} accepts every token that is signed with one of the keys, also those that are for "
            f"other services or from other customers of the same issuer: set {ISSUER} and {AUDIENCE}."
        )
    if _in_clear(sasl.oauth.jwks_url):
        yield (
            f"{JWKS_URL} is read over http: who can change that traffic can log in as anybody at listener {name}. "
            "Use https."
        )
    own = sasl.own.get(OAUTHBEARER)
    if own is not None and own.tokens is not None and _in_clear(own.tokens.url):
        yield f"{TOKEN_URL} is asked over http: the broker's own secret is sent unencrypted. Use https."


def _in_clear(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
