"""Runs a command against a cluster, and explains errors in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.cli.common.ending import until_ended
from headrace.cli.common.errors import explain_client, explain_kafka, missing_topic
from headrace.cli.common.failure import NOT_FOUND, PARTLY_DONE, TIMED_OUT, CommandError
from headrace.cli.common.login import secured
from headrace.cli.common.options import Target
from headrace.cli.common.output import plural
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, kafka_error
from headrace.client.view import ClusterView, TopicView
from headrace.env.real import real_env
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError

if TYPE_CHECKING:
    from headrace.client.security import ClientSecurity

T = TypeVar("T")

COMPLETION_TIMEOUT_S = 1.0
CONNECT_TIMEOUT_S = 5.0
CLIENT_ID = "headrace-cli"


def run(
    target: Target,
    work: Callable[[Cluster], Awaitable[T]],
    *,
    ends_with_reader: bool = False,
    security: ClientSecurity | None = None,
) -> T:
    """`ends_with_reader`: stop when nobody reads the output any more. The command's --client-config overrides
    `security`.
    """
    settings = secured(
        ClientSettings(
            client_id=CLIENT_ID,
            connect_timeout_s=min(CONNECT_TIMEOUT_S, target.timeout_s),
            request_timeout_s=target.timeout_s,
            login=security.login if security else None,
            tls=security.context if security else None,
        )
    )

    async def main() -> T:
        async with Cluster(real_env(), target.bootstrap, settings) as cluster:
            return await until_ended(work(cluster), ends_with_reader)

    try:
        return asyncio.run(main())
    except KafkaError as error:
        raise explain_kafka(error) from None
    except ClientError as error:
        raise explain_client(error) from None
    except ProtocolError as error:
        raise CommandError(f"The broker sent an answer that cannot be read: {error}.") from None


async def topics_of(cluster: Cluster, names: Sequence[str]) -> tuple[ClusterView, list[TopicView]]:
    """The topics named, or an error that names the nearest one that exists."""
    view = await cluster.metadata(dict.fromkeys(names))
    for name in names:
        if view.errors.get(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise missing_topic(name, list((await cluster.metadata()).topics))
        if name in view.errors:
            raise explain_kafka(kafka_error(view.errors[name]), f"topic {name}")
    return view, [view.topic(name) for name in names]


async def topic_of(cluster: Cluster, name: str) -> TopicView:
    _, (topic,) = await topics_of(cluster, [name])
    return topic


def chosen_partitions(topic: TopicView, wanted: Sequence[int]) -> list[int]:
    """All partitions, or the given ones, which must exist."""
    there = [partition.number for partition in topic.partitions]
    for one in wanted:
        if one not in there:
            raise CommandError(
                f"{topic.name} has no partition {one}, only {plural(len(there), 'partition')}.", NOT_FOUND
            )
    return list(dict.fromkeys(wanted)) or there


def conclude(outcomes: dict[str, KafkaError | None], noun: str = "topic") -> None:
    """Exit with an error if some of several things failed: the code says whether all or only some did."""
    failed = {name: error for name, error in outcomes.items() if error is not None}
    if not failed:
        return
    explained = [explain_kafka(error, f"{noun} {name}") for name, error in failed.items()]
    if len(failed) == len(outcomes) == 1:
        raise explained[0]
    message = "\n".join(one.message for one in explained)
    if len(failed) < len(outcomes):
        done = ", ".join(name for name in outcomes if name not in failed)
        raise CommandError(f"{message}\n  Done: {done}.", PARTLY_DONE)
    raise CommandError(message, explained[0].code)


async def wait_until(
    cluster: Cluster, holds: Callable[[ClusterView], bool], names: Sequence[str], what: str
) -> None:
    """Wait until the broker that we use sees a change, unless the user may not describe the topic."""
    clock = cluster.env.clock
    deadline = clock.monotonic() + cluster.settings.request_timeout_s
    while not holds(view := await cluster.metadata(names)):
        if ErrorCode.TOPIC_AUTHORIZATION_FAILED in view.errors.values():
            return
        if clock.monotonic() > deadline:
            raise CommandError(f"{what} was accepted but is not visible yet.", TIMED_OUT)
        await clock.sleep(0.02)


def known_topics(bootstrap: tuple[Address, ...]) -> list[str]:
    """For completion in a shell: quick, and silent when there is no cluster."""

    async def names(cluster: Cluster) -> list[str]:
        return list((await cluster.metadata()).topics)

    try:
        return run(Target(bootstrap, COMPLETION_TIMEOUT_S), names)
    except CommandError:
        return []
