"""A connector as a file declares it, in YAML. `${NAME}` and `${NAME:-default}` are taken from the environment.

name: shop
connector: postgres-source
config:
  connection: postgresql://reader:${PASSWORD}@db/shop
  tables: [public.orders]
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headrace.connect.api import Connector, ConnectorError, Sink
from headrace.connect.login import checked_client
from headrace.connect.options import ConfigOption, ConfigProblems, ConnectorConfig, parse_config
from headrace.connect.registry import find_connector
from headrace.connect.run import NewTopics
from headrace.connect.sink_run import SinkInput

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}")
_VARIABLE = re.compile(r"\$\$\{|\$\{(\w+)(?::-([^}]*))?\}")

FILE_OPTIONS = (
    ConfigOption(
        "name",
        "text",
        "Names the connector: its positions and its transactions carry it. Lower case letters, digits, `-`, `_`.",
    ),
    ConfigOption(
        "connector", "text", "The connector to run: a name, `module:Class` or `file.py:Class`.", required=True
    ),
    ConfigOption(
        "bootstrap",
        "text",
        "Bootstrap brokers. `--bootstrap-server` and `HEADRACE_BOOTSTRAP_SERVERS` override it.",
    ),
    ConfigOption(
        "client",
        "mapping",
        "To connect to a secured cluster: `security.protocol`, `sasl.*`, `ssl.*`. `--client-config` is stronger.",
        secret=True,
    ),
    ConfigOption("config", "mapping", "The options of the connector."),
)
SOURCE_OPTIONS = (
    ConfigOption("partitions", "whole number", "Partitions of the topics that the source creates.", minimum=1),
    ConfigOption("replication", "whole number", "Replicas of these topics.", minimum=1),
    ConfigOption("topic_config", "mapping", "Settings of these topics, such as `retention.ms`."),
)
SINK_OPTIONS = (
    ConfigOption("topics", "list", "The topics to read.", required=True),
    ConfigOption(
        "start",
        "text",
        "Where a sink without a stored position starts.",
        "earliest",
        choices=("earliest", "latest"),
    ),
    ConfigOption("tasks", "whole number", "How many tasks share the partitions.", 1, minimum=1),
    ConfigOption("batch_bytes", "size", "Maximum size of what is read and written in one transaction.", "4MB"),
)


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    name: str
    type: str
    """As the file names it."""
    connector: Connector
    bootstrap: str | None = None
    new_topics: NewTopics = field(default_factory=NewTopics)
    sink_input: SinkInput | None = None
    """None for a source."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """The options that were given, without secrets."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of a client for a secured cluster; see `login`."""


def load_file(path: Path) -> ConnectorDefinition:
    """Raises `ConnectorError` or `ConfigProblems`; what the options say together has been checked too."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConnectorError(f"it cannot be read: {error.strerror}") from None
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConnectorError(f"it is not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConnectorError("it does not declare a connector: it begins with connector: NAME")
    return load(_expanded(raw), path.stem, path.parent)


def load(given: Mapping[str, Any], default_name: str, beside: Path | None = None) -> ConnectorDefinition:
    """From what a file holds, or a part of a pipeline."""
    type_name = given.get("connector")
    if not isinstance(type_name, str):
        raise ConfigProblems(["connector is missing: it names the connector to run"])
    found = find_connector(type_name, beside)
    is_sink = issubclass(found, Sink)
    common = parse_config(
        (*FILE_OPTIONS, *(SINK_OPTIONS if is_sink else SOURCE_OPTIONS)), {**given, "config": None}
    )
    own = given.get("config") or {}
    if not isinstance(own, dict):
        raise ConfigProblems(["config: it must be a mapping"])
    name = common.text("name") or default_name
    if not NAME.fullmatch(name):
        raise ConfigProblems([f"{name!r} is not a valid connector name: use lower case letters, digits, - and _"])
    connector = found(name, parse_config(found.options, own))
    connector.check()
    return ConnectorDefinition(
        name,
        type_name,
        connector,
        common.text("bootstrap"),
        NewTopics() if is_sink else _new_topics(common),
        _sink_input(common) if is_sink else None,
        {
            option.name: str(own[option.name])
            for option in found.options
            if option.name in own and not option.secret
        },
        checked_client(common.table("client"), beside),
    )


def _new_topics(common: ConnectorConfig) -> NewTopics:
    partitions, replication = (common.number(name) or -1 for name in ("partitions", "replication"))
    return NewTopics(partitions, replication, common.table("topic_config"))


def _sink_input(common: ConnectorConfig) -> SinkInput:
    return SinkInput(
        common.texts("topics"),
        common.text("start") == "latest",
        common.number("tasks"),
        common.number("batch_bytes"),
    )


def _expanded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _expanded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_expanded(one) for one in value]
    return _VARIABLE.sub(_variable, value) if isinstance(value, str) else value


def _variable(match: re.Match[str]) -> str:
    if match[0] == "$${":
        return "${"
    found = os.environ.get(match[1], match[2])
    if found is None:
        raise ConnectorError(f"the environment has no variable {match[1]}, which the file uses")
    return found
