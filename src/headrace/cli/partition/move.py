"""`headrace partition move|balance`: moves partitions to other brokers, after showing the plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.options import (
    Target,
    cluster_options,
    complete_topics,
    confirm,
    format_option,
    size,
    yes_option,
)
from headrace.cli.common.output import PEOPLE, emit_data, emit_rows, note
from headrace.cli.common.session import run
from headrace.cli.partition.planning import (
    COLUMNS,
    Move,
    assignment,
    destination,
    moves_of,
    named_partitions,
    open_places,
    places,
    read_plan,
    some,
    summary,
    table_row,
)
from headrace.cli.partition.progress import carry_out
from headrace.client.cluster import Cluster
from headrace.client.reassigning import MovingPartition, moves_and_view
from headrace.client.view import NO_LEADER, ClusterView
from headrace.metadata.balancing import Location, Replicas, balance, evacuate, replace_lost, resize
from headrace.model.topics import TopicPartition

Wanted = Mapping[TopicPartition, Replicas]
Moving = Mapping[TopicPartition, MovingPartition]


class Way(NamedTuple):
    """How a plan is carried out."""

    dry_run: bool
    yes: bool
    throttle: int | None
    no_wait: bool
    format: str


def way_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that moves partitions, given to it as `way`."""

    def command(
        target: Target,
        dry_run: bool,
        yes: bool,
        throttle: int | None,
        no_wait: bool,
        format: str,
        **kwargs: object,
    ) -> None:
        function(target, way=Way(dry_run, yes, throttle, no_wait, format), **kwargs)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__dict__.update(function.__dict__)
    decorated = cluster_options(command)
    for add in (
        format_option,
        click.option("--no-wait", is_flag=True, help="Start and return without waiting."),
        click.option("--throttle", type=size, metavar="RATE", help="Copy no faster than this, such as 50MB/s."),
        yes_option,
        click.option("--dry-run", is_flag=True, help="Only show the plan."),
    ):
        decorated = add(decorated)
    return decorated


