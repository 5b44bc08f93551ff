"""What `headrace start --workers N` adds to the settings of each of its brokers.

Worker i gets `node.id` + i, and every port of its listeners, of the addresses it advertises and of its admin page
plus i; port 0 stays 0, any free one. `broker.rack` is the host's name unless it is set, so that replicas are
spread over hosts where there are several. From three workers on, `default.replication.factor` is 3 unless set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from headrace.config.broker_config import BrokerConfig
from headrace.config.listeners import MAX_PORT, ConfiguredListener
from headrace.config.setting import ConfigError

MAX_WORKERS = 64
REPLICAS = 3


def worker_settings(config: BrokerConfig, workers: int, host_name: str) -> list[dict[str, str]]:
    """The settings of each worker; `ConfigError` if they would conflict."""
    _check_distances(config.listeners, workers)
    return [_settings(config, index, workers, host_name) for index in range(workers)]


def _settings(config: BrokerConfig, index: int, workers: int, host_name: str) -> dict[str, str]:
    settings = {
        name: str(config.node_id + index)
        for name in ("node.id", "broker.id")
        if name == "node.id" or config.given(name) is not None
    }
    settings["listeners"] = _shifted("listeners", config.listeners, index)
    if config.given("advertised.listeners") is not None:
        settings["advertised.listeners"] = _shifted("advertised.listeners", config.advertised_listeners, index)
    admin_port = config.integer("headrace.admin.port")
    if admin_port > 0:
        settings["headrace.admin.port"] = str(_port("headrace.admin.port", admin_port, index))
    if config.rack is None:
        settings["broker.rack"] = host_name
    if workers >= REPLICAS and config.given("default.replication.factor") is None:
        settings["default.replication.factor"] = str(REPLICAS)
    return settings


def wanted_ports(config: BrokerConfig, workers: int) -> Iterator[tuple[str, int, int]]:
    """Host, port and broker id for every fixed port that will be opened."""
    for index in range(workers):
        for listener in config.listeners:
            if listener.port:
                yield listener.host, listener.port + index, config.node_id + index
        admin_port = config.integer("headrace.admin.port")
        if admin_port > 0:
            yield config.text("headrace.admin.host") or "", admin_port + index, config.node_id + index


def _shifted(name: str, listeners: Sequence[ConfiguredListener], index: int) -> str:
    return ",".join(str(one._replace(port=_port(name, one.port, index))) for one in listeners)


def _port(name: str, port: int, index: int) -> int:
    if port and port + index > MAX_PORT:
        raise ConfigError(f"{name}: port {port} leaves no room for {index + 1} workers below {MAX_PORT + 1}")
    return port + index if port else 0


def _check_distances(listeners: Sequence[ConfiguredListener], workers: int) -> None:
    """Each listener needs one port per worker, counting up."""
    fixed = sorted((one for one in listeners if one.port), key=lambda one: one.port)
    for one, following in pairwise(fixed):
        if following.port - one.port < workers:
            raise ConfigError(
                f"listeners: {one} and {following} are too close for {workers} workers: each takes "
                f"{workers} ports in a row. Leave at least {workers} between them."
            )
