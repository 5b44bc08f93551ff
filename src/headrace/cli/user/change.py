"""`headrace user list|add|remove`: SCRAM credentials, in a running cluster or before there is one.

A password is asked for on a terminal, or read from a file or standard input, never from the command line, which
everybody on the machine can read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from headrace.cli.broker.settings import load_config
from headrace.cli.common.failure import NOT_FOUND, USAGE, CommandError, cannot_read
from headrace.cli.common.options import Target, cluster_options, confirm, format_option, yes_option
from headrace.cli.common.output import Column, emit_rows, note, number
from headrace.cli.common.session import conclude, run
from headrace.client.cluster import Cluster
from headrace.client.users import list_users, remove_credentials, set_password
from headrace.coordination.contract import StoreError
from headrace.env.real import real_env
from headrace.metadata.offline_users import ClusterRuns, store_user
from headrace.metadata.stores import open_store
from headrace.model.errors import KafkaError
from headrace.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, SALT_BYTES, new_credential

COLUMNS = (Column("user", "USER"), Column("mechanism", "MECHANISM"), number("iterations", "ITERATIONS"))
DEFAULT_MECHANISM = "SCRAM-SHA-512"
PRINCIPAL_PREFIX = "User:"
DELETE = "\x7f"


@click.command("list")
@format_option
@cluster_options
def list_command(target: Target, format: str) -> None:
    """List the users that have SCRAM credentials."""
    rows = [one._asdict() for one in run(target, list_users)]
    emit_rows(rows, COLUMNS, format, empty="There are no users with SCRAM credentials.")


@click.command()
@click.argument("user")
@click.option(
    "-m",
    "--mechanism",
    type=click.Choice(sorted(MECHANISMS)),
    default=DEFAULT_MECHANISM,
    show_default=True,
    help="SCRAM mechanism.",
)
@click.option(
    "--password-file",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Read the password from a file, or - for standard input, instead of asking for it.",
)
@click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), default=MIN_ITERATIONS, show_default=True
)
@click.option(
    "--offline",
    type=click.Path(dir_okay=False),
    metavar="SERVER.PROPERTIES",
    help="Before the first start: write to the coordination store configured in this settings file.",
)
@cluster_options
def add(
    target: Target, user: str, mechanism: str, password_file: str | None, iterations: int, offline: str | None
) -> None:
    """Add USER, or change the password."""
    if user.startswith(PRINCIPAL_PREFIX):
        alone = user.removeprefix(PRINCIPAL_PREFIX)
        raise CommandError(f"{user} is how rules name a user; the user's own name is {alone or 'missing'}.", USAGE)
    password = _password(user, password_file)
    salt = os.urandom(SALT_BYTES)
    if offline is not None:
        _store(Path(offline), user, mechanism, password, salt, iterations)
    else:
        run(target, lambda cluster: set_password(cluster, user, mechanism, password, salt, iterations))
    note(f"{user} can log in with {mechanism}.")


def _password(user: str, file: str | None) -> str:
    if file == "-":
        password = sys.stdin.readline()
    elif file is not None:
        try:
            password = Path(file).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise cannot_read(file, error) from None
        except UnicodeDecodeError:
            raise CommandError(f"Cannot read {file}: it is not UTF-8 text.") from None
    elif sys.stdin.isatty():
        password = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise CommandError("Cannot ask for the password without a terminal: use --password-file.", USAGE)
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise CommandError("The password is empty.", USAGE)
    if any(character < " " or character == DELETE for character in password):
        raise CommandError("The password has more than one line, or a control character in it.", USAGE)
    return password


def _store(settings: Path, user: str, mechanism: str, password: str, salt: bytes, iterations: int) -> None:
    config = load_config(settings, {})
    env = real_env()

    async def write() -> None:
        for directory in config.log_dirs:
            env.disk.make_directory(directory)
        store = await open_store(env, config)
        try:
            await store_user(env, store, user, mechanism, new_credential(mechanism, password, salt, iterations))
        finally:
            await store.close()

    try:
        asyncio.run(write())
    except ClusterRuns:
        raise CommandError("Brokers of this cluster are running: leave out --offline.") from None
    except (StoreError, OSError) as error:
        raise CommandError(f"Cannot write to the coordination store: {error}.") from None


@click.command()
@click.argument("users", nargs=-1, required=True, metavar="USER...")
@yes_option
@cluster_options
def remove(target: Target, users: tuple[str, ...], yes: bool) -> None:
    """Remove all SCRAM credentials of users. Open connections stay."""
    confirm(f"Remove {', '.join(users)}?", yes)

    async def work(cluster: Cluster) -> dict[str, KafkaError | None]:
        known = [one for one in await list_users(cluster) if one.user in users]
        missing = sorted(set(users) - {one.user for one in known})
        if missing:
            raise CommandError(f"There is no user {missing[0]}.", NOT_FOUND, "`headrace user list` shows them.")
        return await remove_credentials(cluster, known)

    conclude(run(target, work), "user")
    for name in users:
        note(f"Removed {name}.")
