"""The options that many commands share, and the types of their values."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from headrace.cli.common.failure import USAGE, CommandError
from headrace.cli.common.output import FORMATS
from headrace.client.address import Address, parse_bootstrap

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CLIENT_CONFIG = "headrace.client_config"
CLIENT_CONFIG_VARIABLE = "HEADRACE_CLIENT_CONFIG"
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP_SERVERS"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?(?:/s)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


class Target(NamedTuple):
    """Which cluster, and how long to wait for it."""

    bootstrap: tuple[Address, ...]
    timeout_s: float
    timeout_given: bool = False
    """Somebody asked for it: it is not the default."""
    bootstrap_given: bool = False


def duration(text: str) -> float:
    """The type of an option."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_duration(text: str) -> float:
    """Seconds, from `30s`, `500ms`, `10m`, `2h`, `7d`; a bare number is seconds."""
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a valid duration; write it as 500ms, 30s, 10m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def size(text: str) -> int:
    """Bytes, from `100`, `64k`, `10MB`, `5GiB`, with `/s` or without. MB counts in thousands, MiB in 1024s."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a valid size; write it as 500, 64k, 10MB or 5GiB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[match[2].lower()])


def name_pattern(text: str) -> re.Pattern[str]:
    """The type of an argument."""
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a valid regular expression: {error}") from None


def _bootstrap(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[Address, ...]:
    return _parsed(ctx, param, _asked_for(ctx, param, text) or DEFAULT_BOOTSTRAP)


def _asked_for(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """An option of the command overrides `headrace -b`, and that overrides the environment."""
    everywhere: str | None = ctx.find_root().params.get("bootstrap_everywhere")
    if everywhere and ctx.get_parameter_source(param.name or "") is not ParameterSource.COMMANDLINE:
        text = everywhere
    return text or None


def _parsed(ctx: click.Context, param: click.Parameter, text: str) -> tuple[Address, ...]:
    try:
        return parse_bootstrap(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _bootstrap_or_none(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    text = _asked_for(ctx, param, text)
    return None if text is None else ",".join(map(str, _parsed(ctx, param, text)))


def bootstrap_option(function: F) -> F:
    told = f"Bootstrap brokers.  [env: {BOOTSTRAP_VARIABLE}; default: {DEFAULT_BOOTSTRAP}]"
    return _bootstrap_server(_bootstrap, told)(function)


def bootstrap_override(function: F) -> F:
    """As `bootstrap`, a text: None when neither the line nor the environment says, so that a file can."""
    told = f"Bootstrap brokers, instead of those in the file.  [env: {BOOTSTRAP_VARIABLE}]"
    return _bootstrap_server(_bootstrap_or_none, told)(function)


def _bootstrap_server(callback: Callable[..., Any], told: str) -> Callable[[F], F]:
    return click.option(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        "bootstrap",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT,...",
        callback=callback,
        help=told,
    )


def keep_client_config(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is not None:
        ctx.meta[CLIENT_CONFIG] = path


def client_config_option(function: F) -> F:
    """A file with the settings of a client, as Kafka's tools take it with --command-config."""
    return click.option(
        "--client-config",
        expose_value=False,
        callback=keep_client_config,
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help=f"How to connect: security.protocol, sasl.*, ssl.*.  [env: {CLIENT_CONFIG_VARIABLE}]",
    )(function)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--bootstrap-server and --timeout, given to the command as its first argument, a `Target`."""
    return _target_options(function, "How long to wait.")


def reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that keeps reading: it ends after --timeout, if one was given."""
    return _target_options(function, "How long to wait; if given, also for the next record.")


def _target_options(function: Callable[..., Any], told: str) -> Callable[..., Any]:
    @bootstrap_option
    @client_config_option
    @click.option("--timeout", "timeout_s", type=duration, default="30s", show_default=True, help=told)
    @click.pass_context
    @functools.wraps(function)
    def command(
        ctx: click.Context, /, *args: Any, bootstrap: tuple[Address, ...], timeout_s: float, **kwargs: Any
    ) -> Any:
        timeout_given = ctx.get_parameter_source("timeout_s") is not ParameterSource.DEFAULT
        bootstrap_given = ctx.get_parameter_source("bootstrap") is not ParameterSource.DEFAULT
        bootstrap_given |= bool(ctx.find_root().params.get("bootstrap_everywhere"))
        return function(Target(bootstrap, timeout_s, timeout_given, bootstrap_given), *args, **kwargs)

    return command


def format_option(function: F) -> F:
    return click.option(
        "--format", "format", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format."
    )(function)


def yes_option(function: F) -> F:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; without one, `--yes` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} There is no terminal to confirm on: add --yes.", USAGE)
    if not click.confirm(question, err=True):
        raise CommandError("Nothing was done.")


def parse_pairs(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`key=value` as given with an option that may be repeated."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (equals and name.strip()):
            raise click.UsageError(f"{option} {pair!r} is not of the form key=value")
        parsed[name.strip()] = value.strip()
    return parsed


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Topic names for the shell, from the cluster; none when it cannot be reached quickly."""
    from headrace.cli.common.session import known_topics

    return [name for name in known_topics(asked_bootstrap(ctx, param)) if name.startswith(incomplete)]


def asked_bootstrap(ctx: click.Context, param: click.Parameter) -> tuple[Address, ...]:
    """The address to use during completion: from the line so far, the environment, or the default."""
    return ctx.params.get("bootstrap") or _bootstrap(ctx, param, None)


def topic_argument(function: F) -> F:
    return click.argument("topic", shell_complete=complete_topics)(function)
