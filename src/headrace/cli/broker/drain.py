"""`headrace broker drain|undrain|decommission`: moves everything off a broker, and removes it."""

from __future__ import annotations

import click

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import FAILED, NOT_FOUND, TIMED_OUT, CommandError
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.output import note, plural
from headrace.cli.common.session import run
from headrace.cli.partition.move import Plan, Wanted, Way, evacuation, show_and_carry_out, way_options
from headrace.cli.partition.planning import assignment, destination, some
from headrace.cli.partition.progress import seen_soon
from headrace.client.admin import ConfigResource, alter_configs
from headrace.client.cluster import Cluster
from headrace.client.reassigning import moves_and_view, unregister_broker
from headrace.client.view import ClusterView
from headrace.metadata.cordons import CORDONED, EVERY_DIRECTORY
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

LOOK_SECONDS = 0.5


@click.command()
@click.argument("broker", type=int)
@click.option("--leaders", is_flag=True, help="Move only leadership; the replicas stay.")
@way_options
def drain(target: Target, way: Way, broker: int, leaders: bool) -> None:
    """Move all replicas off BROKER; it gets no new ones until `headrace broker undrain`.

    With --leaders, only leadership moves and the replicas stay. The plan is shown first.
    """
    if leaders:
        nothing = f"Broker {broker} is not the preferred leader of any partition."
        show_and_carry_out(target, way, lambda cluster: _leaders(cluster, broker), nothing)
        return
    _drain(target, way, broker, must_exist=True)
    if not way.dry_run:
        note(f"Broker {broker} gets no new partitions until `headrace broker undrain {broker}`.")


@click.command()
@click.argument("broker", type=int)
@cluster_options
def undrain(target: Target, broker: int) -> None:
    """Allow partitions on BROKER again. `headrace partition balance` moves its share back."""

    async def work(cluster: Cluster) -> None:
        _check_alive(await cluster.metadata([]), broker)
        await _cordon(cluster, broker, False)

    run(target, work)
    note(f"Broker {broker} can hold partitions again; `headrace partition balance` moves its share back.")


@click.command()
@click.argument("broker", type=int)
@way_options
def decommission(target: Target, way: Way, broker: int) -> None:
    """Move all replicas off BROKER (which may be dead) and remove it from the cluster once it has stopped.

    Stop it when this command says so. Afterwards its id can be used by a new broker.
    """
    _drain(target, way, broker, must_exist=False)  # a broker that is dead and empty can still be removed
    if way.dry_run or way.no_wait:
        return
    run(target, lambda cluster: _forget_when_stopped(cluster, broker, target.timeout_given))
    note(f"Removed broker {broker} from the cluster.")


def _drain(target: Target, way: Way, broker: int, must_exist: bool) -> None:
    async def make(cluster: Cluster) -> Plan:
        moving, view = await moves_and_view(cluster)
        if broker not in view.brokers and not any(broker in held for held in assignment(view).values()):
            if must_exist:
                raise CommandError(
                    f"There is no broker {broker}.", NOT_FOUND, "`headrace cluster info` lists them."
                )
            return Plan(view, moving, {})
        if len([one for one in view.brokers if one != broker]) == 0:
            raise CommandError(f"There is no other broker that could take over from broker {broker}.")
        wanted = await evacuation(cluster, view, moving, broker)
        warnings = (_waiting(view, wanted, broker), _fewer(view, wanted))
        return Plan(view, moving, wanted, "\n".join(filter(None, warnings)))

    async def cordon(cluster: Cluster) -> None:
        if broker in (await cluster.metadata([])).brokers:
            await _cordon(cluster, broker, True)

    show_and_carry_out(target, way, make, f"Broker {broker} holds no partitions that can move.", cordon)
    if not way.dry_run and not way.no_wait:
        run(target, lambda cluster: _check_empty(cluster, broker))


