"""`headrace start`: one broker in the foreground, or several with `--workers`, until SIGTERM or Ctrl-C.

stdout gets one line when the broker serves; logs go to stderr (`logs`). A clean stop exits 0. While it serves, the
files of `run_files` in its data directory say so. `--daemon` does the same in the background.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import click

from headrace.cli.broker.fresh_directories import FreshDirectories
from headrace.cli.broker.logs import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS, set_up_logging
from headrace.cli.broker.run_files import run_files
from headrace.cli.broker.settings import SettingsError, load_config
from headrace.cli.broker.worker_settings import MAX_WORKERS, wanted_ports, worker_settings
from headrace.cli.common.completing import complete_broker_settings
from headrace.cli.common.failure import FAILED, user_name
from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import ConfigError

log = logging.getLogger("headrace.start")

OPTIONS_OF_THE_ADDRESS = ("--port", "--host", "--listen", "--listeners", "--bind")
"""What people try who expect an option for it."""
ADDRESS_ADVICE = "Address and port are one setting: --override listeners=PLAINTEXT://127.0.0.1:9192"


class StartCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in OPTIONS_OF_THE_ADDRESS:
                raise click.UsageError(f"{error.format_message()} {ADDRESS_ADVICE}", ctx) from None
            raise


@click.command(cls=StartCommand)
@click.argument(
    "file", required=False, type=click.Path(path_type=Path), metavar="[server.properties|headrace.toml]"
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one setting; may be repeated.",
    shell_complete=complete_broker_settings,
)
@click.option("--data-dir", metavar="DIR", help="Data directory; short for --override log.dirs=DIR.")
@click.option(
    "--insecure", is_flag=True, help="Allow a listener that is open to the network without authentication."
)
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    default=1,
    show_default=True,
    metavar="N",
    help="Start a cluster of N brokers on this machine; ids and ports count up from the configured ones.",
)
@click.option("--supervisor", type=int, hidden=True)
@click.option("--beside", type=int, multiple=True, hidden=True)
@click.option(
    "--daemon", "--background", "-d", is_flag=True, help="Run in the background; return when the broker is ready."
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    envvar=FORMAT_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="Plain text, or one JSON object per line.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    envvar=LEVEL_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="Log level.",
)
def start(
    file: Path | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    insecure: bool,
    workers: int,
    supervisor: int | None,
    beside: tuple[int, ...],
    daemon: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Start a broker, or with --workers several, in the foreground.

    Settings have Kafka's names. A flag overrides an environment variable (HEADRACE_NUM_PARTITIONS for
    num.partitions), which overrides the file.
    """
    if supervisor is not None:
        from headrace.cli.broker.parent import end_with_parent

        end_with_parent(supervisor)
    config = load_config(file, _flags(overrides, data_dir, insecure))
    set_up_logging(log_format, log_level, None if supervisor is None else config.node_id)
    fresh = FreshDirectories()
    with fresh.removed_on_failure():
        _make_directories(config, fresh, log_format)
    options = [part for override in overrides for part in ("--override", override)]
    options += ["--data-dir", data_dir] if data_dir is not None else []
    options += ["--insecure"] if insecure else []
    options += ["--log-format", log_format, "--log-level", log_level]
    file_argument = ["--", str(file)] if file is not None else []
    if daemon:
        from headrace.cli.broker.daemon import start_in_background

        arguments = [*options, "--workers", str(workers), *file_argument]
        with fresh.removed_on_failure():
            start_in_background(arguments, run_files(config.log_dirs[0], config.node_id), keeps_log=not fresh)
    elif supervisor is not None:
        _run(config, _logged, fresh, beside)
    else:
        for warning in config.warnings:
            log.warning(warning)
        if workers > 1:
            with fresh.removed_on_failure():
                settings = _settings_of_workers(config, workers, log_format)
            _run_workers(config, settings, options, file_argument)
        else:
            _run(config, lambda reason: _refusal(reason, log_format), fresh)


