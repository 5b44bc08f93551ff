"""The `headrace` command. Subcommands are imported when they are used, so that each starts fast.

Exit codes are in `common.failure`. A mistake of the user is a line or two on stderr, never a traceback.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

import click

from headrace import __version__
from headrace.cli.common.failure import FAILED, INTERRUPTED, CommandError, said_by
from headrace.cli.common.lazy import LazyGroup, UseInstead
from headrace.cli.common.wrapping import for_stream

COMMANDS: dict[str, tuple[str, str]] = {
    "start": ("headrace.cli.broker.start:start", "Start a broker in the foreground."),
    "stop": ("headrace.cli.broker.running:stop", "Stop a broker on this machine."),
    "status": ("headrace.cli.broker.running:status", "Show the brokers of a data directory and their state."),
    "topic": ("headrace.cli.topic.commands:topic", "Topics: list, create, describe, produce, consume, ..."),
    "group": ("headrace.cli.group.commands:group", "Consumer groups: list, describe, watch, seek, delete."),
    "user": ("headrace.cli.user.commands:user", "Users who log in with SCRAM: list, add, remove."),
    "acl": ("headrace.cli.acl.commands:acl", "Access rules: list, add, remove."),
    "tls": ("headrace.cli.tls.commands:tls", "Certificates for trying out TLS: dev."),
    "quota": ("headrace.cli.quota.commands:quota", "Quotas: list, describe, set, delete."),
    "txn": ("headrace.cli.txn.commands:txn", "Transactions: list, describe, commit, abort, find-hanging."),
    "sink": ("headrace.cli.sink.commands:sink", "Exactly-once sinks of Spark: list, commit, abort."),
    "cluster": ("headrace.cli.cluster.commands:cluster", "The cluster: info, health, logdirs, config, check."),
    "partition": (
        "headrace.cli.partition.commands:partition",
        "Replica placement: move, balance, status, cancel, elect.",
    ),
    "broker": (
        "headrace.cli.broker.commands:broker",
        "Take brokers out of a cluster: drain, undrain, decommission.",
    ),
    "connector": (
        "headrace.cli.connector.commands:connector",
        "Connectors to other systems: list, describe, run, status, init.",
    ),
    "pipeline": (
        "headrace.cli.pipeline.commands:pipeline",
        "Pipelines on Spark: init, check, preview, test, run, ...",
    ),
    "archive": (
        "headrace.cli.archive.commands:archive",
        "Archive topics as Parquet files: create, run, status, verify.",
    ),
    "replay": ("headrace.cli.archive.replay:replay", "Put archived records back into a topic."),
    "perf": ("headrace.cli.perf.commands:perf", "Benchmark a cluster: produce, consume, e2e."),
    "plan": ("headrace.cli.planning.plan:plan", "Size a cluster for a load: partitions, brokers, disks."),
    "doctor": ("headrace.cli.doctor:doctor", "Check this machine and the connection to a cluster."),
    "debug": ("headrace.cli.debug.commands:debug", "Inspect files: dump-log."),
    "completion": ("headrace.cli.completion:completion", "Print the completion script of a shell."),
}
"""Name -> where the command is, and its line in the help, which is shown without importing it."""

KAFKA_TOOLS: dict[str, tuple[str, str]] = {
    f"{name}{suffix}": (f"headrace.cli.kafka_tools.{module}:{name.replace('-', '_')}", "")
    for name, module in (
        ("kafka-topics", "topics"),
        ("kafka-console-producer", "console"),
        ("kafka-console-consumer", "console"),
        ("kafka-consumer-groups", "consumer_groups"),
        ("kafka-transactions", "transactions"),
        ("kafka-configs", "configs"),
        ("kafka-get-offsets", "offsets"),
        ("kafka-dump-log", "dump_log"),
        ("kafka-reassign-partitions", "reassign"),
        ("kafka-leader-election", "election"),
    )
    for suffix in ("", ".sh")
}
"""Kafka's own tools, with their flags, so that commands copied from its documentation work."""


OUTPUT_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CommandLine(LazyGroup):
    def instead_of(self, name: str) -> str | None:
        from headrace.cli.kafka_tools.elsewhere import instead_of

        return instead_of(name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has gone and nothing is wrong. Exit without the flush that would complain a second time.
            os._exit(0)
        except click.UsageError as error:
            _finish(error)
            raise
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)  # after the ^C that the terminal shows
            raise click.Abort from None


def _finish(error: click.UsageError) -> None:
    """Numbers in words that people use; and a full stop, which click itself puts after its other errors."""
    text = error.message.replace(" is not a valid integer range", " is not a whole number")
    text = text.replace(" is not a valid float range", " is not a number")
    if type(error) in (click.UsageError, click.BadParameter) and not text.endswith((".", "?", "!")):
        text += "."
    vars(error)["message"] = text


@click.group(
    cls=CommandLine,
    table=COMMANDS,
    hidden=KAFKA_TOOLS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Kafka's tools work too: headrace kafka-topics --create ...",
)
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
@click.option("-b", "--bootstrap-server", "--bootstrap-servers", "bootstrap_everywhere", hidden=True)
def command_line(bootstrap_everywhere: str | None) -> None:
    """Headrace: a commit log that speaks Kafka's protocol."""


def _show(error: click.ClickException) -> None:
    if isinstance(error, UseInstead):
        error.show()
        return
    text = io.StringIO()
    error.show(text)
    click.echo(for_stream(text.getvalue(), sys.stderr), nl=False, err=True)


def main() -> None:
    try:
        result = command_line.main(prog_name="headrace", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except CommandError as error:
        _show(error)
        sys.exit(error.code)
    except click.ClickException as error:
        _show(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno in OUTPUT_IS_FULL and error.filename is None:
            _show(CommandError(f"Cannot write the output: {error.strerror}."))
            os._exit(FAILED)  # without the flush that would fail again
        if error.filename is None or error.strerror is None:
            raise
        _show(CommandError(f"{said_by(error)}."))
        sys.exit(FAILED)
    except click.Abort:
        sys.exit(INTERRUPTED)
