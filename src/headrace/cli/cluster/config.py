"""`headrace cluster config`: settings of brokers, shown or changed."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.common.completing import complete_broker_settings
from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import Column, Row, emit_rows, note, plural
from headrace.cli.common.session import run
from headrace.cli.topic.admin import changes_of
from headrace.client.admin import ConfigEntry, ConfigResource, alter_configs, describe_configs
from headrace.client.cluster import Cluster
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError

COLUMNS = (
    Column("name", "NAME"),
    Column("value", "VALUE"),
    Column("source", "SET-BY"),
    Column("read_only", "READ-ONLY", wide=True),
    Column("documentation", "MEANING", wide=True),
)
LISTING = {
    ResourceType.BROKER: "headrace cluster config --all",
    ResourceType.GROUP: "headrace group config --all GROUP",
}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--broker", type=int, help="Broker id. Default: the controller.")
@click.option("--all", "everything", is_flag=True, help="Include settings at their default.")
@click.option(
    "-s",
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting; may be repeated.",
    shell_complete=complete_broker_settings,
)
@click.option(
    "-d",
    "--delete",
    "unsets",
    multiple=True,
    metavar="KEY",
    help="Reset to the file's value or the default.",
    shell_complete=complete_broker_settings,
)
@format_option
@cluster_options
def config(
    target: Target,
    names: tuple[str, ...],
    broker: int | None,
    everything: bool,
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    format: str,
) -> None:
    """Show the settings of a broker that differ from the default, or the NAMEs given.

    --set and --delete change them at run time: for one --broker, or for all.
    """
    if sets or unsets:
        changes = changes_of(sets, unsets)
        resource = ConfigResource(ResourceType.BROKER, "" if broker is None else str(broker))
        run(target, lambda cluster: _alter(cluster, resource, changes))
        whose = "all brokers" if broker is None else f"broker {broker}"
        note(f"Changed {plural(len(changes), 'setting')} of {whose}.")
        return
    rows = run(target, lambda cluster: _shown(cluster, broker, names, everything))
    emit_rows(rows, COLUMNS, format, "Every setting is at its default; --all shows them.")


async def _alter(cluster: Cluster, resource: ConfigResource, changes: list[Any]) -> None:
    if unsets := tuple(name for name, operation, _ in changes if operation is ConfigOperation.DELETE):
        await _shown(cluster, None, unsets, True)  # refuses names that do not exist
    await altered(cluster, resource, changes, f"broker {resource.name}" if resource.name else "all brokers")


async def altered(cluster: Cluster, resource: ConfigResource, changes: list[Any], whose: str) -> None:
    try:
        await alter_configs(cluster, resource, changes)
    except KafkaError as error:
        failure = explain_kafka(error, whose)
        if error.code is ErrorCode.INVALID_CONFIG:
            failure.advice = f"`{LISTING[resource.type]}` lists the settings."
        raise failure from None


async def _shown(cluster: Cluster, broker: int | None, names: tuple[str, ...], everything: bool) -> list[Row]:
    asked = (await cluster.metadata([])).controller_id if broker is None else broker
    resource = ConfigResource(ResourceType.BROKER, str(asked))
    return await shown(cluster, resource, f"Broker {asked}", names, everything)


async def shown(
    cluster: Cluster, resource: ConfigResource, whose: str, names: tuple[str, ...], everything: bool
) -> list[Row]:
    entries = await describe_configs(cluster, resource, names or None, documentation=True)
    if missing := [name for name in names if name not in {entry.name for entry in entries}]:
        raise CommandError(f"{whose} has no setting {', '.join(missing)}.", NOT_FOUND)
    return [as_row(entry) for entry in entries if everything or names or not entry.is_default]


def as_row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": "(hidden)" if entry.sensitive else entry.value,
        "source": entry.source,
        "read_only": entry.read_only,
        "documentation": entry.documentation,
    }
