"""`headrace pipeline submit`: `headrace pipeline run` inside spark-submit, with whatever options that takes.

The driver is a process of this machine (client mode), three deep: this command, Java, and the Python in which
`submit` runs the pipeline. Rules:
- Java and what it starts are a process group of their own, so that Ctrl-C on a terminal does not end Java while
  Python still finishes a batch. A signal is passed on to Python alone, which stops cleanly; Java then ends.
- Java's standard error, with all that Spark logs, goes to the log of the pipeline. Python's comes out of Java's
  standard output: so spark-submit has it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.login import asked_file
from headrace.cli.common.options import parse_pairs
from headrace.cli.common.output import note
from headrace.cli.pipeline import submitted
from headrace.cli.pipeline.check import cannot_start, check_files, require_spark
from headrace.cli.pipeline.run import check_usage, run_pipelines

if TYPE_CHECKING:
    from headrace.spark.pipelines.cron import Cron
    from headrace.spark.pipelines.definition import Pipeline

EXTRA = "headrace.spark_submit_options"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOST_OF_LOG = 2_000
PACKAGES = (".zip", ".egg", ".whl")
DRY_RUN = click.Option(["--dry-run"], is_flag=True, help="Print the command instead of running it.")


class SubmitCommand(click.Command):
    """The options of `run` are its own; those after `--` are for spark-submit."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[EXTRA] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- SPARK-SUBMIT-OPTIONS]"]


@click.command("submit", cls=SubmitCommand, params=[*run_pipelines.params, DRY_RUN])
@click.pass_context
def submit_pipelines(ctx: click.Context, /, files: tuple[Path, ...], dry_run: bool, **given: Any) -> None:
    """Run pipelines through spark-submit, on a cluster: the driver runs here.

    Takes the options of `run`. Options of spark-submit, such as --executor-memory or --py-files, go after --.
    """
    check_usage(files, given)
    pipelines = _loaded(files)
    command = [
        *spark_submit(pipelines, given["master"], parse_pairs(given["conf"], "--conf"), ctx.meta[EXTRA]),
        submitted.__file__,
        *driver_arguments(files, given),
    ]
    added = environment(os.environ, py_files(ctx.meta[EXTRA]))
    if not dry_run:
        _check_master(pipelines, given["master"])
    if dry_run:
        click.echo(
            " ".join([*(f"{name}={shlex.quote(value)}" for name, value in added.items()), shlex.join(command)])
        )
        return
    ctx.exit(_run(pipelines[0].name, command, os.environ | added))


def _loaded(files: Sequence[Path]) -> list[Pipeline]:
    """Load and check the files only; the cluster is asked, and warnings are shown, when they run."""
    require_spark()
    checked = check_files(files)
    problems = [str(problem) for one in checked for problem in one.problems if not problem.warning]
    if problems:
        raise CommandError("\n".join(problems), FAILED)
    return [one.pipeline for one in checked if one.pipeline is not None]


def spark_submit(
    pipelines: Sequence[Pipeline], master: str | None, conf: Mapping[str, str], extra: Sequence[str]
) -> list[str]:
    """Up to the script. Later options win: the file's, those of the line, and then those after `--`."""
    from pyspark.find_spark_home import _find_spark_home

    command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
    master = _master(pipelines, master)
    command += ["--master", master] if master else []
    command += ["--name", ", ".join(pipeline.name for pipeline in pipelines)]
    settings = {"spark.pyspark.driver.python": sys.executable}
    for pipeline in pipelines:
        settings |= pipeline.spark.conf
    for name, value in (settings | dict(conf)).items():
        command += ["--conf", f"{name}={value}"]
    return [*command, *extra]


