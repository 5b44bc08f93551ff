"""What one broker was told: flags over environment over file over defaults, checked once, then never changed.

`BrokerConfig.build` takes texts that the caller has read; this package opens no file. Unknown names are
errors, names that only Kafka knows are warnings. The dynamic settings that AlterConfigs makes are not here: they
belong to the cluster's metadata and are laid over this in `topic_config` and `describe`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from headrace.config.group_settings import check_group_limits
from headrace.config.known_unused import class_problem, ignored
from headrace.config.listeners import (
    ConfiguredListener,
    check_advertised,
    check_served,
    is_loopback,
    parse_listeners,
    parse_protocol_map,
)
from headrace.config.mistakes import Mistakes
from headrace.config.oauth_settings import OAUTHBEARER, TOKEN_URL
from headrace.config.quota_settings import CONNECTION_RATE, is_listener_rate, listener_rate
from headrace.config.sasl_config import (
    INTER_BROKER,
    Login,
    SaslSettings,
    check_open,
    is_sasl_setting,
    sasl_of,
    token_warnings,
)
from headrace.config.secrets import refuse_in_flags
from headrace.config.security_settings import SECURITY_PROTOCOL
from headrace.config.settings import (
    BROKER_NOT_ACTED_ON,
    BROKER_SETTINGS,
    KNOWN_UNUSED,
    ConfigError,
    Value,
    is_known_unused,
    unknown_name,
)
from headrace.config.tls_config import ListenerTls, authenticates, is_tls_setting, listener_setting, tls_of

ENVIRONMENT_PREFIX = "HEADRACE_"
OWN_PREFIX = "headrace."
DEFAULT_NODE_ID = 1
_NOTHING: Mapping[str, str] = MappingProxyType({})


class BrokerConfig:
    """Made by `build`, and not changed after."""

    __slots__ = (
        "_values",
        "advertised_listeners",
        "listeners",
        "sasl",
        "sources",
        "texts",
        "tls",
        "tls_texts",
        "warnings",
    )

    def __init__(
        self,
        texts: Mapping[str, str],
        sources: Mapping[str, str],
        warnings: tuple[str, ...],
        listeners: tuple[ConfiguredListener, ...],
        advertised_listeners: tuple[ConfiguredListener, ...],
        values: dict[str, Value],
        sasl: Mapping[str, SaslSettings] = MappingProxyType({}),
    ) -> None:
        self.texts = texts
        """Every setting that was given, as text."""
        self.sources = sources
        """Where each was given: "flag", "environment" or "file"."""
        self.warnings = warnings
        """Sentences for the operator, to be logged once at start."""
        self.listeners = listeners
        self.tls: Mapping[str, ListenerTls] = {}
        """By the names of the listeners that have it."""
        self.tls_texts: Mapping[str, str] = {}
        """Every setting about TLS that was given, those of single listeners included."""
        self.sasl = sasl
        """How clients log in, by the names of the listeners where they must."""
        self.advertised_listeners = advertised_listeners
        """In the order of `listeners`, one for each; port 0 is filled in once the socket is bound."""
        self._values = values
        """What was given, parsed; defaults join it when they are asked for."""

    @staticmethod
    def build(
        file: Mapping[str, str] = _NOTHING,
        environment: Mapping[str, str] = _NOTHING,
        flags: Mapping[str, str] = _NOTHING,
        host_name: Callable[[], str] = lambda: "localhost",
        places: Mapping[str, str] = _NOTHING,
    ) -> BrokerConfig:
        """From the file's pairs, the process environment as it is, and the pairs of the command line.

        `host_name` is asked only when a listener is open on every interface and none is advertised for it.
        `places` says where in the file each setting stands. ConfigError names every mistake, each in a line.
        """
        warnings: list[str] = []
        texts: dict[str, str] = {}
        sources: dict[str, str] = {}
        for source, pairs in (
            ("file", file),
            ("environment", _from_environment(environment, warnings)),
            ("flag", flags),
        ):
            for name, text in pairs.items():
                texts[name] = text
                sources[name] = source
        in_file = {name: place for name, place in places.items() if sources[name] == "file"}
        mistakes = Mistakes(in_file)
        known, values = _parsed(texts, warnings, mistakes)
        listeners: tuple[ConfiguredListener, ...] = ()
        with mistakes.taken():
            listeners = _listeners(texts, warnings)
        if not listeners:
            mistakes.refuse()
        advertised = listeners
        with mistakes.taken():
            advertised = _advertised(texts, listeners, host_name)
        sasl, tls = _secured(listeners, texts, sources, values, mistakes)
        for name, settings in sasl.items():
            warnings += token_warnings(name, settings)
        config = BrokerConfig(known, sources, tuple(warnings), listeners, advertised, values, sasl)
        config.tls = tls
        config.tls_texts = {name: text for name, text in texts.items() if "ssl." in name}
        for check in _CHECKS:
            with mistakes.taken():
                check(config)
        mistakes.refuse()
        return config

    def value(self, name: str) -> Value:
        """The value of a broker setting that is in the table."""
        if name not in self._values:
            self._values[name] = BROKER_SETTINGS[name].default_value()
        return self._values[name]

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str | None:
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value

    def given(self, name: str) -> str | None:
        """The text that was given, None if the default holds."""
        return self.texts.get(name)

    def connection_rate(self, listener: str) -> int | None:
        """Connections per second that one listener takes; None if it has no limit of its own."""
        value = self._values.get(listener_rate(listener))
        return value if isinstance(value, int) else None

    @property
    def node_id(self) -> int:
        node_id = self.value("node.id")
        if isinstance(node_id, int):
            return node_id
        broker_id = self.integer("broker.id")
        return broker_id if broker_id >= 0 else DEFAULT_NODE_ID

    @property
    def log_dirs(self) -> tuple[str, ...]:
        named = self.value("log.dirs") or self.value("log.dir")
        assert isinstance(named, tuple)
        return tuple(directory for directory in named if directory)

    @property
    def rack(self) -> str | None:
        return self.text("broker.rack")

    @property
    def inter_broker_listener(self) -> ConfiguredListener:
        name = self.text("inter.broker.listener.name")
        if name is None:
            protocol = self.text(SECURITY_PROTOCOL)
            same = [each for each in self.listeners if protocol in (None, each.security_protocol)]
            return same[0] if same else self.listeners[0]
        return next(listener for listener in self.listeners if listener.name == name.upper())

    def check_closed(self, listener: ConfiguredListener, tls: ListenerTls) -> None:
        """Refuse settings of TLS that would open a listener to everybody while the broker runs."""
        authenticated = listener.name in self.sasl or authenticates(tls)
        check_served(listener, authenticated, self.boolean("headrace.allow.insecure"))

    @property
    def own_login(self) -> Login | None:
        """With which this broker logs in at others; None where they ask for no login."""
        sasl = self.sasl.get(self.inter_broker_listener.name)
        if sasl is None:
            return None
        chosen = self.text(INTER_BROKER)
        return sasl.own.get(chosen) if chosen else next(iter(sasl.own.values()), None)


def environment_name(name: str) -> str:
    """The variable that sets a setting. Ours do not repeat the product's name."""
    return ENVIRONMENT_PREFIX + name.removeprefix(OWN_PREFIX).upper().replace(".", "_")


