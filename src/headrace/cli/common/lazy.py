"""Command groups whose members are imported only when they are used, so that every command starts fast.

A group has a table: name -> (module:attribute, the line in the help). The help is written from the table alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

Table = Mapping[str, tuple[str, str]]


class UseInstead(click.UsageError):
    """The message ends with a command that can be copied."""


class LazyGroup(click.Group):
    def __init__(self, *args: Any, table: Table | None = None, hidden: Table | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table or {}
        self.unlisted = hidden or {}
        """Names that work and are not shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name) or self.unlisted.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def instead_of(self, name: str) -> str | None:
        """What to type instead of a command of another program."""
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that are not shown are completed once their beginning is there: `kafka-` shows Kafka's tools."""
        found = super().shell_complete(ctx, incomplete)
        hidden = [name for name in self.unlisted if incomplete and name.startswith(incomplete)]
        return [
            *found,
            *(CompletionItem(name) for name in hidden if not name.endswith(".sh") or "." in incomplete),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and args[0] not in self.unlisted:
            import difflib  # only needed for a mistake

            if (instead := self.instead_of(args[0])) is not None:
                raise UseInstead(f"{args[0]} is not a command here. Use: {instead}", ctx)
            near = difflib.get_close_matches(args[0], [*self.table, *self.unlisted], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Commands: {', '.join(self.table)}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def group(name: str, doc: str, table: Table) -> LazyGroup:
    """A noun whose verbs are in other modules."""
    settings = {"help_option_names": ["-h", "--help"]}
    return LazyGroup(name, help=doc, table=table, context_settings=settings, no_args_is_help=True)
