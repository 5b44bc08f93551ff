"""`headrace start`: one broker in the foreground, until SIGTERM or Ctrl-C.

stdout gets one line when the broker serves; logs go to stderr (`logs`). A clean stop exits 0. While it serves, the
files of `run_files` in its data directory say so. `--daemon` does the same in the background.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from headrace.cli.broker.logs import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS, set_up_logging
from headrace.cli.broker.run_files import run_files
from headrace.cli.broker.settings import load_config
from headrace.cli.common.failure import FAILED
from headrace.config.broker_config import BrokerConfig

log = logging.getLogger("headrace.start")


@click.command()
@click.argument(
    "file", required=False, type=click.Path(path_type=Path), metavar="[server.properties|headrace.toml]"
)
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting; may be repeated."
)
@click.option("--data-dir", metavar="DIR", help="Data directory; short for --override log.dirs=DIR.")
@click.option(
    "--insecure", is_flag=True, help="Allow a listener that is open to the network without authentication."
)
@click.option("--daemon", "-d", is_flag=True, help="Run in the background; return when the broker is ready.")
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    envvar=FORMAT_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="Log lines for people, or one JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    envvar=LEVEL_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="Lowest level that is logged.",
)
def start(
    file: Path | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    insecure: bool,
    daemon: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Start a broker in the foreground.

    Settings have Kafka's names. A flag wins over an environment variable (HEADRACE_NUM_PARTITIONS for
    num.partitions), and that over the file.
    """
    set_up_logging(log_format, log_level)
    config = load_config(file, _flags(overrides, data_dir, insecure))
    _make_directories(config, log_format)
    if daemon:
        from headrace.cli.broker.daemon import start_in_background

        arguments = [part for override in overrides for part in ("--override", override)]
        arguments += ["--data-dir", data_dir] if data_dir is not None else []
        arguments += ["--insecure"] if insecure else []
        arguments += ["--log-format", log_format, "--log-level", log_level]
        arguments += ["--", str(file)] if file is not None else []
        start_in_background(arguments, run_files(config.log_dirs[0], config.node_id))
        return
    for warning in config.warnings:
        log.warning(warning)
    _run(config, log_format)


def _run(config: BrokerConfig, log_format: str) -> None:
    import asyncio

    from headrace.node import StartError, run_broker
    from headrace.server.direct_loop import new_loop

    files = run_files(config.log_dirs[0], config.node_id)

    def ready(bootstrap: str) -> None:
        files.write(bootstrap)
        click.echo(
            f"Headrace broker {config.node_id} is ready at {bootstrap}, data in {', '.join(config.log_dirs)}"
        )

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run_broker(config, on_ready=ready))
    except StartError as error:
        raise _refusal(str(error), log_format) from None
    finally:
        files.remove_if_mine()


def _make_directories(config: BrokerConfig, log_format: str) -> None:
    for directory in config.log_dirs:
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            reason = f"The data directory {directory} cannot be made: {error.strerror}."
            raise _refusal(f"{reason} Name another with --data-dir.", log_format) from None


def _refusal(reason: str, log_format: str) -> Exception:
    """In the log where programs read it, for people as a sentence."""
    if log_format == "text":
        return click.ClickException(reason)
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