def _settings_of_workers(config: BrokerConfig, workers: int, log_format: str) -> list[dict[str, str]]:
    """The settings of each worker; refused if one of them could not start."""
    try:
        settings = worker_settings(config, workers, socket.gethostname())
    except ConfigError as error:
        raise SettingsError(str(error)) from None
    files = [run_files(config.log_dirs[0], config.node_id + index) for index in range(workers)]
    for one in files:
        if (pid := one.pid() or one.supervisor()) is not None:
            reason = f"Broker {one.broker_id} is already running in {one.directory.parent} (process {pid})."
            raise _refusal(reason, log_format)
    taken = [
        f"{host}:{port} (broker {broker_id})"
        for host, port, broker_id in wanted_ports(config, workers)
        if _is_taken(host, port)
    ]
    if taken:
        reason = f"Cannot listen on {', '.join(taken)}: the port is already in use."
        raise _refusal(f"{reason} Stop the process that uses it, or choose another port.", log_format)
    try:
        for one in files:
            one.write_supervisor()
    except OSError as error:
        raise _refusal(f"{error.filename} cannot be written: {error.strerror}.", log_format) from None
    return settings


def _run_workers(
    config: BrokerConfig, settings: list[dict[str, str]], options: list[str], file_argument: list[str]
) -> None:
    from headrace.cli.broker.supervisor import supervise

    files = [run_files(config.log_dirs[0], config.node_id + index) for index in range(len(settings))]
    code = supervise(options, file_argument, settings, files, ", ".join(config.log_dirs))
    if code:
        raise click.exceptions.Exit(code)


def _is_taken(host: str, port: int) -> bool:
    """Whether a process listens there. The broker finds and reports every other reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _run(
    config: BrokerConfig,
    refusal: Callable[[str], Exception],
    fresh: FreshDirectories,
    beside: tuple[int, ...] = (),
) -> None:
    import asyncio

    from headrace.failures import StartError
    from headrace.running import run_broker
    from headrace.server.direct_loop import new_loop

    files = run_files(config.log_dirs[0], config.node_id)

    def ready(bootstrap: str) -> None:
        click.echo(
            f"Headrace broker {config.node_id} is ready at {bootstrap}, data in {', '.join(config.log_dirs)}"
        )

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run_broker(config, on_serving=files.write, on_ready=ready, beside=beside))
    except StartError as error:
        fresh.remove()
        raise refusal(str(error)) from None
    finally:
        files.remove_if_mine()


def _make_directories(config: BrokerConfig, fresh: FreshDirectories, log_format: str) -> None:
    for directory in config.log_dirs:
        try:
            fresh.make(directory)
        except OSError as error:
            raise _refusal(f"{_not_made(directory, error)} Choose another with --data-dir.", log_format) from None
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            reason = f"User {user_name()} cannot write to the data directory {directory}."
            raise _refusal(f"{reason} Change its owner, or choose another with --data-dir.", log_format)


def _not_made(directory: str, error: OSError) -> str:
    at = Path(directory).absolute()
    if file := next((one for one in (at, *at.parents) if os.path.exists(one) and not os.path.isdir(one)), None):
        return f"Cannot use the data directory {directory}: {file} is a file, not a directory."
    if isinstance(error, PermissionError):
        return f"User {user_name()} cannot create the data directory {directory}."
    return f"Cannot create the data directory {directory}: {error.strerror}."


def _refusal(reason: str, log_format: str) -> Exception:
    """An error in the log if programs read it (JSON), else a sentence."""
    return click.ClickException(reason) if log_format == "text" else _logged(reason)


def _logged(reason: str) -> Exception:
    log.error(reason)
    return click.exceptions.Exit(FAILED)


def _flags(overrides: tuple[str, ...], data_dir: str | None, insecure: bool) -> dict[str, str]:
    flags: dict[str, str] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not (equals and name.strip()):
            raise click.UsageError(f"--override {override!r} is not of the form key=value")
        flags[name.strip()] = text.strip()
    if data_dir is not None:
        if flags.get("log.dirs", data_dir) != data_dir:
            raise click.UsageError("--data-dir and --override log.dirs contradict each other")
        flags["log.dirs"] = data_dir
    if insecure:
        flags["headrace.allow.insecure"] = "true"
    return flags
