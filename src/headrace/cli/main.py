"""The `headrace` command. Subcommands are imported when they are used, so that each starts fast.

Exit codes: 0 ok, 1 failed, 2 usage or a wrong setting, 130 interrupted. A mistake of the user is one line on
stderr, never a traceback.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from headrace import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "start": ("headrace.cli.start:start", "Start a broker in the foreground."),
}
"""Name -> where the command is, and its line in the help, which is shown without importing it."""

EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            import difflib  # only needed for a mistake

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Commands: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
def command_line() -> None:
    """Headrace: a commit log that speaks Kafka's protocol."""


def main() -> None:
    try:
        command_line.main(prog_name="headrace", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone and nothing is wrong. Exit without the flush that would complain a second time.
        os._exit(0)
