"""`headrace doctor`: is this machine suitable, and can it reach the cluster?"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec

import click

from headrace.cli.cluster.partition_findings import absent_brokers, count_leaderless, count_under_replicated
from headrace.cli.common.errors import explain_client
from headrace.cli.common.failure import UNREACHABLE, CommandError
from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding, emit_findings, exit_by
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import plural, size_text
from headrace.cli.common.session import run
from headrace.cli.common.store import store_name, why_unreachable, zookeeper_setting
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import open_connection
from headrace.client.errors import CannotReach, Reason
from headrace.client.reassigning import with_moves
from headrace.client.view import ClusterView
from headrace.config.coordination_settings import parse_zookeeper_connect

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
FEW_DESCRIPTORS = 10_000
LITTLE_SPACE_BYTES = 5 * 1024**3
PORTS = {9092: "clients", 9644: "metrics and health"}
LOOPBACK = ("127.", "::1", "localhost")


@click.command()
@click.option("--data-dir", metavar="DIR", default=".", help="Data directory to check.")
@click.option("--machine-only", is_flag=True, help="Do not connect to the cluster.")
@format_option
@cluster_options
def doctor(target: Target, data_dir: str, machine_only: bool, format: str) -> None:
    """Check this machine (Python, limits, ports, disk, Java) and that every broker is reachable from here.

    Exit code 1 if something is wrong, 3 if the given cluster cannot be reached.
    """
    unreachable = False
    findings = [_python(), *_packages(), _descriptors(), _java(), _disk(data_dir)]
    if machine_only:
        findings += [_port(port, purpose) for port, purpose in PORTS.items()]
    else:
        try:
            findings += run(target, _cluster)
        except CommandError as error:
            if Reason.REFUSED.value in error.message:  # else it is no usable broker
                findings += [_port(port, purpose) for port, purpose in PORTS.items()]
            # Without an address on the command line, a broker may just not have been started yet.
            unreachable = target.bootstrap_given
            findings.append(Finding(WRONG if unreachable else DOUBT, error.message, error.advice or ""))
    emit_findings(findings, format)
    if unreachable:
        raise click.exceptions.Exit(UNREACHABLE)
    exit_by(findings)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= OLDEST_PYTHON:
        return Finding(OK, f"Python {version}.")
    return Finding(WRONG, f"Python {version} is too old.", "Install Python 3.11 or newer.")


def _packages() -> list[Finding]:
    missing = [name for name in ("crc32c", "cramjam") if find_spec(name) is None]
    if missing:
        return [Finding(WRONG, f"{', '.join(missing)} cannot be imported.", "Install headrace again with pip.")]
    return []


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= FEW_DESCRIPTORS or soft == resource.RLIM_INFINITY:
        return Finding(OK, f"A process may open {soft:,} files.")
    advice = f"`ulimit -n {min(hard, 100_000)}` before `headrace start`; each partition and connection needs some."
    return Finding(DOUBT, f"A process may open only {soft:,} files.", advice)


def _java() -> Finding:
    """Only Spark needs it."""
    java = shutil.which("java")
    advice = "Only pipelines on Spark need it: install a JDK 17 or newer (Debian: default-jre-headless)."
    if java is None:
        return Finding(DOUBT, "Java is not installed.", advice)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return Finding(DOUBT, f"{java} does not run.", advice)
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    version = int(match[1]) if match else 0
    if version >= OLDEST_JAVA:
        return Finding(OK, f"Java {version} at {java}.")
    return Finding(DOUBT, f"Java {version or 'of an unknown version'} at {java} is too old for Spark.", advice)


def _disk(data_dir: str) -> Finding:
    place = os.path.abspath(data_dir)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK):
        return Finding(WRONG, f"{place} cannot be written to.", "Choose another --data-dir.")
    free = shutil.disk_usage(place).free
    if free < LITTLE_SPACE_BYTES:
        return Finding(
            DOUBT, f"Only {size_text(free)} are free in {place}.", "Free some space, or choose another --data-dir."
        )
    return Finding(OK, f"{size_text(free)} are free in {place}.")


def _port(port: int, purpose: str) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Finding(
                DOUBT, f"Port {port} ({purpose}) is not free: {error.strerror}.", "Choose another port."
            )
    return Finding(OK, f"Port {port} ({purpose}) is free.")


async def _cluster(cluster: Cluster) -> list[Finding]:
    view = await with_moves(cluster, await cluster.metadata())
    entry = (await cluster.entry()).address
    findings = [Finding(OK, f"{entry} answers, cluster {view.cluster_id}, {plural(len(view.brokers), 'broker')}.")]
    for broker in view.brokers.values():
        findings.append(await _advertised(cluster, broker.id, broker.address, entry))
    return [*findings, *_state(view), *_store(await zookeeper_setting(cluster, view.brokers))]


def _state(view: ClusterView) -> list[Finding]:
    """A short summary; `cluster health` has the details."""
    findings = absent_brokers(view)
    leaderless, lagging = count_leaderless(view), count_under_replicated(view)
    if leaderless or lagging:
        what = f"Partitions without a leader: {leaderless}; under-replicated: {lagging}."
        findings.append(Finding(WRONG, what, "`headrace cluster health` lists them."))
    return findings


def _store(setting: str | None) -> list[Finding]:
    """The store that the brokers share; of ZooKeeper, whether each server answers from here."""
    if setting is None:
        return []
    findings = [Finding(OK, f"Coordination: {store_name(setting)}.")]
    if not setting:
        return findings
    address = parse_zookeeper_connect(setting)
    if find_spec("kazoo") is None:
        advice = "Only brokers need it: `pip install 'headrace[zookeeper]'`."
        findings.append(
            Finding(DOUBT, "A broker with ZooKeeper cannot start here: kazoo is not installed.", advice)
        )
    return findings + [_zookeeper(server) for server in address.servers]


def _zookeeper(server: str) -> Finding:
    why = why_unreachable(server)
    if why is None:
        return Finding(OK, f"ZooKeeper server {server} can be reached.")
    advice = "Brokers on this machine cannot use it. Clients do not need it."
    return Finding(DOUBT, f"ZooKeeper server {server} cannot be reached: {why}.", advice)


async def _advertised(cluster: Cluster, broker: int, address: Address, entry: Address) -> Finding:
    """A client connects to the bootstrap server first, and then to what the brokers say their addresses are."""
    try:
        connection = await open_connection(address, cluster.settings, broker)
    except CannotReach as error:
        return Finding(WRONG, explain_client(error).message, _listener_advice(error, entry))
    connection.close()
    if address.host.startswith(LOOPBACK) and not entry.host.startswith(LOOPBACK):
        advice = "Clients on other machines would connect to themselves: set advertised.listeners."
        return Finding(WRONG, f"Broker {broker} advertises {address}.", advice)
    return Finding(OK, f"Broker {broker} can be reached at the address it advertises, {address}.")


def _listener_advice(error: CannotReach, entry: Address) -> str:
    meant = f"advertised.listeners=PLAINTEXT://{entry.host}:{error.address.port}"
    if error.reason is Reason.UNKNOWN_HOST:
        return (
            f"That name only resolves on the broker's machine. Set {meant} there, or make the "
            "name resolvable here."
        )
    if error.address.host.startswith(LOOPBACK):
        return f"The broker advertises loopback, which points to this machine. Set {meant} there."
    return f"Set advertised.listeners of broker {error.broker_id} to what clients can reach, such as {meant}."
