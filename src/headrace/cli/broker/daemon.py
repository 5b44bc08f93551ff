"""`headrace start --daemon`: the same command in its own process; returns when the broker serves or has failed."""

from __future__ import annotations

import subprocess
import sys

import click

from headrace.cli.broker.run_files import BrokerRunFiles
from headrace.cli.common.failure import CommandError
from headrace.cli.common.output import note

TAIL_LINES = 5
WHOLE_LINES = 50
"""How many lines of a log are shown that will not be kept."""


def start_in_background(arguments: list[str], files: BrokerRunFiles, keeps_log: bool) -> None:
    """Starts `headrace start` with these arguments, its log in a file, and waits for its first line."""
    if (pid := files.pid() or files.supervisor()) is not None:
        raise CommandError(
            f"Broker {files.broker_id} is already running in {files.directory.parent} (process {pid})."
        )
    files.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with files.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "start", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    ready = process.stdout.readline().decode()
    if not ready:
        code = process.wait()
        tail = files.log.read_text(errors="replace").splitlines()[-(TAIL_LINES if keeps_log else WHOLE_LINES) :]
        advice = f"Its log is {files.log}." if keeps_log else None
        raise CommandError("The broker did not start:\n  " + "\n  ".join(tail), code or 1, advice)
    click.echo(ready, nl=False)
    note(f"The log is {files.log}; stop it with `headrace stop --data-dir {files.directory.parent}`.")
