"""`headrace quota list|describe|set|delete`: limits of users, client ids and addresses, as Kafka keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.options import Target, cluster_options, confirm, format_option, size, yes_option
from headrace.cli.common.output import Column, count, emit_rows, note
from headrace.cli.common.session import conclude, run
from headrace.client.cluster import Cluster
from headrace.client.quotas import QuotaRow, alter_quotas, describe_quotas
from headrace.model.errors import KafkaError
from headrace.security.quota import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    QuotaFilter,
    applying,
    entity_of,
)

OPTIONS = {
    "produce": PRODUCER_BYTE_RATE,
    "fetch": CONSUMER_BYTE_RATE,
    "requests": REQUEST_PERCENTAGE,
    "mutations": CONTROLLER_MUTATION_RATE,
    "connections": CONNECTION_CREATION_RATE,
}
"""By the name of the option."""
COLUMNS = (
    Column("user", "USER"),
    Column("client_id", "CLIENT-ID"),
    Column("ip", "IP"),
    count(PRODUCER_BYTE_RATE, "PRODUCE B/S"),
    count(CONSUMER_BYTE_RATE, "FETCH B/S"),
    count(REQUEST_PERCENTAGE, "REQUESTS %"),
    count(CONTROLLER_MUTATION_RATE, "MUTATIONS/S"),
    count(CONNECTION_CREATION_RATE, "CONNECTIONS/S"),
)
APPLYING = (Column("quota", "QUOTA"), count("value", "VALUE"), Column("from", "SET FOR"))
DEFAULT = "<default>"


def entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say whose quotas are meant, given to the command as types and names."""
    options = (
        click.option("-u", "--user", metavar="NAME", help="A user."),
        click.option("-c", "--client-id", metavar="NAME", help="A client id; with --user, of that user."),
        click.option("--ip", metavar="ADDRESS", help="An address that clients connect from."),
        click.option("--default-user", is_flag=True, help="All users without their own quota."),
        click.option("--default-client-id", is_flag=True, help="All client ids without their own quota."),
        click.option("--default-ip", is_flag=True, help="All addresses without their own quota."),
    )

    def command(
        target: Target,
        user: str | None,
        client_id: str | None,
        ip: str | None,
        default_user: bool,
        default_client_id: bool,
        default_ip: bool,
        **rest: Any,
    ) -> Any:
        given = ((USER, user, default_user), (CLIENT_ID, client_id, default_client_id), (IP, ip, default_ip))
        for kind, name, is_default in given:
            if name is not None and is_default:
                raise click.UsageError(f"Give --{kind} or --default-{kind}, not both.")
        parts = [(kind, name) for kind, name, is_default in given if name is not None or is_default]
        return function(target, parts, **rest)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    decorated: Callable[..., Any] = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


Parts = list[tuple[str, str | None]]


@click.command("list")
@format_option
@cluster_options
@entity_options
def list_command(target: Target, parts: Parts, format: str) -> None:
    """List the quotas that are set; with a user, client id or address only those for it."""
    filters = [QuotaFilter(kind, False, name) for kind, name in parts]
    rows = run(target, lambda cluster: describe_quotas(cluster, filters))
    emit_rows(
        [_row(one) for one in rows],
        COLUMNS,
        format,
        empty="There are no such quotas." if filters else "There are no quotas.",
    )


@click.command()
@format_option
@cluster_options
@entity_options
def describe(target: Target, parts: Parts, format: str) -> None:
    """Show which quotas apply to a client, and for whom each of them was set.

    headrace quota describe --user alice --client-id billing
    """
    names = dict(parts)
    if not names or None in names.values():
        raise click.UsageError("Give --user, --client-id, both of them, or --ip.")
    rows = run(target, describe_quotas)
    found = applying({one.entity: one.values for one in rows}, names)
    emit_rows(
        [{"quota": key, "value": value, "from": _text(entity)} for key, (value, entity) in found.items()],
        APPLYING,
        format,
        empty="No quota applies to it.",
    )


def _whole_rate(text: str) -> float:
    return float(size(text))


@click.command("set")
@cluster_options
@click.option("--produce", type=_whole_rate, metavar="BYTES/S", help="Maximum write rate, such as 10MB.")
@click.option("--fetch", type=_whole_rate, metavar="BYTES/S", help="Maximum read rate.")
@click.option("--requests", type=float, metavar="PERCENT", help="Maximum share of a broker's event loop.")
@click.option("--mutations", type=float, metavar="N/S", help="Maximum rate of created and deleted partitions.")
@click.option("--connections", type=float, metavar="N/S", help="Maximum rate of new connections from an address.")
@entity_options
def set_command(target: Target, parts: Parts, **limits: float | None) -> None:
    """Set quotas; those that are not given stay unchanged.

    headrace quota set --user alice --produce 10MB --fetch 20MB
    """
    values: dict[str, float | None] = {OPTIONS[name]: value for name, value in limits.items() if value is not None}
    if not values:
        raise click.UsageError("Give a limit: --produce, --fetch, --requests, --mutations or --connections.")
    entity = _entity(parts)
    _change(target, entity, values)
    note(f"Quotas of {_text(entity)}: {', '.join(f'{key}={_number(value)}' for key, value in values.items())}.")


@click.command()
@yes_option
@cluster_options
@click.option(
    "-q",
    "--quota",
    "quotas",
    multiple=True,
    type=click.Choice(sorted(OPTIONS)),
    help="Only this one; may be repeated.",
)
@entity_options
def delete(target: Target, parts: Parts, quotas: tuple[str, ...], yes: bool) -> None:
    """Remove the quotas of a user, client id or address."""
    entity = _entity(parts)

    async def find(cluster: Cluster) -> list[QuotaRow]:
        filters = [QuotaFilter(kind, False, name) for kind, name in entity]
        return [one for one in await describe_quotas(cluster, filters, strict=True) if one.entity == entity]

    wanted = {OPTIONS[name] for name in quotas}
    there = [key for one in run(target, find) for key in one.values if not wanted or key in wanted]
    if not there:
        raise CommandError(
            f"There are no such quotas of {_text(entity)}.", NOT_FOUND, "`headrace quota list` shows all of them."
        )
    confirm(f"Remove {', '.join(there)} of {_text(entity)}?", yes)
    _change(target, entity, dict.fromkeys(there))
    note(f"Removed {', '.join(there)} of {_text(entity)}.")


def _entity(parts: Parts) -> QuotaEntity:
    try:
        return entity_of(parts)
    except KafkaError as error:
        raise click.UsageError(f"{error.message} Give --user, --client-id, both, or --ip.") from None


def _change(target: Target, entity: QuotaEntity, values: dict[str, float | None]) -> None:
    outcome = run(target, lambda cluster: alter_quotas(cluster, entity, values))
    conclude({_text(entity): outcome}, "quota of")


def _row(one: QuotaRow) -> dict[str, Any]:
    names = {kind.replace("-", "_"): DEFAULT if name is None else name for kind, name in one.entity}
    return {column.key: names.get(column.key, _number(one.values.get(column.key))) for column in COLUMNS}


def _number(value: float | None) -> float | int | None:
    return int(value) if value is not None and value == int(value) else value


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)
