"""The Spark session of a pipeline: finds Java, sets what our queries need, and keeps Java's output off the
terminal.

Rules:
- An existing session (a notebook, a test) is not changed: the pipeline gets a session of its own
  beside it, with its own views and SQL settings. Under spark-submit, its master and its settings stand.
- What the pipeline file sets under `spark: conf:` wins over every default here.
- Java's standard error, with all that log4j writes, goes to the log file from the first line on. Its standard
  output stays: the console sink prints there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.spark.pipelines.definition import SparkSettings

MIN_JAVA = 17
JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
DEFAULT_MASTER = "local[*]"
JAVA_FOLDERS = (Path("/usr/lib/jvm"), Path("/opt/java"), Path("/Library/Java/JavaVirtualMachines"))
JAVA_ANSWER_S = 20
STANDALONE = "spark://"
MASTER_ANSWER_S = 5.0

SQL_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
FEWEST_PARTITIONS, MOST_PARTITIONS = 4, 200
"""The minimum and maximum of partitions of a shuffle. The maximum is Spark's default for every query, however
small its stream is."""
LOCAL_SQL_DEFAULTS = {SHUFFLE_PARTITIONS: str(FEWEST_PARTITIONS)}
LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
OWN_DEFAULTS = {"spark.ui.showConsoleProgress": "false"}
COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java compiles a method thoroughly when it was called ten times as often as usual: code that runs a few thousand
times in a start and never again is not worth it (some two of twenty seconds of CPU, on one try; `bench.first_rows`
compares both). What rows go through is called as often in a moment."""


NOISY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""The loggers with which PySpark prints every error in a query a second time, with its Java stack trace."""


class Java(NamedTuple):
    home: Path
    version: int


class NoJava(Exception):
    """There is no Java that Spark can use. `advice` says what to install."""

    advice = (
        "install one, for example with: apt install openjdk-17-jre-headless (Debian, Ubuntu) or brew install "
        "openjdk@17 (macOS); or set JAVA_HOME"
    )


class NoMaster(Exception):
    """The master of a standalone cluster does not respond."""

    advice = "Is it running? Its web page shows the address; `--master local[*]` needs none."


def check_master(master: str) -> None:
    """Check that a master answers. Spark itself would try for a minute, and then report another error."""
    reasons = []
    for address in master.removeprefix(STANDALONE).split(",") if master.startswith(STANDALONE) else ():
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()):
            raise NoMaster(f"{master} is not the address of a Spark master: write {STANDALONE}HOST:PORT")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), MASTER_ANSWER_S):
                return
        except (OSError, OverflowError) as error:
            reasons.append(str(getattr(error, "strerror", None) or error).lower())
    if reasons:
        raise NoMaster(f"no Spark master answers at {master}: {reasons[0]}")


def find_java(environment: Mapping[str, str], folders: Sequence[Path] = JAVA_FOLDERS) -> Java:
    """The first Java that Spark can use: JAVA_HOME, then the PATH, then the oldest good one of the folders."""
    too_old: list[Java] = []
    for home in _named_homes(environment):
        java = _java_at(home)
        if java is not None and java.version >= MIN_JAVA:
            return java
        too_old += [java] if java is not None else []
    installed = sorted(_installed(folders), key=lambda java: (java.version, java.home))
    good = [java for java in installed if java.version >= MIN_JAVA]
    if good:
        return good[0]
    too_old += installed
    if too_old:
        newest = max(too_old, key=lambda java: java.version)
        raise NoJava(
            f"Spark needs Java {MIN_JAVA} or newer, but only Java {newest.version} was found ({newest.home})"
        )
    raise NoJava(f"Spark needs Java {MIN_JAVA} or newer, but none was found in JAVA_HOME or on the PATH")


def _named_homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    command = shutil.which("java", path=environment.get("PATH", ""))
    if command is not None:
        yield Path(command).resolve().parent.parent


def _installed(folders: Sequence[Path]) -> Iterator[Java]:
    for folder in folders:
        for home in folder.glob("*") if folder.is_dir() else ():
            java = _java_at(home) or _java_at(home / "Contents" / "Home")
            if java is not None:
                yield java


def _java_at(home: Path) -> Java | None:
    command = home / "bin" / "java"
    if not command.is_file():
        return None
    version = _version_in_release(home) or _version_it_says(command)
    return None if version is None else Java(home, version)


def _version_in_release(home: Path) -> int | None:
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:  # distributions leave the file out, or put a broken link there
        return None
    found = re.search(r'^JAVA_VERSION="?([^"\s]+)', text, re.MULTILINE)
    return None if found is None else java_version(found[1])


def _version_it_says(command: Path) -> int | None:
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', told.stderr)
    return None if found is None else java_version(found[1])


def java_version(text: str) -> int | None:
    """The major version: 17 for "17.0.15", and 8 for "1.8.0_392"."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def make_session(
    settings: SparkSettings,
    app_name: str,
    *,
    master: str | None = None,
    log_file: Path | None = None,
    show_ui: bool = False,
    java_options: str = "",
) -> SparkSession:
    """A session for one pipeline. `master` overrides the file's; spark-submit's overrides both."""
    for name in NOISY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    active = SparkSession.getActiveSession()
    if active is not None:
        return _beside(active, settings)
    # Java runs our source and sink with this Python, on the workers too: it must not be another (or Jupyter).
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_submitted():
        session = _submitted_session(settings)
    else:
        os.environ["JAVA_HOME"] = str(find_java(os.environ).home)
        with _java_errors_to(log_file), with_java_options(f"{COMPILE_LATER} {java_options}"), _no_java_left():
            session = _new_session(settings, app_name, master, show_ui)
        if log_file is not None and not session.sparkContext.getConf().contains("spark.log.level"):
            return session
    _set_log_level(session)
    return session