def _from_environment(environment: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    given = {name: text for name, text in environment.items() if name.startswith(ENVIRONMENT_PREFIX)}
    if not given:
        return {}
    by_variable = {environment_name(name): name for name in [*BROKER_SETTINGS, *KNOWN_UNUSED]}
    pairs: dict[str, str] = {}
    for variable, text in given.items():
        if variable in by_variable:
            pairs[by_variable[variable]] = text
        else:
            # Not an error: container platforms put variables of this form into the environment by themselves.
            warnings.append(f"The environment variable {variable} is not a known setting; it is ignored.")
    return pairs


def _parsed(
    texts: Mapping[str, str], warnings: list[str], mistakes: Mistakes
) -> tuple[dict[str, str], dict[str, Value]]:
    """The settings that are used, as text and as values."""
    known: dict[str, str] = {}
    values: dict[str, Value] = {}
    for name, text in texts.items():
        with mistakes.taken(name):
            if (problem := class_problem(name, text)) is not None:
                raise ConfigError(f"Invalid value '{text}' for configuration {name}: {problem}.")
            if is_listener_rate(name):
                values[name] = BROKER_SETTINGS[CONNECTION_RATE].parse(text)
            elif _is_used(name, warnings):
                values[name] = BROKER_SETTINGS[name].parse(text)
                known[name] = text
    return known, values


def _secured(
    listeners: tuple[ConfiguredListener, ...],
    texts: Mapping[str, str],
    sources: Mapping[str, str],
    values: Mapping[str, Value],
    mistakes: Mistakes,
) -> tuple[dict[str, SaslSettings], dict[str, ListenerTls]]:
    """How the listeners authenticate clients and encrypt; nobody is let in by a mistake."""
    before = len(mistakes)
    sasl: dict[str, SaslSettings] = {}
    tls: dict[str, ListenerTls] = {}
    with mistakes.taken():
        sasl = sasl_of(listeners, texts, sources)
    with mistakes.taken():
        tls = tls_of(listeners, texts, sources)
    if len(mistakes) > before:
        return sasl, tls  # a listener that misses its settings would look like an open one
    insecure = values.get("headrace.allow.insecure") is True
    for listener in listeners:
        with mistakes.taken():
            check_served(listener, listener.name in sasl or authenticates(tls.get(listener.name)), insecure)
            if listener.name in sasl:
                check_open(listener, sasl[listener.name], insecure)
    return sasl, tls


def _is_used(name: str, warnings: list[str]) -> bool:
    if name in BROKER_NOT_ACTED_ON:
        warnings.append(f"{name} is accepted, but has no effect in this version.")
    if name in BROKER_SETTINGS:
        return True
    if is_sasl_setting(name):
        return False
    if is_tls_setting(name):
        rest = listener_setting(name)[1]
        if rest not in BROKER_SETTINGS and not is_known_unused(rest):
            raise unknown_name("broker", rest, [*BROKER_SETTINGS, *KNOWN_UNUSED])
        return False
    if not is_known_unused(name):
        raise unknown_name("broker", name, [*BROKER_SETTINGS, *KNOWN_UNUSED])
    warnings.append(ignored(name))
    return False


def _listeners(texts: Mapping[str, str], warnings: list[str]) -> tuple[ConfiguredListener, ...]:
    controllers = {name.strip().upper() for name in texts.get("controller.listener.names", "").split(",")}
    listeners = parse_listeners("listeners", _text(texts, "listeners"), _protocols(texts, controllers))
    served = tuple(listener for listener in listeners if listener.name not in controllers)
    for listener in listeners:
        if listener not in served:
            warnings.append(f"{listener} is a listener for KRaft controllers; Headrace has none and ignores it.")
    if not served:
        raise ConfigError("listeners has no listener for clients")
    return served


def _advertised(
    texts: Mapping[str, str], listeners: tuple[ConfiguredListener, ...], host_name: Callable[[], str]
) -> tuple[ConfiguredListener, ...]:
    controllers = {name.strip().upper() for name in texts.get("controller.listener.names", "").split(",")}
    text = texts.get("advertised.listeners", "")
    given = parse_listeners("advertised.listeners", text, _protocols(texts, controllers))
    by_name = {listener.name: listener for listener in given if listener.name not in controllers}
    unadvertised = [listener for listener in listeners if listener.name not in by_name]
    advertised = (*by_name.values(), *unadvertised)
    check_advertised(advertised, listeners)
    named = {
        listener.name: listener if listener.host else listener._replace(host=host_name())
        for listener in advertised
    }
    return tuple(named[listener.name] for listener in listeners)


def _protocols(texts: Mapping[str, str], controllers: set[str]) -> dict[str, str]:
    protocols = parse_protocol_map(_text(texts, "listener.security.protocol.map"))
    # As in Kafka: a controller's listener is plain unless the map says otherwise.
    return dict.fromkeys(controllers, "PLAINTEXT") | protocols


def _text(texts: Mapping[str, str], name: str) -> str:
    return texts.get(name) or BROKER_SETTINGS[name].default or ""


def _no_own_login(config: BrokerConfig) -> str:
    listener = config.inter_broker_listener.name
    mechanism = config.text(INTER_BROKER) or config.sasl[listener].mechanisms[0]
    if mechanism == OAUTHBEARER:
        return (
            f"the inter-broker listener {listener} uses OAUTHBEARER, but this broker has no token: set "
            f"{TOKEN_URL}, or choose another mechanism with sasl.mechanism.inter.broker.protocol"
        )
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    return (
        f"the inter-broker listener {listener} uses SASL, but this broker has no name and password of its own "
        f"for {mechanism}: put username and password into {key}, or name a listener without SASL in "
        "inter.broker.listener.name"
    )


def _check_admin(config: BrokerConfig) -> None:
    host, ways = config.text("headrace.admin.host") or "", config.value("headrace.admin.auth")
    if isinstance(ways, tuple) and "token" in ways and not config.text("headrace.admin.token.file"):
        raise ConfigError("headrace.admin.auth=token needs headrace.admin.token.file, the file with the tokens")
    if not ways and not is_loopback(host) and not config.boolean("headrace.allow.insecure"):
        raise ConfigError(
            f"headrace.admin.host={host or '(every interface)'} would show metrics and groups to everybody on the "
            "network. Set headrace.admin.auth=users or token, leave it on 127.0.0.1, or accept the risk with "
            "--insecure (headrace.allow.insecure=true)."
        )


def _check_zookeeper(config: BrokerConfig) -> None:
    if config.boolean("zookeeper.set.acl") and not (
        config.value("headrace.zookeeper.digest") or config.value("zookeeper.ssl.keystore.location")
    ):
        raise ConfigError(
            "zookeeper.set.acl needs a login at ZooKeeper: set headrace.zookeeper.digest=user:password"
        )
    refuse_in_flags(config.sources, "headrace.zookeeper.digest")


def _check_inter_broker(config: BrokerConfig) -> None:
    name = config.text("inter.broker.listener.name")
    if name is not None and name.upper() not in {listener.name for listener in config.listeners}:
        raise ConfigError(f"inter.broker.listener.name: {name} is not one of the listeners")
    protocol = config.text(SECURITY_PROTOCOL)
    if protocol is not None:
        if name is not None:
            raise ConfigError(f"inter.broker.listener.name and {SECURITY_PROTOCOL} cannot be combined: give one")
        if protocol not in {listener.security_protocol for listener in config.listeners}:
            raise ConfigError(f"{SECURITY_PROTOCOL}: none of the listeners has {protocol}")
    if config.inter_broker_listener.name in config.sasl and config.own_login is None:
        raise ConfigError(_no_own_login(config))


def _check_group_limits(config: BrokerConfig) -> None:
    check_group_limits(config.integer)


def _check_directories(config: BrokerConfig) -> None:
    if not config.log_dirs:
        raise ConfigError("log.dirs is empty")
    if len(set(config.log_dirs)) != len(config.log_dirs):
        raise ConfigError("log.dirs lists a data directory twice")


def _check_identity(config: BrokerConfig) -> None:
    broker_id, node_id = config.given("broker.id"), config.given("node.id")
    if broker_id is not None and node_id is not None and config.integer("broker.id") != config.node_id:
        raise ConfigError(f"node.id={node_id} and broker.id={broker_id} contradict each other; give one of them")


_CHECKS = (
    _check_admin,
    _check_zookeeper,
    _check_inter_broker,
    _check_group_limits,
    _check_directories,
    _check_identity,
)
"""Rules over several settings."""