def driver_arguments(files: Sequence[Path], given: Mapping[str, Any]) -> list[str]:
    """For `submit`, as `run` takes them; spark-submit already has the settings of Spark itself."""
    arguments = [str(file) for file in files]
    arguments += [flag for flag in ("--once", "--quiet") if given[flag.removeprefix("--")]]
    values = {
        "--schedule": _as_written(given["schedule"]),
        "--checkpoint": given["checkpoint"],
        "--metrics-port": given["metrics_port"],
        "--format": given["format"] if given["format"] != "table" else None,
        "--bootstrap-server": given["bootstrap"],
        "--client-config": asked_file(),
    }
    for name, value in values.items():
        arguments += [] if value is None else [name, str(value)]
    return arguments


def _as_written(schedule: float | Cron | None) -> str | None:
    return f"{schedule:g}s" if isinstance(schedule, float) else None if schedule is None else schedule.text


def _check_master(pipelines: Sequence[Pipeline], master: str | None) -> None:
    from headrace.spark.pipelines.running.session import NoMaster, check_master

    try:
        check_master(_master(pipelines, master) or "")
    except NoMaster as problem:
        raise cannot_start(problem) from None


def _master(pipelines: Sequence[Pipeline], given: str | None) -> str | None:
    return given or next((one.spark.master for one in pipelines if one.spark.master), None)


def py_files(extra: Sequence[str]) -> list[str]:
    """Packages of this machine that spark-submit ships."""
    named = [word.removeprefix("--py-files=") for word in extra if word.startswith("--py-files=")]
    named += [after for word, after in pairwise(extra) if word == "--py-files"]
    files = [file.strip() for names in named for file in names.split(",")]
    return [os.path.abspath(file) for file in files if file.endswith(PACKAGES) and "://" not in file]


def environment(present: Mapping[str, str], packages: Sequence[str] = ()) -> dict[str, str]:
    """What is added for Java and for the Python of Spark, which must be at the same path on every machine.

    Spark gives `packages` to the driver and to tasks, and not to the Python processes that it starts beside the
    driver to find and plan our source and sink: these have what Java has.

    Java runs our source and sink with PYSPARK_DRIVER_PYTHON, on the workers too: it must not differ. The Python of
    the driver itself is a setting of `spark_submit`.
    """
    from headrace.spark.pipelines.running.session import NoJava, find_java

    try:
        java = find_java(present)
    except NoJava as problem:
        raise cannot_start(problem) from None
    python = present.get("PYSPARK_PYTHON", sys.executable)
    added = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    if packages:
        added["PYTHONPATH"] = os.pathsep.join([*packages, *filter(None, [present.get("PYTHONPATH")])])
    return added


def _run(name: str, command: Sequence[str], variables: Mapping[str, str]) -> int:
    from headrace.spark.pipelines.running.run_files import run_files

    log = run_files(name).log
    log.parent.mkdir(parents=True, exist_ok=True)
    note(f"Starting spark-submit; Spark's log is {log}")
    with log.open("ab") as errors, tempfile.TemporaryDirectory(prefix="headrace-submit-") as folder:
        begin = errors.tell()
        driver = Path(folder) / "driver"
        with passing_on(driver) as started:
            process = subprocess.Popen(
                command,
                env={**variables, submitted.DRIVER_VARIABLE: str(driver)},
                stdin=subprocess.DEVNULL,
                stderr=errors,
                process_group=0,
            )
            started(process.pid)
            code = process.wait()
        begun = driver.exists()
    if code > 0 and not begun:
        said = log.read_bytes()[begin:].decode(errors="replace").strip()
        raise CommandError("spark-submit ended before the pipeline began.", FAILED, said[-MOST_OF_LOG:] or None)
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def passing_on(driver: Path) -> Iterator[Callable[[int], None]]:
    """Signals go to Python once it runs, and to Java until then: there is nothing to finish yet.

    It begins before Java is started, since a signal may come at once; one that comes too early waits for Java.
    """
    java: list[int] = []
    early: list[int] = []

    def pass_on(number: int, _: object = None) -> None:
        if not java:
            early.append(number)
            return
        pid = int(driver.read_text()) if driver.exists() else java[0]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def started(pid: int) -> None:
        java.append(pid)
        for number in early:
            pass_on(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
