"""`headrace pipeline check`: finds mistakes in pipeline files before they run.

Three stages, each only if the one before allows it: the file itself, the topics of its cluster, and its SQL as
Spark analyses it. Problems are shown as compilers show them, so that editors can jump to the line.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.errors import sentence
from headrace.cli.common.failure import FAILED, NOT_FOUND, CommandError
from headrace.cli.common.login import asked_settings
from headrace.cli.common.options import bootstrap_override, client_config_option
from headrace.cli.common.output import emit_data, headings_in_bold, note, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.client.cluster import BlockingCluster
    from headrace.spark.client.connection import ClusterSettings
    from headrace.spark.pipelines.definition import Pipeline, Problem
    from headrace.spark.pipelines.running.metrics import PortNotFree
    from headrace.spark.pipelines.running.session import NoJava, NoMaster

REQUEST_TIMEOUT_S = 10.0
MOST_OF_LOG = 400
_FORMATS = ("table", "json")
_FILE, _CLUSTER, _SPARK = "file", "cluster", "spark"
_CHECK_MASTER = "local[1]"
_SETTINGS = "Look at spark: conf: in the file."
_BRIEFLY = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a Java that lives for seconds: to compile thoroughly would take half of its time."""


@dataclass(slots=True)
class CheckedFile:
    """One file: what was loaded of it and what was found."""

    path: str
    pipeline: Pipeline | None = None
    problems: list[Problem] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not any(not problem.warning for problem in self.problems)


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE..."
)
@click.option("--no-spark", is_flag=True, help="Do not start Spark: SQL is not analysed.")
@click.option("--no-cluster", is_flag=True, help="Do not look up topics on the cluster.")
@click.option("--format", "format", type=click.Choice(_FORMATS), default="table", show_default=True)
@bootstrap_override
@client_config_option
def check(files: tuple[Path, ...], no_spark: bool, no_cluster: bool, format: str, bootstrap: str | None) -> None:
    """Check pipeline files: keys, names and schemas, their topics on the cluster, and their SQL with Spark.

    Exit code 1 if there are errors; warnings do not count. 3 if the cluster cannot be reached, 4 if a file does
    not exist.
    """
    require_spark()
    existing(files)
    checked = check_files(files)
    unreachable = None
    if not no_cluster:
        try:
            check_topics(checked, bootstrap)
        except CommandError as error:  # mistakes in the files and the SQL are shown even so
            unreachable = error
            note(f"Error: {error.format_message()}")  # at once: Spark takes a while to start
    if not no_spark:
        check_sql(checked, bootstrap, records=not no_cluster and unreachable is None)
    _show(checked, format, unreachable is not None)
    if not all(one.good for one in checked):
        raise click.exceptions.Exit(FAILED)
    if unreachable is not None:
        raise click.exceptions.Exit(unreachable.code)


def checked_pipelines(files: Sequence[Path], bootstrap: str | None) -> list[Pipeline]:
    """The pipelines of files that are to run now. Mistakes are printed and end the command."""
    require_spark()
    existing(files)
    checked = check_files(files)
    if all(one.good for one in checked):
        check_topics(checked, bootstrap)
    for one in checked:
        for problem in one.problems:
            note(str(problem))
    if not all(one.good for one in checked):
        note(_summary(checked))
        raise click.exceptions.Exit(FAILED)
    return [one.pipeline for one in checked if one.pipeline is not None]


def existing(files: Iterable[Path]) -> None:
    for path in files:
        if not path.exists():
            raise CommandError(f"There is no file {path}.", NOT_FOUND)


def cannot_start(problem: NoJava | NoMaster | PortNotFree) -> CommandError:
    return CommandError(sentence(str(problem)), FAILED, sentence(problem.advice))


def require_spark() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow", "fastavro") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"Pipelines need packages that are not installed here: {', '.join(missing)}.",
            FAILED,
            "Install them with: pip install 'headrace[spark]'",
        )


