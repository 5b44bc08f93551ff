"""`headrace cluster check`: is the cluster set up so that it survives what it should? (R-OPS-9)"""

from __future__ import annotations

from collections.abc import Sequence

import click

from headrace.cli.cluster.spread import spread_findings
from headrace.cli.common.errors import explain
from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding, emit_findings, exit_by
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import plural
from headrace.cli.common.session import run
from headrace.cli.partition.throttle import RATES
from headrace.client.admin import BROKER_SOURCE, CONFIG_SOURCES, ConfigEntry, ConfigResource, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.view import ClusterView
from headrace.config.differing import DIFFER_BY_NATURE
from headrace.model.config_resources import ResourceType
from headrace.model.errors import KafkaError

FEWEST_BROKERS = 3
Settings = dict[int, dict[str, ConfigEntry]]


@click.command()
@format_option
@cluster_options
def check(target: Target, format: str) -> None:
    """Check the setup: enough brokers and replicas, consistent settings. Exit code 1 if something is wrong."""

    async def work(cluster: Cluster) -> list[Finding]:
        view = await cluster.metadata()
        settings, silent = await _settings(cluster, view)
        topics, unread = await minimums_in_sync(cluster, list(view.topics))
        return [
            *_broker_count(view),
            *silent,
            *unread,
            *spread_findings(view),
            *_replication(view),
            *_minimum_in_sync(view, topics),
            *_defaults(view, settings),
            *_differences(settings),
            *_store(settings),
        ]

    findings = run(target, work)
    emit_findings(findings, format)
    exit_by(findings)


async def _settings(cluster: Cluster, view: ClusterView) -> tuple[Settings, list[Finding]]:
    """The settings of every broker, each asked directly, and the brokers that did not answer."""
    settings: Settings = {}
    silent = []
    for broker in view.brokers:
        try:
            entries = await describe_configs(cluster, ConfigResource(ResourceType.BROKER, str(broker)))
        except (ClientError, KafkaError) as error:
            told = explain(error)
            what = f"Broker {broker} did not return its settings: {told.message}"
            silent.append(
                Finding(WRONG, what, told.advice or "See `headrace cluster health` and `headrace doctor`.")
            )
        else:
            settings[broker] = {entry.name: entry for entry in entries}
    return settings, silent


async def minimums_in_sync(cluster: Cluster, topics: Sequence[str]) -> tuple[dict[str, int], list[Finding]]:
    """min.insync.replicas by topic; a finding if the controller, which knows it, did not answer."""
    try:
        return {name: await _min_in_sync(cluster, name) for name in topics}, []
    except (ClientError, KafkaError) as error:
        told = explain(error)
        advice = told.advice or "The controller has them: `headrace cluster health` says whether there is one."
        return {}, [Finding(WRONG, f"The settings of topics cannot be read: {told.message}", advice)]


async def _min_in_sync(cluster: Cluster, topic: str) -> int:
    entries = await describe_configs(cluster, ConfigResource(ResourceType.TOPIC, topic), ["min.insync.replicas"])
    return int(entries[0].value or 1) if entries else 1


def _broker_count(view: ClusterView) -> list[Finding]:
    count = len(view.brokers)
    if count >= FEWEST_BROKERS:
        return [Finding(OK, f"{count} brokers.")]
    advice = f"With {FEWEST_BROKERS} brokers and replication factor 3, one can fail while acks=all keeps working."
    return [Finding(DOUBT, f"{plural(count, 'broker')}: the cluster cannot survive the loss of one.", advice)]


def _replication(view: ClusterView) -> list[Finding]:
    findings = []
    available = len(view.brokers)
    for topic in view.topics.values():
        factor = topic.replication_factor
        if factor > available:
            fewer = f"`headrace partition move {topic.name} -r {available}`"
            advice = f"Start the missing brokers. If they will not come back: {fewer}."
            findings.append(
                Finding(
                    WRONG, f"{topic.name} has replication factor {factor}, with {available} brokers up.", advice
                )
            )
        elif factor == 1 and available > 1:
            factor = min(available, FEWEST_BROKERS)
            advice = f"Unless the data can be recreated: `headrace partition move {topic.name} -r {factor}`."
            findings.append(
                Finding(DOUBT, f"{topic.name} has one replica: its records are lost if its broker is.", advice)
            )
    return findings or [Finding(OK, "Replication factors fit the number of brokers.")]


