"""`headrace pipeline run`: checks the files, starts Spark, runs their queries and shows how far they are."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.common.errors import sentence
from headrace.cli.common.failure import FAILED, UNREACHABLE, CommandError, said_by
from headrace.cli.common.options import bootstrap_override, client_config_option, duration, parse_pairs
from headrace.cli.pipeline.check import cannot_start, checked_pipelines
from headrace.cli.pipeline.reset import replayed
from headrace.cli.pipeline.screen import PipelineScreen

if TYPE_CHECKING:
    from headrace.spark.pipelines.cron import Cron
    from headrace.spark.pipelines.running.launching import Launch
    from headrace.spark.pipelines.running.runner import Failure

T = TypeVar("T")

AT_ONCE = (
    "Stopped at once. The current batch was not finished and will be repeated by the next run: it counts once; "
    "with at-least-once delivery a topic can get its records twice."
)
FILES = click.Path(path_type=Path, dir_okay=False)
PORT = click.IntRange(0, 65535)


def read_schedule(ctx: click.Context, param: click.Parameter, text: str | None) -> float | Cron | None:
    from headrace.spark.pipelines.cron import is_cron, parse_cron

    if text is None or not is_cron(text):
        return None if text is None else duration(text)
    try:
        return parse_cron(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("run")
@click.argument("files", nargs=-1, required=True, type=FILES, metavar="FILE...")
@click.option("--once", is_flag=True, help="Process all existing records, then exit.")
@click.option(
    "--schedule",
    callback=read_schedule,
    metavar="TIME",
    help='Process new records every 10m, 1h, ..., or at the times of a cron schedule: "30 2 * * mon-fri", @daily.',
)
@click.option("--master", metavar="URL", help="Where Spark runs: local[*], spark://HOST:PORT, yarn, k8s://...")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
@click.option("--checkpoint", metavar="DIRECTORY", help="Checkpoint directory, or s3a://... (one FILE only).")
@click.option("--metrics-port", type=PORT, help="Serve Prometheus /metrics on this port; 0 chooses a free one.")
@click.option("--format", "format", type=click.Choice(("table", "jsonl")), default="table", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
@bootstrap_override
@client_config_option
def run_pipelines(files: tuple[Path, ...], conf: tuple[str, ...], format: str, quiet: bool, **given: Any) -> None:
    """Run the pipelines declared in FILEs in one Spark session.

    They run until Ctrl-C, SIGTERM or `headrace pipeline stop`: the current batch is finished, and the next run
    continues after it. That is success, exit code 0; a second Ctrl-C does not wait (130). With --once, and on a
    schedule, pipelines that feed others run first.
    """
    check_usage(files, given)
    pipelines = replayed(checked_pipelines(files, given["bootstrap"]))

    from headrace.spark.pipelines.running.launching import Launch, LaunchSettings

    # Rows that a console sink prints would mix with a table that is redrawn.
    drawn = not any(sink.kind == "console" for pipeline in pipelines for sink in pipeline.sinks)
    screen = PipelineScreen(format, quiet, drawn)
    launch = Launch(pipelines, LaunchSettings(conf=parse_pairs(conf, "--conf"), **given), screen)
    failure = _run(launch, screen)
    screen.end(list(launch.progress.values()))
    if failure is not None:
        code = UNREACHABLE if failure.passing else FAILED
        raise CommandError(failure.message, code, f"See its log: {launch.log}")


def check_usage(files: Sequence[Path], given: Mapping[str, Any]) -> None:
    if given["checkpoint"] is not None and len(files) > 1:
        raise click.UsageError("--checkpoint needs exactly one FILE.")
    if given["once"] and given["schedule"] is not None:
        raise click.UsageError("--once and --schedule cannot be combined.")


def _run(launch: Launch, screen: PipelineScreen) -> Failure | None:
    with _signals(launch, screen):
        return _in_background(partial(_attempt, launch))


def _attempt(launch: Launch) -> Failure | None:
    from headrace.spark.pipelines.definition import PipelineError
    from headrace.spark.pipelines.running.checkpoint_lock import CheckpointInUse
    from headrace.spark.pipelines.running.connectors import ConnectorFailed
    from headrace.spark.pipelines.running.launching import SparkFailed
    from headrace.spark.pipelines.running.metrics import PortNotFree
    from headrace.spark.pipelines.running.run_files import AlreadyRuns
    from headrace.spark.pipelines.running.session import NoJava, NoMaster

    try:
        return launch.run()
    except CheckpointInUse as problem:
        advice = "Stop that one first, or give this one another `checkpoint` or `name`."
        raise CommandError(f"{problem}.", FAILED, advice) from None
    except AlreadyRuns as problem:
        advice = f"Stop it with `headrace pipeline stop {problem.name}`, or give this one another name."
        raise CommandError(f"P{str(problem)[1:]}.", FAILED, advice) from None
    except (PortNotFree, NoMaster, NoJava) as problem:
        raise cannot_start(problem) from None
    except ConnectorFailed as problem:
        raise CommandError(sentence(str(problem)), FAILED) from None
    except SparkFailed as problem:
        raise CommandError(f"{problem}.", FAILED, f"See its log: {problem.log}") from None
    except PipelineError as problem:
        raise CommandError(str(problem), FAILED) from None
    except OSError as problem:
        raise _disk_problem(problem) from None


def _disk_problem(problem: OSError) -> CommandError:
    """Names the state directory, checkpoint or log, and why it is needed: `[Errno 13]` alone says little."""
    if problem.filename is None:
        return CommandError(f"{problem}.", FAILED)
    return CommandError(
        f"{said_by(problem)}.",
        FAILED,
        "Pipelines keep logs and checkpoints below HEADRACE_STATE_DIR, or in the file's `checkpoint`.",
    )


def _in_background(work: Callable[[], T]) -> T:
    """The main thread stays free for signals: Spark would take them over there, or sit in a call to Java."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except CommandError as problem:
            done.set_exception(problem)
        finally:
            done.cancel()  # does nothing unless it ended with a bug; then the traceback is printed here

    # A daemon, so that the second Ctrl-C need not wait for it.
    threading.Thread(target=run, name="pipelines", daemon=True).start()
    try:
        return done.result()
    except CancelledError:
        raise click.exceptions.Exit(FAILED) from None


def _awaited(launch: Launch) -> str:
    return "the current batch is done" if launch.started else "Spark has started"


@contextlib.contextmanager
def _signals(launch: Launch, screen: PipelineScreen) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets the current batch finish; the second does not wait for it."""

    def asked(number: int, _: object) -> None:
        if launch.stop.is_set():
            screen.give_up(AT_ONCE)
            raise click.Abort
        launch.stop.set()
        # Printed here, because the running thread may be inside a call to Java for seconds.
        screen.say(f"Stopping when {_awaited(launch)}; press Ctrl-C again to stop now.")

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
