"""What the commands about groups share: names that complete, and `TOPIC[:PARTITION,...]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from headrace.cli.common.failure import CommandError
from headrace.cli.common.options import Target, asked_bootstrap
from headrace.cli.common.session import COMPLETION_TIMEOUT_S, chosen_partitions, run, topic_of
from headrace.client.cluster import Cluster
from headrace.client.groups import list_groups
from headrace.model.topics import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])
_CHOICE = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")


class PartitionChoice(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    """None named: all of them."""


def parse_choice(text: str) -> PartitionChoice:
    """ValueError if it is not of the form `topic` or `topic:0,2`."""
    match = _CHOICE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not of the form topic or topic:0,2")
    return PartitionChoice(match[1], tuple(int(one) for one in match[2].split(",")) if match[2] else ())


def choice_type(text: str) -> PartitionChoice:
    """The type of an option."""
    try:
        return parse_choice(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


async def chosen_places(cluster: Cluster, choices: Sequence[PartitionChoice]) -> list[TopicPartition]:
    """The partitions meant, which must exist."""
    places: dict[TopicPartition, None] = {}
    for choice in choices:
        for number in chosen_partitions(await topic_of(cluster, choice.topic), choice.partitions):
            places[TopicPartition(choice.topic, number)] = None
    return list(places)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Group names for the shell, from the cluster; none when it cannot be reached quickly."""
    target = Target(asked_bootstrap(ctx, param), COMPLETION_TIMEOUT_S)

    async def names(cluster: Cluster) -> list[str]:
        return [one.id for one in await list_groups(cluster)]

    try:
        return [name for name in run(target, names) if name.startswith(incomplete)]
    except CommandError:
        return []


def group_argument(function: F) -> F:
    return click.argument("group", shell_complete=complete_groups)(function)


def groups_argument(required: bool) -> Callable[[F], F]:
    metavar = "GROUP..." if required else "[GROUP...]"
    return click.argument("groups", nargs=-1, required=required, metavar=metavar, shell_complete=complete_groups)