def _waiting(view: ClusterView, wanted: Wanted, broker: int) -> str:
    """A sentence about partitions with another replica on a broker that is down: moves wait for it."""
    down = sorted({one for to in wanted.values() for one in to if one not in view.brokers})
    if not down:
        return ""
    ids = ", ".join(map(str, down))
    who = f"Broker {ids} is down, and keeps its" if len(down) == 1 else f"Brokers {ids} are down, and keep their"
    names = [name for name, to in wanted.items() if set(to) & set(down)]
    return (
        f"{who} replicas of {plural(len(names), 'partition')}: {some(names)}. A partition leaves broker {broker} "
        "when all of its other replicas are in sync, so these wait. If what is down is lost, replace it first: "
        "`headrace partition move --offline`."
    )


def _fewer(view: ClusterView, wanted: Wanted) -> str:
    """A sentence about topics with replicas that no other broker can take: nothing restores them automatically."""
    before = assignment(view)
    factors = {name.topic: len(before[name]) for name, to in wanted.items() if len(to) < len(before[name])}
    if not factors:
        return ""
    topic, factor = min(factors.items())
    more = f" and {plural(len(factors) - 1, 'other topic')}" if len(factors) > 1 else ""
    return (
        f"No other broker can take some replicas of {topic}{more}. `headrace partition balance` does not bring "
        f"them back, but `headrace partition move {topic} -r {factor}` does, once there are enough brokers."
    )


async def _check_empty(cluster: Cluster, broker: int) -> None:
    """Fails if no other broker has the records of a partition, or if others moved some here in the meantime."""
    held: list[TopicPartition] = []

    async def is_empty() -> bool:
        nonlocal held
        held = [name for name, to in assignment(await cluster.metadata()).items() if broker in to]
        return not held

    if await seen_soon(cluster, is_empty):
        return
    advice = (
        "Partitions without a leader cannot move: `headrace cluster health` says who has their records. Then run "
        "the same command again."
    )
    told = f"Broker {broker} still holds {plural(len(held), 'partition')}: {some(held)}."
    raise CommandError(told, FAILED, advice)


async def _leaders(cluster: Cluster, broker: int) -> Plan:
    moving, view = await moves_and_view(cluster)
    _check_alive(view, broker)
    wanted = {
        name: (*replicas[1:], broker)
        for name, replicas in destination(view, moving).items()
        if replicas[0] == broker and len(replicas) > 1
    }
    return Plan(view, moving, wanted)


async def _cordon(cluster: Cluster, broker: int, cordoned: bool) -> None:
    operation = ConfigOperation.SET if cordoned else ConfigOperation.DELETE
    change = (CORDONED, operation, EVERY_DIRECTORY if cordoned else None)
    try:
        await alter_configs(cluster, ConfigResource(ResourceType.BROKER, str(broker)), [change])
    except KafkaError as error:
        raise explain_kafka(error, f"broker {broker}") from None


async def _forget_when_stopped(cluster: Cluster, broker: int, limited: bool) -> None:
    clock = cluster.env.clock
    deadline = clock.monotonic() + cluster.settings.request_timeout_s
    told = False
    while broker in (await cluster.metadata([])).brokers:
        if not told:
            told = True
            note(
                f"Broker {broker} no longer holds any partitions. Stop it now; this command "
                "continues once it has stopped."
            )
        if limited and clock.monotonic() > deadline:
            raise CommandError(
                f"Broker {broker} is still running.",
                TIMED_OUT,
                "Stop it, then run the same command again to remove it from the cluster.",
            )
        await clock.sleep(LOOK_SECONDS)
    try:
        await unregister_broker(cluster, broker)
    except KafkaError as error:
        if error.code is ErrorCode.BROKER_ID_NOT_REGISTERED:
            unknown = f"Broker {broker} is not registered, and holds no partitions."
            raise CommandError(unknown, NOT_FOUND, "`headrace cluster info` lists the brokers.") from None
        raise CommandError(explain_kafka(error, f"broker {broker}").message, FAILED) from None


def _check_alive(view: ClusterView, broker: int) -> None:
    if broker not in view.brokers:
        raise CommandError(f"There is no broker {broker} in the cluster.", NOT_FOUND)
