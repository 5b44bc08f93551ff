"""`headrace kafka-configs`: Kafka's tool for settings of topics, brokers and groups, and for quotas."""

from __future__ import annotations

import re
from itertools import zip_longest

import click

from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.session import run, topics_of
from headrace.cli.kafka_tools.quota_configs import (
    TYPES,
    Named,
    alter_entity,
    described_entities,
    entity_title,
    quota_entity,
    quota_values,
)
from headrace.cli.kafka_tools.shared import exactly_one, ignored
from headrace.client.admin import (
    ConfigEntry,
    ConfigResource,
    alter_configs,
    configured,
    describe_configs,
)
from headrace.client.cluster import Cluster
from headrace.model.config_resources import ConfigOperation, ResourceType

_PAIR = re.compile(r"\s*([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)\s*(?:,|$)")
_OTHER_TYPES = ("client-metrics", "broker-loggers")
_NAMES_IN_ORDER = "headrace.entity_names"
_NAMES = {ResourceType.TOPIC: "topic", ResourceType.BROKER: "broker", ResourceType.GROUP: "group"}


class _InOrder(click.Command):
    """Remembers in which order names and defaults were given: each belongs to the entity type of its place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names: list[str | None] = []
        for word, following in zip_longest(args, args[1:]):
            if word == "--entity-name":
                names.append(following)
            elif word.startswith("--entity-name="):
                names.append(word.partition("=")[2])
            elif word == "--entity-default":
                names.append(None)
        ctx.meta[_NAMES_IN_ORDER] = names
        return super().parse_args(ctx, args)


@click.command("kafka-configs", cls=_InOrder)
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option(
    "--entity-type",
    "entity_types",
    multiple=True,
    type=click.Choice(["topics", "brokers", "groups", *TYPES, *_OTHER_TYPES]),
)
@click.option("--entity-name", "entity_names", multiple=True)
@click.option("--entity-default", is_flag=True)
@click.option("--topic")
@click.option("--broker")
@click.option("--broker-defaults", is_flag=True)
@click.option("--group")
@click.option("--user", metavar="NAME")
@click.option("--user-defaults", is_flag=True)
@click.option("--client", metavar="NAME")
@click.option("--client-defaults", is_flag=True)
@click.option("--ip", metavar="ADDRESS")
@click.option("--ip-defaults", is_flag=True)
@click.option("--add-config", default="", metavar="K=V,K=[V,V],...")
@click.option("--delete-config", default="", metavar="K,K,...")
@click.option("--all", "everything", is_flag=True, help="Include settings at their default.")
@ignored("--command-config")
@cluster_options
def kafka_configs(
    target: Target,
    describe: bool,
    alter: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    group: str | None,
    add_config: str,
    delete_config: str,
    everything: bool,
    **quotas: str | bool | None,
) -> None:
    """Kafka's tool for settings: --describe or --alter topics, brokers, groups, users, clients and ips."""
    action = exactly_one({"--describe": describe, "--alter": alter})
    named = _quota_entities(entity_types, quotas)
    if named:
        _quotas(target, action, named, add_config, delete_config)
        return
    if len(entity_types) > 1 or len(entity_names) > 1:
        raise click.UsageError("Several entities are possible for users with clients only.")
    entity_type = entity_types[0] if entity_types else None
    entity_name = entity_names[0] if entity_names else None
    if group is not None or entity_type == "groups":
        kind, name = ResourceType.GROUP, group or entity_name
    else:
        kind, name = _entity(entity_type, entity_name, topic, broker, broker_defaults or entity_default)
    if action == "--describe":
        for line in run(target, lambda cluster: _described(cluster, kind, name, everything)):
            click.echo(line)
        return
    if name is None:
        raise click.UsageError("--alter needs --entity-name.")
    changes = _changes(add_config, delete_config)
    run(target, lambda cluster: _altered(cluster, ConfigResource(kind, name), changes))
    click.echo(f"Completed updating {_title(kind, name)}.")


def _quota_entities(types: tuple[str, ...], options: dict[str, str | bool | None]) -> list[Named]:
    """Users, clients and ips, in either of Kafka's two ways; none if others are meant."""
    named: list[Named] = []
    if any(kind in TYPES for kind in types):
        if not all(kind in TYPES for kind in types):
            raise click.UsageError("Users, clients and ips cannot be combined with other entity types.")
        given = click.get_current_context().meta[_NAMES_IN_ORDER]
        if len(given) > len(types):
            raise click.UsageError("There are more names than entity types.")
        for kind, place in zip_longest(types, range(len(given))):
            name = None if place is None else given[place]
            named.append((kind, name, place is not None and name is None))
    for kind, option in (("users", "user"), ("clients", "client"), ("ips", "ip")):
        name, is_default = options[option], options[f"{option}_defaults"]
        if name is not None or is_default:
            named.append((kind, None if name is None else str(name), name is None))
    return named


