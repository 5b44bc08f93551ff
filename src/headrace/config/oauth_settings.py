"""The settings of OAUTHBEARER: where keys and tokens come from, and what a token must say. Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headrace.config.setting import ConfigError, ConfigType, Importance, Setting
from headrace.config.tls_config import Get, client_material
from headrace.model.tls import TlsMaterial

OAUTHBEARER = "OAUTHBEARER"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
ISSUER = "sasl.oauthbearer.expected.issuer"
AUDIENCE = "sasl.oauthbearer.expected.audience"
SKEW = "sasl.oauthbearer.clock.skew.seconds"
SUBJECT = "sasl.oauthbearer.sub.claim.name"
SCOPE = "sasl.oauthbearer.scope.claim.name"
REFRESH = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
BACKOFF = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
BACKOFF_MAX = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
CLIENT_SCOPE = "sasl.oauthbearer.scope"
ENCODE = "sasl.oauthbearer.header.urlencode"
LIBRDKAFKA_CA = "https.ca.location"


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where a client, or a broker that is one, gets its token."""

    url: str
    client: str = ""
    secret: str = field(default="", repr=False)
    scope: str | None = None
    encode: bool = False
    """Whether id and secret are encoded as in a form before they are sent (RFC 6749, 2.3.1)."""
    tls: TlsMaterial | None = None
    """The authorities to trust for the issuer, if not the system's."""


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The OAUTHBEARER settings of one listener."""

    jwks_url: str
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    skew_seconds: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    refresh_seconds: float = 3600.0
    backoff_seconds: float = 0.1
    backoff_max_seconds: float = 10.0
    tls: TlsMaterial | None = None
    """The authorities to trust for the issuer, if not the system's."""


def _url_problem(text: str) -> str | None:
    if text.startswith(("file:", "https://", "http://")):
        return None
    return "it must be a URL: file:///path or https://host/path"


OAUTH_SETTINGS: tuple[Setting, ...] = (
    Setting(
        JWKS_URL,
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "The public keys (a JWKS) that OAUTHBEARER tokens are verified with: https://... or file:///...",
        check=_url_problem,
    ),
    Setting(
        ISSUER,
        ConfigType.STRING,
        None,
        Importance.LOW,
        "The issuer (iss) that tokens must name; if not set, any is accepted.",
    ),
    Setting(
        AUDIENCE,
        ConfigType.LIST,
        None,
        Importance.LOW,
        "The audiences (aud), one of which tokens must name; if not set, any is accepted.",
    ),
    Setting(
        SKEW,
        ConfigType.INT,
        "30",
        Importance.LOW,
        "How many seconds the clocks of the broker and the issuer may differ by.",
        minimum=0,
    ),
    Setting(
        SUBJECT,
        ConfigType.STRING,
        "sub",
        Importance.LOW,
        "The claim of a token that holds the name of the user.",
    ),
    Setting(
        SCOPE,
        ConfigType.STRING,
        "scope",
        Importance.LOW,
        "The claim of a token that holds its scopes.",
    ),
    Setting(
        REFRESH,
        ConfigType.LONG,
        "3600000",
        Importance.LOW,
        "How often the keys are read again.",
        minimum=1000,
    ),
    Setting(
        BACKOFF,
        ConfigType.LONG,
        "100",
        Importance.LOW,
        "How long to wait before reading the keys is retried; it doubles with each failure.",
        minimum=10,
    ),
    Setting(
        BACKOFF_MAX,
        ConfigType.LONG,
        "10000",
        Importance.LOW,
        "Maximum wait between such retries.",
        minimum=10,
    ),
    Setting(
        TOKEN_URL,
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "Where this broker gets its own token if brokers use OAUTHBEARER among themselves: https://... of the "
        "issuer, or file:///path of a token.",
        check=_url_problem,
    ),
    Setting(CLIENT_ID, ConfigType.STRING, None, Importance.MEDIUM, "This broker's id at the issuer of tokens."),
    Setting(
        CLIENT_SECRET,
        ConfigType.PASSWORD,
        None,
        Importance.MEDIUM,
        "This broker's secret at the issuer of tokens.",
    ),
    Setting(
        CLIENT_SCOPE, ConfigType.STRING, None, Importance.MEDIUM, "The scope that this broker asks the issuer for."
    ),
    Setting(
        ENCODE,
        ConfigType.BOOLEAN,
        "false",
        Importance.LOW,
        "Whether its id and secret are encoded as in a form before they are sent (RFC 6749, 2.3.1).",
    ),
)
_TABLE = {setting.name: setting for setting in OAUTH_SETTINGS}


def is_oauth_setting(name: str) -> bool:
    """Whether a setting of a listener is one of these."""
    return any(name.endswith(f".{known}") for known in _TABLE)


def token_endpoint(get: Get, jaas: Mapping[str, str]) -> TokenEndpoint:
    """The token endpoint from the settings of a client, in the names of Kafka or librdkafka, and its JAAS text."""
    url = get(TOKEN_URL) or ""
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return TokenEndpoint(url)
    if scheme not in ("http", "https"):
        raise ConfigError(f"{TOKEN_URL} must be file:///path or https://...")
    client = get(CLIENT_ID) or get("sasl.oauthbearer.client.id") or jaas.get("clientId")
    secret = get(CLIENT_SECRET) or get("sasl.oauthbearer.client.secret") or jaas.get("clientSecret")
    scope = get(CLIENT_SCOPE) or jaas.get("scope")
    if not client or not secret:
        raise ConfigError(
            f"{CLIENT_ID} and ...client.secret are missing: {url} gives tokens to clients that it knows"
        )
    encode = (get(ENCODE) or "false").strip().lower() == "true"
    return TokenEndpoint(url, client, secret, scope, encode, issuer_tls(jaas, get(LIBRDKAFKA_CA)))


def issuer_tls(jaas: Mapping[str, str], ca: str | None = None) -> TlsMaterial | None:
    """The TLS settings for the connection to the issuer: `ssl.*` of a JAAS text; None if it has none."""
    if not ca and not any(name.startswith("ssl.") for name in jaas):
        return None
    return client_material(lambda name: jaas.get(name) or (ca if name == "ssl.ca.location" else None))


def oauth_of(listener: object, text_of: Callable[[str], str | None], jaas: Mapping[str, str]) -> OAuthSettings:
    """The OAUTHBEARER settings of a listener; `text_of` returns the value of a setting for that listener."""

    def value(name: str) -> object:
        text = text_of(name)
        return _TABLE[name].default_value() if text is None else _TABLE[name].parse(text)

    url = value(JWKS_URL)
    if not isinstance(url, str) or not url:
        raise ConfigError(
            f"listener {listener} uses OAUTHBEARER and does not say where the keys of tokens are: "
            f"write {JWKS_URL}=https://... or file:///..."
        )
    audiences = value(AUDIENCE) or ()
    numbers: Mapping[str, int] = {name: int(str(value(name))) for name in (SKEW, REFRESH, BACKOFF, BACKOFF_MAX)}
    issuer = value(ISSUER)
    return OAuthSettings(
        url,
        str(issuer) if issuer else None,
        tuple(audiences) if isinstance(audiences, (list, tuple)) else (str(audiences),),
        numbers[SKEW],
        str(value(SUBJECT)),
        str(value(SCOPE)),
        numbers[REFRESH] / 1000,
        numbers[BACKOFF] / 1000,
        numbers[BACKOFF_MAX] / 1000,
        issuer_tls(jaas),
    )
