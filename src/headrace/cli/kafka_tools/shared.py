"""What the commands with Kafka's own names share: properties, and flags that mean nothing here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.common.options import keep_client_config, parse_pairs
from headrace.cli.common.output import warn

F = TypeVar("F", bound=Callable[..., Any])


CLIENT_CONFIG_FILES = ("--command-config", "--producer.config", "--consumer.config", "--admin.config")
"""Files of which the login counts, and nothing else."""


def _login_option(name: str) -> Callable[[F], F]:
    return click.option(
        name,
        hidden=True,
        expose_value=False,
        callback=keep_client_config,
        type=click.Path(dir_okay=False),
    )


def ignored(*names: str, flag: bool = False) -> Callable[[F], F]:
    """Options that are accepted, so that commands can be copied, and have no effect."""

    def tell(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            warn(f"{param.opts[0]} has no effect here.")

    def add(function: F) -> F:
        for name in names:
            if name in CLIENT_CONFIG_FILES:
                function = _login_option(name)(function)
                continue
            function = click.option(name, is_flag=flag, hidden=True, expose_value=False, callback=tell)(function)
        return function

    return add


def exactly_one(actions: dict[str, bool]) -> str:
    chosen = [name for name, given in actions.items() if given]
    if len(chosen) != 1:
        raise click.UsageError(f"Give exactly one of {', '.join(actions)}.")
    return chosen[0]


def known_properties(pairs: tuple[str, ...], known: dict[str, str], option: str) -> dict[str, str]:
    """Properties over their defaults; one that is not known is an error."""
    given = parse_pairs(pairs, option)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise click.UsageError(f"{option} {unknown[0]} is not supported; use {', '.join(known)}.")
    return {**known, **given}


def is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def unescaped(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\n", "\n")