def broker_list(text: str) -> tuple[int, ...]:
    """The type of an option: 1,2,3."""
    try:
        ids = tuple(int(part) for part in str(text).split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of broker ids such as 1,2,3") from None
    if len(set(ids)) < len(ids):
        raise click.BadParameter(f"{text!r} names a broker twice")
    return ids


class Plan(NamedTuple):
    """Where partitions should be."""

    view: ClusterView
    moving: Moving
    wanted: Wanted
    warning: str = ""
    """What to know before it is confirmed."""


def show_and_carry_out(
    target: Target,
    way: Way,
    make: Callable[[Cluster], Awaitable[Plan]],
    empty: str,
    prepare: Callable[[Cluster], Awaitable[None]] | None = None,
) -> None:
    """Show what will move, ask, and do it.

    `prepare` is what comes before the moves, once they were confirmed. What has changed by then moves as well.
    """

    async def work(cluster: Cluster) -> None:
        moves, warning = await planned(cluster)
        if way.format in PEOPLE:
            emit_rows([table_row(move) for move in moves], COLUMNS, way.format, empty)
        else:
            emit_data([move.row() for move in moves], way.format)
        if moves:
            note(f"{summary(moves)}.")
        if warning:
            note(warning)
        if way.dry_run:
            return
        if moves:
            confirm("Move them?", way.yes)
        if prepare is not None:
            await prepare(cluster)
            shown, (moves, _) = moves, await planned(cluster)
            if shown and not moves:
                note("Nothing is left to move: the moves that were running have ended.")
        if moves:
            await carry_out(cluster, moves, way.throttle, not way.no_wait)

    async def planned(cluster: Cluster) -> tuple[list[Move], str]:
        plan = await make(cluster)
        return await moves_of(cluster, plan.view, plan.wanted, plan.moving), plan.warning

    run(target, work)


@click.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC|TOPIC:PARTITION]...", shell_complete=complete_topics)
@click.option("--replicas", type=broker_list, metavar="1,2,3", help="Exactly these brokers; the first one leads.")
@click.option("--brokers", type=broker_list, metavar="1,2,3", help="Spread over these brokers.")
@click.option(
    "--from",
    "source",
    type=int,
    metavar="BROKER",
    help="Move the replicas on this broker, all or of the given partitions, to --to.",
)
@click.option("--to", "taker", type=int, metavar="BROKER", help="Destination of the replicas of --from.")
@click.option("-r", "--replication-factor", "factor", type=click.IntRange(min=1), help="Number of replicas.")
@click.option("--offline", is_flag=True, help="Move replicas from dead brokers and failed disks to other brokers.")
@click.option("--file", "path", metavar="FILE", help="A plan in the format of kafka-reassign-partitions.")
@way_options
def move(
    target: Target,
    way: Way,
    partitions: tuple[str, ...],
    replicas: Replicas | None,
    brokers: Replicas | None,
    source: int | None,
    taker: int | None,
    factor: int | None,
    offline: bool,
    path: str | None,
) -> None:
    """Move partitions to other brokers, or give them more or fewer replicas.

    The old replicas stay until all new ones are in sync, and clients keep working. The plan is shown first.
    """
    ways = [replicas, brokers, source, factor, path, offline or None]
    if sum(one is not None for one in ways) != 1 or (source is None) != (taker is None):
        raise click.UsageError(
            "Give a destination: --replicas, --brokers, --from and --to, --replication-factor, "
            "--offline, or --file."
        )
    if partitions and (path is not None or offline):
        raise click.UsageError("--file and --offline find the partitions: name none.")
    if not partitions and path is None and not offline and source is None:
        raise click.UsageError("Name the partitions, such as orders or orders:3.")

    async def make(cluster: Cluster) -> Plan:
        moving, view = await moves_and_view(cluster)
        if path is not None:
            return await _from_file(cluster, moving, path)
        if offline:
            return Plan(view, moving, _without_offline(view, moving, await open_places(cluster, view)))
        if partitions:
            named, names = await named_partitions(cluster, partitions)
            view = named._replace(topics={**named.topics, **view.topics})
            there = destination(view, moving)
            now = {name: there[name] for name in names}
        else:
            now = destination(view, moving)
        if replicas is not None:
            _check_alive(view, replicas)
            return Plan(view, moving, dict.fromkeys(now, replicas))
        if brokers is not None:
            _check_alive(view, brokers)
            allowed = {id: place for id, place in places(view).items() if id in brokers}
            return Plan(view, moving, balance(allowed, now))
        if factor is not None:
            _check_enough(view, factor)
            wanted = resize(await open_places(cluster, view), now, factor)
            _check_enough_are_open(wanted, now, factor)
            return Plan(view, moving, wanted)
        assert source is not None
        assert taker is not None
        return Plan(view, moving, _handed_on(view, now, source, taker))

    show_and_carry_out(target, way, make, "Nothing to move.")


async def _from_file(cluster: Cluster, moving: Moving, path: str) -> Plan:
    """Replicas that are there may stay on a broker that is down."""
    plan = read_plan(path)
    view, names = await named_partitions(cluster, [f"{one.topic}:{one.partition}" for one in plan])
    there = assignment(view, dict.fromkeys(one.topic for one in names))
    for name, to in plan.items():
        _check_alive(view, tuple(one for one in to if one not in there[name]))
    return Plan(view, moving, plan)


def _handed_on(view: ClusterView, now: Wanted, source: int, taker: int) -> Wanted:
    _check_alive(view, (taker,))
    if not any(source in to for to in now.values()):
        _check_alive(view, (source,))
    return {
        name: tuple(taker if one == source else one for one in to)
        for name, to in now.items()
        if source in to and taker not in to
    }