def _minimum_in_sync(view: ClusterView, minimums: dict[str, int]) -> list[Finding]:
    findings = []
    for name, minimum in minimums.items():
        topic = view.topics[name]
        factor = topic.replication_factor
        if minimum >= factor > 1:
            lower = f"`headrace topic alter {topic.name} --set min.insync.replicas={factor - 1}`"
            more = f"`headrace partition move {topic.name} -r {factor + 1}`, or "
            advice = (more if len(view.brokers) > factor else "") + lower
            findings.append(
                Finding(
                    WRONG,
                    f"{topic.name} needs {minimum} of {factor} replicas: one lost broker stops writes.",
                    advice,
                )
            )
        elif factor > 2 and minimum == 1:
            advice = f"`headrace topic alter {topic.name} --set min.insync.replicas=2`"
            findings.append(
                Finding(
                    DOUBT, f"{topic.name}: acks=all is satisfied by the leader alone when others are down.", advice
                )
            )
    return findings


def _defaults(view: ClusterView, settings: Settings) -> list[Finding]:
    findings = []
    replicas = (one.replicas for topic in view.topics.values() for one in topic.partitions)
    known = set(view.brokers).union(*replicas)  # one that is down gets its replicas when it is back
    factors = {broker: int(_value(one, "default.replication.factor") or 1) for broker, one in settings.items()}
    if high := [broker for broker, factor in factors.items() if factor > len(known)]:
        setting = f"default.replication.factor={factors[high[0]]}"
        what = f"{setting} of {_listed(high)} is higher than the number of brokers."
        advice = "New topics cannot be created with it: start more brokers, or lower it."
        findings.append(Finding(WRONG, what, advice))
    unclean = "unclean.leader.election.enable"
    if allowing := [broker for broker, entries in settings.items() if _value(entries, unclean) == "true"]:
        what = f"Unclean elections are allowed by {_listed(allowing)}: acknowledged records can be lost."
        advice = f"Set {unclean}=false, and true only for topics that may lose records."
        findings.append(Finding(DOUBT, what, advice))
    return findings


def _listed(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


def _differences(settings: Settings) -> list[Finding]:
    """Without the limits that a throttled move sets on the brokers that take part in it, and only on them."""
    names = {name for entries in settings.values() for name in entries} - DIFFER_BY_NATURE - set(RATES)
    findings = []
    for name in sorted(names):
        values = {broker: _value(entries, name) for broker, entries in settings.items()}
        if len(set(values.values())) > 1:
            holders: dict[str | None, list[str]] = {}
            for broker, value in values.items():
                holders.setdefault(value, []).append(str(broker))
            listed = "; ".join(f"{value or 'nothing'} on {', '.join(who)}" for value, who in holders.items())
            findings.append(Finding(DOUBT, f"{name} differs: {listed}.", _how_to_agree(settings, name)))
    if not findings and len(settings) > 1:
        findings.append(Finding(OK, "The settings of all brokers agree."))
    return findings


def _how_to_agree(settings: Settings, name: str) -> str:
    """Changing the files does not help if a broker has the setting from `cluster config --broker`."""
    own = CONFIG_SOURCES[BROKER_SOURCE]
    apart = [broker for broker, entries in settings.items() if name in entries and entries[name].source == own]
    if not apart:
        return "Give all brokers the same file and restart those whose file changed."
    others = f"; the same for {_listed(apart[1:])}" if apart[1:] else ""
    return f"It was set at run time: `headrace cluster config --broker {apart[0]} --delete {name}`{others}."


def _store(settings: Settings) -> list[Finding]:
    """The coordination store. An even ensemble survives no more failures than one with a server fewer."""
    told = [entries["zookeeper.connect"].value for entries in settings.values() if "zookeeper.connect" in entries]
    if not told:
        return []  # Another product.
    connect = next((text for text in told if text), None)
    if connect is None:
        return [Finding(OK, "Coordination: the embedded store, a SQLite file for the brokers of one machine.")]
    servers = [part for part in connect.split("/")[0].split(",") if part]
    if len(servers) == 1:
        advice = "While it is down no leader can be elected and no topic created. Run three."
        return [Finding(DOUBT, f"Coordination: a single ZooKeeper server, {connect}.", advice)]
    if len(servers) % 2 == 0:
        fewer = "One survives" if len(servers) == 2 else f"{len(servers) - 1} survive"
        advice = f"{fewer} just as many failures; {len(servers) + 1} survive more."
        return [Finding(DOUBT, f"The ZooKeeper ensemble has an even number of servers ({len(servers)}).", advice)]
    return [Finding(OK, f"Coordination: ZooKeeper, {plural(len(servers), 'server')}, {connect}.")]


def _value(entries: dict[str, ConfigEntry], name: str) -> str | None:
    entry = entries.get(name)
    return entry.value if entry is not None else None