def _quotas(target: Target, action: str, named: list[Named], add: str, delete: str) -> None:
    if action == "--describe":
        for line in run(target, lambda cluster: described_entities(cluster, named)):
            click.echo(line)
        return
    entity = quota_entity(named)
    changes = _changes(add, delete)
    values = quota_values(
        {name: value or "" for name, operation, value in changes if operation is ConfigOperation.SET},
        [name for name, operation, _ in changes if operation is ConfigOperation.DELETE],
    )
    run(target, lambda cluster: alter_entity(cluster, entity, values))
    click.echo(f"Completed updating config for {entity_title(entity)}.")


def _entity(
    entity_type: str | None, entity_name: str | None, topic: str | None, broker: str | None, default: bool
) -> tuple[ResourceType, str | None]:
    """None as a name: all of them."""
    if topic is not None:
        return ResourceType.TOPIC, topic
    if entity_type == "topics":
        return ResourceType.TOPIC, entity_name
    if entity_type in _OTHER_TYPES:
        raise click.UsageError(
            f"--entity-type {entity_type} is not supported here; use topics, brokers or groups."
        )
    if entity_type is None and broker is None and not default:
        raise click.UsageError(
            "Give --entity-type topics|brokers|groups with --entity-name, or --topic, --broker or --group."
        )
    name = "" if default else broker or entity_name
    if name and not name.isdigit():
        raise click.UsageError(f"A broker is named by its number, not {name!r}.")
    return ResourceType.BROKER, name


def _title(kind: ResourceType, name: str) -> str:
    return f"config for {_NAMES[kind]} {name}" if name else "default config for brokers in the cluster"


def _changes(add: str, delete: str) -> list[tuple[str, ConfigOperation, str | None]]:
    changes: list[tuple[str, ConfigOperation, str | None]] = []
    position = 0
    while position < len(add):
        match = _PAIR.match(add, position)
        if match is None:
            raise click.UsageError(f"--add-config {add!r} is not of the form key=value,key=[value,value]")
        value = match[2].strip()
        changes.append((match[1], ConfigOperation.SET, value[1:-1] if value.startswith("[") else value))
        position = match.end()
    changes += [(name.strip(), ConfigOperation.DELETE, None) for name in delete.split(",") if name.strip()]
    if not changes:
        raise click.UsageError("--alter needs --add-config or --delete-config.")
    return changes


async def _altered(
    cluster: Cluster, resource: ConfigResource, changes: list[tuple[str, ConfigOperation, str | None]]
) -> None:
    if resource.type is ResourceType.TOPIC:
        await topics_of(cluster, [resource.name])
    await alter_configs(cluster, resource, changes)


async def _described(cluster: Cluster, kind: ResourceType, name: str | None, everything: bool) -> list[str]:
    if name is not None:
        names = [name]
    elif kind is ResourceType.TOPIC:
        names = list((await cluster.metadata()).topics)
    elif kind is ResourceType.GROUP:
        names = await configured(cluster, kind)
    else:
        names = [*(str(broker) for broker in (await cluster.metadata([])).brokers), ""]
    if kind is ResourceType.TOPIC:
        await topics_of(cluster, names)
    lines: list[str] = []
    for one in names:
        entries = await describe_configs(cluster, ConfigResource(kind, one))
        lines.append(_heading(kind, one, everything))
        lines += [_line(entry) for entry in entries if everything or _is_dynamic(entry, kind, one)]
    return lines


def _is_dynamic(entry: ConfigEntry, kind: ResourceType, name: str) -> bool:
    if kind is not ResourceType.BROKER:
        return entry.source == _NAMES[kind]
    return entry.source == ("broker" if name else "all brokers")


def _heading(kind: ResourceType, name: str, everything: bool) -> str:
    which = "All" if everything else "Dynamic"
    if not name:
        return "Default configs for brokers in the cluster are:"
    return f"{which} configs for {_NAMES[kind]} {name} are:"


def _line(entry: ConfigEntry) -> str:
    return f"  {entry.name}={entry.value} sensitive={str(entry.sensitive).lower()} source={entry.source}"