@click.command("balance")
@click.option("--topic", "topics", multiple=True, help="Only this one; may be repeated.")
@click.option("--without", type=broker_list, metavar="1,2", help="Brokers that should hold no replicas.")
@way_options
def balance_brokers(target: Target, way: Way, topics: tuple[str, ...], without: Replicas | None) -> None:
    """Balance replicas and leaders over the brokers, with as few moves as possible.

    A broker that joined gets its share of replicas and leaders. Replicas of a partition stay on different racks
    and hosts where that is possible. The plan is shown first.
    """

    async def make(cluster: Cluster) -> Plan:
        moving, view = await moves_and_view(cluster)
        for topic in topics:
            await named_partitions(cluster, [topic])
        known = await open_places(cluster, view)
        usable = {id: place for id, place in known.items() if id not in (without or ())}
        if not usable:
            raise CommandError("No broker would be left to hold replicas.")
        now = destination(view, moving, topics or None)
        _check_all_are_there(view, now, without or ())
        return Plan(view, moving, balance(usable, now))

    show_and_carry_out(target, way, make, "The brokers are balanced: nothing to move.")


async def evacuation(cluster: Cluster, view: ClusterView, moving: Moving, broker: int) -> Wanted:
    """The moves after which a broker holds no replica. Moves that are already running are waited for."""
    others = {id: place for id, place in (await open_places(cluster, view)).items() if id != broker}
    there = destination(view, moving)
    led = {
        TopicPartition(topic.name, one.number)
        for topic in view.topics.values()
        for one in topic.partitions
        if one.leader != NO_LEADER
    }
    held = {name: there[name] for name, to in assignment(view).items() if broker in to and name in led}
    leaving = {name: to for name, to in held.items() if broker not in to}
    return leaving | dict(evacuate(others, held, broker))


def _without_offline(view: ClusterView, moving: Moving, brokers: Mapping[int, Location]) -> Wanted:
    """Replace the offline replicas of each partition. Reports which partitions have to wait, and why."""
    there = destination(view, moving)
    lost: dict[TopicPartition, Replicas] = {}
    leaderless: list[TopicPartition] = []
    for topic in view.topics.values():
        for one in topic.partitions:
            name = TopicPartition(topic.name, one.number)
            gone = tuple(broker for broker in one.offline if broker in there[name])
            if one.offline and one.leader == NO_LEADER:
                leaderless.append(name)
            elif gone:
                lost[name] = gone
    wanted = replace_lost(brokers, there, lost)
    stuck = [name for name, gone in lost.items() if set(gone) & set(wanted.get(name, gone))]
    if leaderless:
        note(
            f"{some(leaderless)}: no replica is left to copy from. Bring back the broker or the disk that holds "
            "one; `headrace cluster health` names it."
        )
    if stuck:
        note(
            f"{some(stuck)}: every other broker holds a replica already, or gets no new ones. Add a broker, or "
            "bring the offline one back: start it, or take the failed disk out of its log.dirs, or replace it, "
            "and restart it. It then copies what it lacks."
        )
    return wanted


def _check_alive(view: ClusterView, brokers: Replicas) -> None:
    for broker in brokers:
        if broker not in view.brokers:
            known = ", ".join(str(one) for one in view.brokers)
            raise CommandError(f"There is no broker {broker}; the brokers are {known}.", NOT_FOUND)


def _check_all_are_there(view: ClusterView, now: Wanted, without: Replicas) -> None:
    """A broker that is down may be back in a minute; balancing without it would copy everything that it holds."""
    down = sorted({one for to in now.values() for one in to} - set(view.brokers) - set(without))
    if down:
        ids = ",".join(map(str, down))
        who = f"Broker {ids} is down and holds" if len(down) == 1 else f"Brokers {ids} are down and hold"
        raise CommandError(
            f"{who} replicas: a balance would move them all to others.",
            advice=f"Start it first. If it is lost: `headrace partition move --offline`, or add --without {ids}.",
        )


def _check_enough_are_open(wanted: Wanted, now: Wanted, factor: int) -> None:
    if short := [name for name in now if len(wanted.get(name, now[name])) < factor]:
        raise CommandError(
            f"{some(short)} cannot get {factor} replicas: some of the brokers get no new ones.",
            advice="`headrace broker undrain BROKER` lets one have them again.",
        )


def _check_enough(view: ClusterView, factor: int) -> None:
    if factor > len(view.brokers):
        raise CommandError(f"{factor} replicas need as many brokers, and {len(view.brokers)} are alive.")