def check_files(files: Iterable[Path]) -> list[CheckedFile]:
    """Check the files themselves, and that no two pipelines have the same name."""
    from headrace.spark.pipelines.checking.static import check_static
    from headrace.spark.pipelines.definition import PipelineError
    from headrace.spark.pipelines.loading.files import load_pipeline

    client = asked_settings()
    checked = []
    for path in dict.fromkeys(map(str, files)):
        one = CheckedFile(path, looks=[_FILE])
        try:
            one.pipeline = load_pipeline(path, client=client)
            one.problems += check_static(one.pipeline)
        except PipelineError as error:
            one.problems += error.problems
        checked.append(one)
    _same_names(checked)
    return checked


def _same_names(checked: Sequence[CheckedFile]) -> None:
    first: dict[str, str] = {}
    for one in checked:
        if one.pipeline is None:
            continue
        other = first.setdefault(one.pipeline.name, one.path)
        if other != one.path:
            what = f"{other} is also a pipeline named {one.pipeline.name}"
            advice = "Pipelines with the same name would share and corrupt their state: rename this one."
            one.problems.append(one.pipeline.problem(one.pipeline, "name", what, advice))


def check_topics(checked: Sequence[CheckedFile], bootstrap: str | None) -> None:
    """The topics on the cluster of each file. A topic that one of the files makes need not be there yet."""
    from headrace.spark.pipelines.checking.cluster import topics_made
    from headrace.spark.pipelines.checking.static import check_cluster
    from headrace.spark.pipelines.definition import DEFAULT_BOOTSTRAP

    loaded = [(one, one.pipeline) for one in checked if one.pipeline is not None]
    made = {topic for _, pipeline in loaded for topic in topics_made(pipeline)}
    for one, pipeline in loaded:
        ask = partial(check_cluster, pipeline, made=made)
        one.problems += _asked(pipeline, bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP, ask)
        one.looks.append(_CLUSTER)


def check_topics_of(pipeline: Pipeline, bootstrap: str | None) -> str:
    """Check the topics of a pipeline that is valid so far; returns the address of its cluster. A mistake is
    printed and ends the command.
    """
    from headrace.spark.pipelines.definition import DEFAULT_BOOTSTRAP

    one = CheckedFile(pipeline.path, pipeline)
    check_topics([one], bootstrap)
    for problem in one.problems:
        note(str(problem))
    if not one.good:
        raise click.exceptions.Exit(FAILED)
    return bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP


def _asked(pipeline: Pipeline, bootstrap: str, ask: Callable[[BlockingCluster], list[Problem]]) -> list[Problem]:
    from headrace.cli.common.errors import explain_client, explain_kafka
    from headrace.client.errors import ClientError
    from headrace.model.errors import KafkaError
    from headrace.spark.client.cluster import BlockingCluster

    settings = command_settings(pipeline, bootstrap)
    try:
        with closing(BlockingCluster(settings)) as cluster:
            return ask(cluster)
    except KafkaError as error:
        raise explain_kafka(error) from None
    except ClientError as error:
        raise explain_client(error) from None


def command_settings(pipeline: Pipeline, bootstrap: str) -> ClusterSettings:
    """How a command connects to the cluster of a pipeline: with the pipeline's own settings."""
    from headrace.spark.option_table import OptionError
    from headrace.spark.pipelines.connecting import cluster_settings

    try:
        return cluster_settings(pipeline, bootstrap, client_id="headrace-cli", request_timeout_s=REQUEST_TIMEOUT_S)
    except OptionError as error:
        raise CommandError(f"{pipeline.path}: {error}.", FAILED) from None


def check_sql(checked: Sequence[CheckedFile], bootstrap: str | None = None, *, records: bool = False) -> None:
    """With one Spark for all files that are right so far, always on this machine.

    `records`: also whether the latest ones of their topics fit the schemas.
    """
    good = [(one, one.pipeline) for one in checked if one.pipeline is not None and one.good]
    if not good:
        return
    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.checking.spark import check_spark

    was_running = SparkSession.getActiveSession() is not None
    if sys.stderr.isatty() and not was_running:
        note("Starting Spark to analyse the SQL ...")
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as folder:
        try:
            for one, pipeline in good:
                session = brief_session(pipeline, Path(folder) / "spark.log")
                one.problems += check_spark(pipeline, session)
                one.looks.append(_SPARK)
                if records and one.good:
                    one.problems += _check_records(pipeline, session, bootstrap)
        finally:
            mine = SparkSession.getActiveSession()
            if mine is not None and not was_running:
                mine.stop()


