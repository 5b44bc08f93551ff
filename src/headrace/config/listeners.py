"""Listeners: where the broker can be reached, under which name, and with which security protocol."""

from __future__ import annotations

from typing import NamedTuple

from headrace.config.setting import ConfigError

LISTENER_PREFIX = "listener.name."
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_META_ADDRESSES = ("0.0.0.0", "::")
MAX_PORT = 65535


class ConfiguredListener(NamedTuple):
    name: str
    host: str
    """Empty or a meta-address for every interface."""
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """A name other than localhost counts as open."""
    if host in ("localhost", "::1"):
        return True
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)


def parse_protocol_map(text: str) -> dict[str, str]:
    """`name:protocol,...` as listener name -> security protocol."""
    protocols: dict[str, str] = {}
    for entry in _entries(text):
        name, colon, protocol = entry.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not (name and colon):
            raise ConfigError(f"listener.security.protocol.map: {entry!r} is not of the form name:protocol")
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {protocol!r} is not one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in protocols:
            raise ConfigError(f"listener.security.protocol.map: {name} is listed twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(key: str, text: str, protocols: dict[str, str]) -> tuple[ConfiguredListener, ...]:
    """`name://host:port,...`; names and ports may not repeat."""
    listeners = tuple(_parse_listener(key, entry, protocols) for entry in _entries(text))
    for index, listener in enumerate(listeners):
        for earlier in listeners[:index]:
            if earlier.name == listener.name:
                raise ConfigError(f"{key}: the name {listener.name} is listed twice")
            if (
                key == "listeners"
                and listener.port
                and (earlier.host, earlier.port) == (listener.host, listener.port)
            ):
                raise ConfigError(f"{key}: {earlier} and {listener} use the same port")
    return listeners


def check_advertised(
    advertised: tuple[ConfiguredListener, ...], listeners: tuple[ConfiguredListener, ...]
) -> None:
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners: {listener.name} is not one of the listeners ({', '.join(names)})"
            )
        if listener.host in _META_ADDRESSES:
            raise ConfigError(
                f"advertised.listeners: {listener} is not an address that clients can connect to; set one"
            )


def check_served(listener: ConfiguredListener, authenticates: bool, allow_insecure: bool) -> None:
    """Refuse an open door that nobody asked for (R-OPS-5)."""
    if authenticates or listener.loopback or allow_insecure:
        return
    ways = "SASL_SSL with SCRAM, or SSL with ssl.client.auth=required"
    if listener.security_protocol == "SSL":
        ways = "ssl.client.auth=required, or SASL_SSL with SCRAM"
    raise ConfigError(
        f"listener {listener} lets everybody on the network read and write without authentication. "
        f"Either authenticate clients ({ways}), or accept "
        "the risk with --insecure (headrace.allow.insecure=true). "
        "To serve this machine only, listen on 127.0.0.1."
    )


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _parse_listener(key: str, entry: str, protocols: dict[str, str]) -> ConfiguredListener:
    name, slashes, address = entry.partition("://")
    host, colon, port_text = address.rpartition(":")
    name = name.strip().upper()
    if not (name and slashes and colon and port_text.isdigit()):
        raise ConfigError(f"{key}: {entry!r} is not of the form name://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "/" in host:
        raise ConfigError(f"{key}: {entry!r} has no valid host; write an IPv6 address in brackets")
    if int(port_text) > MAX_PORT:
        raise ConfigError(f"{key}: {entry!r} has a port above {MAX_PORT}")
    if name not in protocols:
        raise ConfigError(f"{key}: listener.security.protocol.map does not map {name} to a security protocol")
    return ConfiguredListener(name, host, int(port_text), protocols[name])
