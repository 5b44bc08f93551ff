"""`headrace broker drain|undrain|decommission`: a broker gives up what it has, and is forgotten."""

from __future__ import annotations

import click

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import FAILED, NOT_FOUND, TIMED_OUT, CommandError
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.output import note
from headrace.cli.common.session import run
from headrace.cli.partition.move import Wanted, Way, evacuation, show_and_carry_out, way_options
from headrace.cli.partition.planning import assignment
from headrace.client.admin import ConfigResource, alter_configs
from headrace.client.cluster import Cluster
from headrace.client.reassigning import unregister_broker
from headrace.client.view import ClusterView
from headrace.metadata.cordons import CORDONED, EVERY_DIRECTORY
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import KafkaError

LOOK_SECONDS = 0.5


@click.command()
@click.argument("broker", type=int)
@click.option("--leaders", is_flag=True, help="Only leadership: its replicas stay.")
@way_options
def drain(target: Target, way: Way, broker: int, leaders: bool) -> None:
    """Move everything away from BROKER, and let it have nothing new until `headrace broker undrain`.

    With --leaders others lead its partitions, and its replicas stay. The plan is shown first.
    """
    if leaders:
        nothing = f"Broker {broker} is the preferred leader of nothing."
        show_and_carry_out(target, way, lambda cluster: _leaders(cluster, broker), nothing)
        return
    _drain(target, way, broker)
    if not way.dry_run:
        note(f"Broker {broker} gets no new partitions; `headrace broker undrain {broker}` ends that.")


@click.command()
@click.argument("broker", type=int)
@cluster_options
def undrain(target: Target, broker: int) -> None:
    """Let BROKER have partitions again. `headrace partition balance` gives it its share."""

    async def work(cluster: Cluster) -> None:
        _check_alive(await cluster.metadata([]), broker)
        await _cordon(cluster, broker, False)

    run(target, work)
    note(f"Broker {broker} may have partitions again; `headrace partition balance` gives it its share.")


@click.command()
@click.argument("broker", type=int)
@way_options
def decommission(target: Target, way: Way, broker: int) -> None:
    """Move everything away from BROKER, which may be dead already, and forget it once it has stopped.

    Stop it when this command says so. Afterwards its id can be used by a new broker.
    """
    _drain(target, way, broker)
    if way.dry_run or way.no_wait:
        return
    run(target, lambda cluster: _forget_when_stopped(cluster, broker, target.timeout_given))
    note(f"Broker {broker} is forgotten.")


def _drain(target: Target, way: Way, broker: int) -> None:
    async def make(cluster: Cluster) -> tuple[ClusterView, Wanted]:
        view = await cluster.metadata()
        if broker not in view.brokers and not any(broker in held for held in assignment(view).values()):
            return view, {}
        if len([one for one in view.brokers if one != broker]) == 0:
            raise CommandError(f"There is no other broker that could take over from broker {broker}.")
        if not way.dry_run and broker in view.brokers:
            await _cordon(cluster, broker, True)
        return view, evacuation(view, broker)

    show_and_carry_out(target, way, make, f"Broker {broker} holds nothing.")


async def _leaders(cluster: Cluster, broker: int) -> tuple[ClusterView, Wanted]:
    view = await cluster.metadata()
    _check_alive(view, broker)
    return view, {
        name: (*replicas[1:], broker)
        for name, replicas in assignment(view).items()
        if replicas[0] == broker and len(replicas) > 1
    }


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
            note(f"Broker {broker} holds nothing any more. Stop it now; this command goes on when it has stopped.")
        if limited and clock.monotonic() > deadline:
            raise CommandError(
                f"Broker {broker} still runs.", TIMED_OUT, "Stop it, and run the same command again to forget it."
            )
        await clock.sleep(LOOK_SECONDS)
    try:
        await unregister_broker(cluster, broker)
    except KafkaError as error:
        raise CommandError(explain_kafka(error, f"broker {broker}").message, FAILED) from None


def _check_alive(view: ClusterView, broker: int) -> None:
    if broker not in view.brokers:
        raise CommandError(f"There is no broker {broker} now.", NOT_FOUND)