def _check_records(pipeline: Pipeline, session: SparkSession, bootstrap: str | None) -> list[Problem]:
    from headrace.spark.client.cluster import BlockingCluster
    from headrace.spark.pipelines.checking.records import check_records
    from headrace.spark.pipelines.definition import DEFAULT_BOOTSTRAP

    address = bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP
    with closing(BlockingCluster(command_settings(pipeline, address))) as cluster:
        return check_records(pipeline, session, cluster, address)


def brief_session(pipeline: Pipeline, log_file: Path) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError

    from headrace.spark.pipelines.explaining.spark_words import in_words
    from headrace.spark.pipelines.running.class_archive import class_archive
    from headrace.spark.pipelines.running.session import NoJava, find_java, make_session

    try:
        settings = replace(pipeline.spark, conf=_BRIEFLY | dict(pipeline.spark.conf))
        archive = class_archive(find_java(os.environ).home, os.environ, make=False)
        options = archive.options if archive is not None else ""
        name = "headrace pipeline check"
        return make_session(settings, name, master=_CHECK_MASTER, log_file=log_file, java_options=options)
    except NoJava as error:
        raise cannot_start(error) from None
    except Py4JError as error:  # a setting that Spark refuses
        raise CommandError(f"Spark did not start: {in_words(error)}", FAILED, _SETTINGS) from None
    except PySparkRuntimeError as error:  # Java exits at once: its last lines are in the log
        said = log_file.read_text(errors="replace").strip() if log_file.exists() else ""
        raise CommandError(
            f"Spark did not start: {error.getMessage()}", FAILED, said[-MOST_OF_LOG:] or None
        ) from None


def _show(checked: Sequence[CheckedFile], format: str, unreachable: bool) -> None:
    if format == "json":
        emit_data([_as_data(one) for one in checked], format)
        return
    for one in checked:
        for problem in one.problems:
            click.echo(_styled(problem))
        if one.good and one.pipeline is not None:
            _show_good(one, one.pipeline)
    click.echo(_summary(checked, unreachable))


def _show_good(one: CheckedFile, pipeline: Pipeline) -> None:
    from headrace.spark.pipelines.graph import picture

    click.echo(f"{one.path}: pipeline {pipeline.name}")
    for line in picture(pipeline):
        click.echo(f"  {line}")


def _styled(problem: Problem) -> str:
    where, _, rest = str(problem).partition(": ")
    if not headings_in_bold():
        return str(problem)
    return f"{click.style(where, 'yellow' if problem.warning else 'red', bold=True)}: {rest}"


def _summary(checked: Sequence[CheckedFile], unreachable: bool = False) -> str:
    problems = [problem for one in checked for problem in one.problems]
    warnings = sum(problem.warning for problem in problems)
    found = [plural(len(problems) - warnings, "problem")] if len(problems) > warnings else []
    found += [plural(warnings, "warning")] if warnings else []
    looks = [look for look in (_FILE, _CLUSTER, _SPARK) if all(look in one.looks for one in checked)]
    words = {_FILE: "keys and files", _CLUSTER: "topics", _SPARK: "SQL"}
    seen = ", ".join(words[look] for look in looks)
    found += ["the topics could not be checked"] if unreachable else []
    return f"{plural(len(checked), 'file')} checked ({seen}): {', '.join(found) or 'no problems'}."


def _as_data(one: CheckedFile) -> dict[str, Any]:
    return {
        "file": one.path,
        "name": None if one.pipeline is None else one.pipeline.name,
        "ok": one.good,
        "checked": one.looks,
        "problems": [
            {
                "file": problem.path,
                "line": problem.line,
                "column": problem.column,
                "severity": "warning" if problem.warning else "error",
                "what": problem.what,
                "advice": problem.advice,
            }
            for problem in one.problems
        ],
    }
