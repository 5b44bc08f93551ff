"""`headrace connector run`, `check` and `remove`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.common.errors import sentence
from headrace.cli.common.failure import FAILED, NOT_FOUND, USAGE, CommandError
from headrace.cli.common.login import asked_file
from headrace.cli.common.options import (
    DEFAULT_BOOTSTRAP,
    Target,
    bootstrap_override,
    client_config_option,
    confirm,
    yes_option,
)
from headrace.cli.common.output import note, plural
from headrace.cli.common.session import run
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.groups import delete_group
from headrace.client.producer import Producer
from headrace.connect.api import ConnectorError, TryAgain
from headrace.connect.definition import ConnectorDefinition, load_file
from headrace.connect.login import security_of
from headrace.connect.metrics import serve_metrics
from headrace.connect.options import ConfigProblems
from headrace.connect.runner import Runner
from headrace.connect.sink_run import GROUP_PREFIX
from headrace.connect.store import POSITION, STATE_TOPIC, position_key, read_state, state_record, status_key, under

if TYPE_CHECKING:
    from headrace.client.security import ClientSecurity

REQUEST_TIMEOUT_S = 30.0
FILES = click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))


@click.command("run")
@FILES
@click.option("--once", is_flag=True, help="Exit once everything that exists now has been copied.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus on 127.0.0.1.")
@bootstrap_override
@client_config_option
def run_connectors(files: tuple[Path, ...], once: bool, metrics_port: int | None, bootstrap: str | None) -> None:
    """Run the connectors that FILEs declare, until Ctrl-C or SIGTERM.

    A connector that was stopped or killed continues where it left off.
    """
    definitions = [_load(file) for file in files]
    names = [one.name for one in definitions]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CommandError(f"Two of the files declare a connector {min(twice)}.", USAGE)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")

    is_source = [one.sink_input is None for one in definitions]

    async def work(cluster: Cluster) -> list[Runner]:
        runners = [Runner(cluster, one, once=once, sources_beside=any(is_source)) for one in definitions]
        with _stopped_by_signals(runners):
            async with contextlib.AsyncExitStack() as stack:
                if metrics_port is not None:
                    shown = {one.name: runner.counts for one, runner in zip(definitions, runners, strict=True)}
                    server = await stack.enter_async_context(await serve_metrics(shown, "127.0.0.1", metrics_port))
                    note(f"Metrics: http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics")
                note(f"Running {', '.join(names)}.")
                with _first_failure():
                    for together in _turns(runners, is_source) if once else [runners]:
                        async with asyncio.TaskGroup() as group:
                            for runner in together:
                                group.create_task(runner.run())
        return runners

    with _explained():
        runners = run(_target(bootstrap, definitions), work, security=_security(definitions))
    for definition, runner in zip(definitions, runners, strict=True):
        note(f"{definition.name}: {plural(runner.counts.records, 'record')} copied.")


def _turns(runners: Sequence[Runner], is_source: Sequence[bool]) -> list[list[Runner]]:
    """Sources end before sinks begin, so that what exists now arrives at the other end."""
    named = list(zip(runners, is_source, strict=True))
    return [[runner for runner, source in named if source], [runner for runner, source in named if not source]]


@click.command()
@FILES
def check(files: tuple[Path, ...]) -> None:
    """Check FILEs without running anything: names, options, and whether they fit together."""
    for file in files:
        definition = _load(file)
        kind = "source" if definition.sink_input is None else "sink"
        note(f"{file}: {definition.name}, a {kind} of the type {definition.type}, can be run.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@yes_option
@bootstrap_override
@client_config_option
def remove(file: Path, yes: bool, bootstrap: str | None) -> None:
    """Remove the positions of the connector that FILE declares, and what it created in the other system.

    Topics and tables stay. The next run starts over.
    """
    definition = _load(file)
    confirm(f"Remove the positions of connector {definition.name}?", yes)
    with _explained():
        definition.connector.remove()
        run(
            _target(bootstrap, [definition]),
            lambda cluster: _forget(cluster, definition),
            security=_security([definition]),
        )
    note(f"Removed the positions of {definition.name}.")


async def _forget(cluster: Cluster, definition: ConnectorDefinition) -> None:
    state = await read_state(cluster)
    keys = [position_key(definition.name, task) for task in under(state, POSITION, definition.name)]
    keys += [status_key(definition.name)] if status_key(definition.name) in state else []
    if keys:
        producer = Producer(cluster, STATE_TOPIC)
        await producer.start()
        await producer.send([state_record(key, None, cluster.env.clock.wall_ms()) for key in keys])
    if definition.sink_input is not None:
        await delete_group(cluster, GROUP_PREFIX + definition.name)


def _load(file: Path) -> ConnectorDefinition:
    if not file.exists():
        raise CommandError(f"There is no file {file}.", NOT_FOUND)
    try:
        return load_file(file)
    except ConfigProblems as problems:
        raise CommandError(
            "\n".join(f"{file}: {_ended(problem)}" for problem in problems.problems), USAGE
        ) from None
    except ConnectorError as error:
        raise CommandError(f"{file}: {error}.", USAGE) from None


def _target(bootstrap: str | None, definitions: Sequence[ConnectorDefinition]) -> Target:
    stated = {one.bootstrap for one in definitions if one.bootstrap is not None}
    if bootstrap is None and len(stated) > 1:
        raise CommandError(
            "The files name different clusters.", USAGE, "Run them separately, or add --bootstrap-server."
        )
    asked = bootstrap or next(iter(stated), None) or DEFAULT_BOOTSTRAP
    try:
        return Target(parse_bootstrap(asked), REQUEST_TIMEOUT_S)
    except ValueError as error:
        raise CommandError(sentence(str(error)), USAGE) from None


def _security(definitions: Sequence[ConnectorDefinition]) -> ClientSecurity | None:
    """The login from the files; `--client-config` overrides it."""
    stated = {tuple(sorted(one.client.items())) for one in definitions}
    if asked_file() is None and len(stated) > 1:
        raise CommandError(
            "The files have different `client` settings.", USAGE, "Run them apart, or add --client-config."
        )
    return security_of(definitions[0].client)


@contextlib.contextmanager
def _first_failure() -> Iterator[None]:
    """The first error of a group, since callers can explain single errors only."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (ConnectorError, TryAgain, OSError) as error:
        raise CommandError(sentence(str(error)), FAILED) from None


@contextlib.contextmanager
def _stopped_by_signals(runners: Sequence[Runner]) -> Iterator[None]:
    """The first signal lets each connector finish its current batch; the second kills the process."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        note("Stopping.")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        for runner in runners:
            runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _ended(text: str) -> str:
    return text if text.endswith("?") else f"{text}."
