"""The quotas part of `headrace kafka-configs`: entities of the types users, clients and ips."""

from __future__ import annotations

from collections.abc import Sequence

import click

from headrace.client.cluster import Cluster
from headrace.client.quotas import QuotaRow, alter_quotas, describe_quotas
from headrace.client.users import list_users
from headrace.model.errors import KafkaError
from headrace.security.quota import CLIENT_ID, IP, USER, QuotaEntity, QuotaFilter, entity_of

TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_TITLES = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
Named = tuple[str, str | None, bool]
"""A type of Kafka's tool, a name, and whether the default is meant; neither: all of the type."""


def quota_entity(named: Sequence[Named]) -> QuotaEntity:
    """What --alter is about."""
    for kind, name, is_default in named:
        if name is None and not is_default:
            raise click.UsageError(f"--alter needs --entity-name or --entity-default for {kind}.")
    try:
        return entity_of((TYPES[kind], name) for kind, name, _ in named)
    except KafkaError as error:
        raise click.UsageError(error.message or str(error)) from None


def quota_values(add: dict[str, str], delete: Sequence[str]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for key, text in add.items():
        if key.upper().startswith("SCRAM-"):
            raise click.UsageError("Passwords do not belong on a command line: use `headrace user add`.")
        try:
            values[key] = float(text)
        except ValueError:
            raise click.UsageError(f"{key}={text} is not a number.") from None
    return values | dict.fromkeys(delete)


async def alter_entity(cluster: Cluster, entity: QuotaEntity, values: dict[str, float | None]) -> None:
    error = await alter_quotas(cluster, entity, values)
    if error is not None:
        raise error


async def described_entities(cluster: Cluster, named: Sequence[Named]) -> list[str]:
    filters = [QuotaFilter(TYPES[kind], name is None and not is_default, name) for kind, name, is_default in named]
    lines = [_line(row) for row in await describe_quotas(cluster, filters, strict=True)]
    if [kind for kind, _, _ in named] == ["users"]:
        wanted = named[0][1]
        for user in await list_users(cluster) if not named[0][2] else ():
            if wanted in (None, user.user):
                lines.append(
                    f"SCRAM credential configs for user-principal '{user.user}' are "
                    f"{user.mechanism}=iterations={user.iterations}"
                )
    return lines


def entity_title(entity: QuotaEntity) -> str:
    return ", ".join(_titled(*part) for part in entity)


def _titled(kind: str, name: str | None) -> str:
    return f"the default {_TITLES[kind]}" if name is None else f"{_TITLES[kind]} '{name}'"


def _line(row: QuotaRow) -> str:
    values = ", ".join(f"{key}={value}" for key, value in sorted(row.values.items()))
    return f"Quota configs for {entity_title(row.entity)} are {values}"
