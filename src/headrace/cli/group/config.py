"""`headrace group config`: settings of one group, shown or changed."""

from __future__ import annotations

import click

from headrace.cli.cluster.config import COLUMNS, altered, shown
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import emit_rows, note, plural
from headrace.cli.common.session import run
from headrace.cli.topic.admin import changes_of
from headrace.client.admin import ConfigResource
from headrace.model.config_resources import ResourceType


@click.command()
@click.argument("group")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--all", "everything", is_flag=True, help="Include settings at their default.")
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a setting; may be repeated.")
@click.option("-d", "--delete", "unsets", multiple=True, metavar="KEY", help="Reset to the broker's value.")
@format_option
@cluster_options
def config(
    target: Target,
    group: str,
    names: tuple[str, ...],
    everything: bool,
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    format: str,
) -> None:
    """Show the settings of GROUP that differ from the default, or the NAMEs given.

    --set and --delete change them; members get the change with their next heartbeat.
    """
    resource = ConfigResource(ResourceType.GROUP, group)
    if sets or unsets:
        changes = changes_of(sets, unsets)
        run(target, lambda cluster: altered(cluster, resource, changes, f"group {group}"))
        note(f"Changed {plural(len(changes), 'setting')} of group {group}.")
        return
    rows = run(target, lambda cluster: shown(cluster, resource, f"Group {group}", names, everything))
    emit_rows(rows, COLUMNS, format, "Every setting is at its default; --all shows them.")