def _set_log_level(session: SparkSession) -> None:
    """The level of `spark.log.level`, else only errors.

    Spark itself ignores a level that its root logger already has, and that is INFO, though a filter of PySpark
    then shows WARN and above. Any other level takes that filter away.
    """
    wanted = session.sparkContext.getConf().get("spark.log.level")
    session.sparkContext.setLogLevel("ERROR")
    if wanted is not None:
        session.sparkContext.setLogLevel(wanted)


def is_submitted() -> bool:
    """Whether spark-submit started this process: then Java runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _new_session(settings: SparkSettings, app_name: str, master: str | None, show_ui: bool) -> SparkSession:
    """Start Spark. All settings are set before Java starts: those of its memory are read only then."""
    master = master or settings.master or DEFAULT_MASTER
    defaults = session_defaults(master) | ({"spark.ui.enabled": "true"} if show_ui else {})
    conf = SparkConf().setAll(list((defaults | dict(settings.conf)).items()))
    return SparkSession.builder.config(conf=conf.setMaster(master).setAppName(app_name)).getOrCreate()


def _submitted_session(settings: SparkSettings) -> SparkSession:
    """The session under spark-submit: Java is running, and the command's options are in its SparkConf."""
    SparkContext._ensure_initialized()
    conf = SparkConf()
    for name, value in (session_defaults(str(conf.get("spark.master"))) | dict(settings.conf)).items():
        conf.setIfMissing(name, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def session_defaults(master: str) -> dict[str, str]:
    """Our defaults. Spark's web page is off on one machine."""
    defaults = SQL_DEFAULTS | OWN_DEFAULTS
    if master.startswith("local"):
        defaults |= LOCAL_DEFAULTS | LOCAL_SQL_DEFAULTS
    return defaults


def set_shuffle_partitions(session: SparkSession, partitions_read: int) -> None:
    """Set the number of shuffle partitions unless the user did. A query with a checkpoint keeps the number that
    the checkpoint was created with."""
    context = session.sparkContext
    if not context.getConf().contains(SHUFFLE_PARTITIONS):
        session.conf.set(SHUFFLE_PARTITIONS, str(shuffle_partitions(context.defaultParallelism, partitions_read)))


def shuffle_partitions(cores: int, partitions_read: int) -> int:
    """At least one for each core and for each task that reads: while a cluster starts, few cores are there yet."""
    return min(MOST_PARTITIONS, max(FEWEST_PARTITIONS, cores, partitions_read))


def _beside(active: SparkSession, settings: SparkSettings) -> SparkSession:
    session = active.newSession()
    for name, value in (SQL_DEFAULTS | _sql_only(settings.conf)).items():
        session.conf.set(name, value)
    return session


def _sql_only(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings that can be changed while Spark runs."""
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.")}


@contextlib.contextmanager
def with_java_options(options: str) -> Iterator[None]:
    """Set options for the Java that is started inside the block, but not for its children. If options contradict
    each other, Java uses the last: the user's."""
    before = os.environ.get(JAVA_OPTIONS)
    os.environ[JAVA_OPTIONS] = f"{options} {before or ''}".strip()
    try:
        yield
    finally:
        os.environ.pop(JAVA_OPTIONS)
        if before is not None:
            os.environ[JAVA_OPTIONS] = before


@contextlib.contextmanager
def _no_java_left() -> Iterator[None]:
    """Ends Java if its start is interrupted: PySpark then removes the folder for Java's address, and a Java that
    cannot write there never exits.
    """
    try:
        yield
    except BaseException as error:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            java = frame.f_locals.get("proc")
            if frame.f_code.co_name == "launch_gateway" and isinstance(java, subprocess.Popen):
                java.kill()
                java.wait()
        raise


@contextlib.contextmanager
def _java_errors_to(log_file: Path | None) -> Iterator[None]:
    """Send Java's errors to the log file. Java inherits our standard error when it starts, so it is replaced for
    that moment. Output of Python in the meantime, such as a response to Ctrl-C, still goes to the original."""
    if log_file is None or SparkContext._gateway is not None:
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = sys.stderr
    with os.fdopen(os.dup(2), "w", buffering=1, errors="replace") as saved:
        try:
            with log_file.open("ab") as log:
                os.dup2(log.fileno(), 2)
            if ours is sys.__stderr__:  # not that of a test or a notebook, which is no file descriptor
                sys.stderr = saved
            yield
        finally:
            sys.stderr.flush()
            sys.stderr = ours
            os.dup2(saved.fileno(), 2)
