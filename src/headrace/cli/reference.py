"""The command reference as Markdown, from the commands themselves; `make docs` writes it to docs/cli.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from headrace.cli.common.lazy import LazyGroup
from headrace.cli.main import KAFKA_TOOLS, command_line

HEAD = """# The command line

{notice}

`headrace NOUN VERB`. Most commands work against any Kafka-compatible cluster, not only Headrace.

| everywhere | meaning |
|---|---|
| `-b`, `--bootstrap-server`, `--bootstrap-servers` | Bootstrap brokers, as `HOST:PORT,...`; also \
`HEADRACE_BOOTSTRAP_SERVERS`. Default: `127.0.0.1:9092` |
| `--timeout` | How long to wait: `500ms`, `30s`, `10m`. Default: `30s` |
| `--format` | Output format: `table`, `wide`, `json`, `jsonl`, `yaml`. The keys of the last three are stable. |
| `-h`, `--help` | Help for the command. |

Data goes to stdout, everything else to stderr. Destructive commands ask on a terminal and need `--yes`
elsewhere.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed, or a check found a problem |
| 2 | the command line is wrong |
| 3 | the cluster cannot be reached |
| 4 | there is no such topic, group, partition or file |
| 5 | not authorized |
| 6 | partially done |
| 124 | timed out |
| 130 | interrupted |
"""

KAFKA_HEAD = """
## Kafka's tools

These take the flags of Kafka's tools, so that commands from Kafka's documentation work with `headrace` in
front; `.sh` may stay.
"""

EVERYWHERE = frozenset({"--bootstrap-server", "--timeout", "--format", "--help"})
"""Options that are explained once."""
RAW = "\b"
"""Click's mark of a paragraph that is printed as it is."""


def commands_page(notice: str) -> str:
    root = click.Context(command_line, info_name="headrace")
    parts = [HEAD.format(notice=notice)]
    for name in command_line.list_commands(root):
        for path, command in _with_verbs((name,), _member(command_line, root, name), root):
            parts += _section(path, command, "##" if len(path) == 1 else "###")
    parts.append(KAFKA_HEAD)
    for name in KAFKA_TOOLS:
        if not name.endswith(".sh"):
            parts += _section((name,), _member(command_line, root, name), "###")
    return "".join(parts)


def _member(group: click.Group, context: click.Context, name: str) -> click.Command:
    command = group.get_command(context, name)
    assert command is not None
    return command


def _with_verbs(
    path: tuple[str, ...], command: click.Command, context: click.Context
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, LazyGroup):
        for name in command.list_commands(context):
            yield from _with_verbs((*path, name), _member(command, context, name), context)


def _section(path: tuple[str, ...], command: click.Command, heading: str) -> Iterator[str]:
    words = " ".join(("headrace", *path))
    yield f"\n{heading} {words}\n\n{_prose(inspect.cleandoc(command.help or ''))}\n"
    if isinstance(command, LazyGroup):
        return
    context = click.Context(command, info_name=words)
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f"\n`{' '.join((words, *arguments))}`\n"
    options = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and not EVERYWHERE & set(parameter.opts)
        and (record := parameter.get_help_record(context)) is not None
    ]
    if options:
        yield "\n| option | meaning |\n|---|---|\n"
        yield from (f"| `{_cell(names)}` | {_cell(meaning)} |\n" for names, meaning in options)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _prose(text: str) -> str:
    """Paragraphs, wrapped as they are in the source; those that click prints as they are become blocks."""
    return "\n\n".join(
        f"```text\n{paragraph.removeprefix(RAW).strip(chr(10))}\n```" if paragraph.startswith(RAW) else paragraph
        for paragraph in text.strip().split("\n\n")
    )
