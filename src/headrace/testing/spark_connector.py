"""Spark with its own Kafka connector, for comparison: an environment of its own, and the connector's jars.

Of the Spark releases on Maven Central one has both jars of the connector, and it works with that release only. So
there is a virtual environment with that PySpark and this project, made once in the cache beside Apache Kafka's
jars, and the jars themselves, which Spark is given with `spark.jars`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.testing.apache_kafka import OracleUnavailable, cache_dir

SPARK_VERSION = "4.0.0"
SCALA = "2.13"
JARS = (
    ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", SPARK_VERSION),
    ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", SPARK_VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
OWN_VERSIONS = ("pyspark", "py4j")
"""Packages that are not held to the project's constraints here."""
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
READY = "ready"
RUN_TIMEOUT_S = 3600.0
"""PySpark comes as 400 MB of source, and is packed again: on a busy machine that takes long."""


@dataclass(frozen=True, slots=True)
class SparkConnector:
    python: Path
    jars: tuple[Path, ...]


def connector_dir() -> Path:
    return cache_dir().parent / f"spark-{SPARK_VERSION}"


def fetch_connector(project: Path) -> SparkConnector:
    """The environment, made the first time only; the project in it is the source tree that asked last."""
    target = connector_dir()
    ready, python = target / READY, target / "venv" / "bin" / "python"
    if not ready.exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _copy_jars(target / "jars")
        _make_environment(target / "venv", project)
    elif ready.read_text() != str(project):
        _run([*_pip(python), "--no-deps", "-e", str(project)])
    ready.write_text(str(project))
    return SparkConnector(python, tuple(sorted((target / "jars").glob("*.jar"))))


def _copy_jars(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise OracleUnavailable("`mvn` was not found: Spark's Kafka connector comes through Maven")
    for group, artifact, version in JARS:
        # One by one, without what each depends on: Spark's parent project names mirrors that may be out of reach.
        arguments = [f"-Dartifact={group}:{artifact}:{version}", f"-DoutputDirectory={directory}"]
        _run([maven, "-q", "-B", COPY_GOAL, "-Dmdep.useBaseVersion=true", *arguments])


def _make_environment(directory: Path, project: Path) -> None:
    _run([sys.executable, "-m", "venv", str(directory)])
    with tempfile.TemporaryDirectory() as work:
        constraints = Path(work) / "constraints.txt"
        given = (project / "constraints.txt").read_text().splitlines()
        constraints.write_text("\n".join(without(given, OWN_VERSIONS)) + "\n")
        pip = _pip(directory / "bin" / "python")
        _run([*pip, "-c", str(constraints), f"pyspark=={SPARK_VERSION}", "-e", f"{project}[spark]"])


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]


def without(constraints: Iterable[str], packages: Iterable[str]) -> list[str]:
    left_out = tuple(f"{name}==" for name in packages)
    return [line for line in constraints if not line.lower().startswith(left_out)]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise OracleUnavailable(f"{os.path.basename(command[0])} failed:\n{done.stdout}{done.stderr}")


def main(project: Path) -> int:
    """Makes the environment and says where its Python is."""
    try:
        print(fetch_connector(project).python)
    except OracleUnavailable as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0
