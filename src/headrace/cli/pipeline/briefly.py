"""A small local Spark session for commands that look at a pipeline without running it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.output import note
from headrace.cli.pipeline.check import brief_session, check_files, existing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.definition import Pipeline


@contextlib.contextmanager
def brief_spark(pipeline: Pipeline) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    was_running = SparkSession.getActiveSession() is not None
    if sys.stderr.isatty() and not was_running:
        note("Starting Spark ...")
    with tempfile.TemporaryDirectory(prefix="headrace-pipeline-") as folder:
        try:
            with _explained(pipeline):
                yield brief_session(pipeline, Path(folder) / "spark.log")
        finally:
            mine = SparkSession.getActiveSession()
            if mine is not None and not was_running:
                mine.stop()


@contextlib.contextmanager
def _explained(pipeline: Pipeline) -> Iterator[None]:
    """What Spark refuses is reported with its place in the file, as `check` and `run` do."""
    from headrace.spark.pipelines.definition import PipelineError
    from headrace.spark.pipelines.explaining.spark_words import SPARK_ERRORS
    from headrace.spark.pipelines.explaining.sql_errors import explain_failure

    try:
        yield
    except PipelineError as error:
        raise CommandError(str(error), FAILED) from None
    except SPARK_ERRORS as error:
        raise CommandError(explain_failure(error, pipeline, pipeline.name).message, FAILED) from None


def good_pipelines(files: Sequence[Path]) -> list[Pipeline]:
    """The pipelines of valid files; a mistake ends the command. Their cluster is not contacted."""
    existing(files)
    checked = check_files(files)
    for one in checked:
        for problem in one.problems:
            if not problem.warning:
                note(str(problem))
    if not all(one.good for one in checked):
        raise click.exceptions.Exit(FAILED)
    return [one.pipeline for one in checked if one.pipeline is not None]
