"""`headrace stop` and `headrace status`: brokers on this machine, found by their data directory."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from headrace.cli.broker.run_files import BrokerRunFiles, brokers_in, is_broker
from headrace.cli.broker.settings import load_config
from headrace.cli.common.failure import DENIED, FAILED, NOT_FOUND, TIMED_OUT, CommandError, user_name
from headrace.cli.common.options import Target, duration, format_option
from headrace.cli.common.output import Column, emit_rows, note, number

POLL_S = 0.02
COLUMNS = (
    number("broker", "BROKER"),
    Column("state", "STATE"),
    number("pid", "PID"),
    number("supervisor_pid", "SUPERVISOR-PID", wide=True),
    Column("address", "ADDRESS"),
    Column("data_dir", "DATA"),
)


def _where(function: Any) -> Any:
    function = click.option("--broker", "broker_id", type=int, help="Only this one.")(function)
    function = click.option("--data-dir", metavar="DIR", help="Data directory.")(function)
    return click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[server.properties]")(
        function
    )


def _brokers(file: Path | None, data_dir: str | None, broker_id: int | None) -> tuple[str, list[BrokerRunFiles]]:
    """The data directory is found as `start` finds it."""
    directory = data_dir or load_config(file, {}).log_dirs[0]
    _require_access(directory)
    found = [one for one in brokers_in(directory) if broker_id in (None, one.broker_id)]
    if not found:
        whose = "" if broker_id is None else f" of broker {broker_id}"
        raise CommandError(
            f"There is no data{whose} in {directory}.",
            NOT_FOUND,
            "Give the directory that the broker was started with: --data-dir DIR, or its server.properties.",
        )
    for one in found:
        _require_access(one.directory)
    return directory, found


def _require_access(directory: str | Path) -> None:
    """A broker whose files cannot be read would look as if it had stopped."""
    if os.path.isdir(directory) and not os.access(directory, os.R_OK | os.X_OK):
        raise CommandError(
            f"User {user_name()} cannot read the data directory {directory}.",
            DENIED,
            "Run the command as the user who started the broker.",
        )


@click.command()
@_where
@click.option(
    "--timeout",
    "timeout_s",
    type=duration,
    default="5s",
    show_default=True,
    help="How long to wait for it.",
)
@format_option
def status(file: Path | None, data_dir: str | None, broker_id: int | None, timeout_s: float, format: str) -> None:
    """Show the brokers of a data directory: whether they are running and answering.

    Exit code 1 if one of them is not.
    """
    _, found = _brokers(file, data_dir, broker_id)
    rows = [_state(one, timeout_s) for one in found]
    emit_rows(rows, COLUMNS, format)
    if any(row["state"] != "running" for row in rows):
        raise click.exceptions.Exit(FAILED)


def _state(one: BrokerRunFiles, timeout_s: float) -> dict[str, Any]:
    pid, supervisor = one.pid(), one.supervisor()
    address = one.address() if pid is not None else None
    if pid is None:
        state = "stopped" if supervisor is None else "starting"
    else:
        state = "running" if address and _answers(address, timeout_s) else "not answering"
    return {
        "broker": one.broker_id,
        "state": state,
        "pid": pid,
        "supervisor_pid": supervisor,
        "address": address,
        "data_dir": str(one.directory.parent),
    }


def _answers(address: str, timeout_s: float) -> bool:
    from headrace.cli.common.session import run
    from headrace.client.address import parse_bootstrap
    from headrace.client.cluster import Cluster

    async def ask(cluster: Cluster) -> None:
        await cluster.entry()

    try:
        run(Target(parse_bootstrap(address), timeout_s), ask)
    except CommandError:
        return False
    return True


@click.command()
@_where
@click.option("--timeout", "timeout_s", type=duration, default="60s", show_default=True, help="How long to wait.")
@click.option(
    "--force", is_flag=True, help="Kill brokers that have not stopped by then. No acknowledged record is lost."
)
def stop(file: Path | None, data_dir: str | None, broker_id: int | None, timeout_s: float, force: bool) -> None:
    """Stop the brokers of a data directory cleanly.

    With --broker, stop only that one, even if `start --workers` started several; it is not restarted.
    """
    directory, found = _brokers(file, data_dir, broker_id)
    owner = BrokerRunFiles.pid if broker_id is not None else _owner
    running = [(one, pid) for one in found if (pid := owner(one)) is not None]
    if not running:
        note(f"No broker of {directory} is running.")
        return
    for one, pid in running:
        _terminate(one, pid)
    deadline = time.monotonic() + timeout_s
    late = [(one, pid) for one, pid in running if not _ended(pid, deadline)]
    for one, pid in late:
        if not force:
            raise CommandError(
                f"Broker {one.broker_id} (process {pid}) is still running after {timeout_s:g} s.",
                TIMED_OUT,
                "Wait longer with --timeout, or kill it with --force.",
            )
        if is_broker(pid):
            os.kill(pid, signal.SIGKILL)
        one.remove()
    for one, _ in running:
        note(f"Broker {one.broker_id} has stopped.")


def _terminate(one: BrokerRunFiles, pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has already exited
    except PermissionError:
        raise CommandError(
            f"User {user_name()} cannot stop broker {one.broker_id} (process {pid}).",
            DENIED,
            "Run the command as the user who started the broker.",
        ) from None


def _owner(one: BrokerRunFiles) -> int | None:
    """The process to stop: the supervisor if there is one, since it would restart a broker that ended."""
    return one.supervisor() or one.pid()


def _ended(pid: int, deadline: float) -> bool:
    while is_broker(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
