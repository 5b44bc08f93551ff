"""Halves the time in which Java starts Spark: the classes that Spark loads are saved as they are in memory.

Spark reads about ten thousand classes from jars before the first row is processed. Java can keep them in a file
and map it the next time (class data sharing, JEP 350). The first run of a pipeline on a machine writes the file
when it ends, which takes some seconds. Later runs use it. The file is named after the Java and the Spark that it
fits, and Java ignores one that does not fit after all.

    <cache>/spark-classes-<hash>.jsa     <cache>: HEADRACE_CACHE_DIR, or headrace below XDG_CACHE_HOME, or ~/.cache

If the user gives Java an archive (SPARK_SUBMIT_OPTS), that one is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark import SparkContext

from headrace.spark.pipelines.running.session import JAVA_OPTIONS

CACHE_VARIABLE = "HEADRACE_CACHE_DIR"
SILENT = "-Xlog:disable"
"""Java reports every class that an archive cannot hold on its standard output."""
OWN_ARCHIVE = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
END_S = 120.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """`options` are for the Java that is started; `fresh` is what it will write when it ends."""

    path: Path
    options: str
    fresh: Path | None = None

    def keep(self) -> bool:
        """Ends Java, waits for the archive, and renames it. Returns whether there is one now."""
        if self.fresh is None:
            return False
        try:
            if _end_java():
                self.fresh.replace(self.path)
                return True
        except OSError:
            pass  # without an archive everything only starts more slowly
        self.fresh.unlink(missing_ok=True)
        return False


def cache_directory(environment: Mapping[str, str]) -> Path:
    given = environment.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def class_archive(java_home: Path, environment: Mapping[str, str], *, make: bool) -> ClassArchive | None:
    """None if the user has an archive, or if there is none and none can or may be created."""
    if any(word in environment.get(JAVA_OPTIONS, "") for word in OWN_ARCHIVE):
        return None
    directory = cache_directory(environment)
    path = directory / f"spark-classes-{_fits(java_home)}.jsa"
    if path.exists():
        return ClassArchive(path, f"-XX:SharedArchiveFile={path} {SILENT}")
    if not make:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(directory, os.W_OK) or " " in str(path):
        return None
    fresh = path.with_suffix(f".{os.getpid()}")
    return ClassArchive(path, f"-XX:ArchiveClassesAtExit={fresh} {SILENT}", fresh)


def _fits(java_home: Path) -> str:
    """Names the Java and the Spark that an archive is for."""
    facts = [str(java_home), pyspark.__version__, pyspark.__file__]
    with contextlib.suppress(OSError):  # not every Java reports its version
        facts.append((java_home / "release").read_text(errors="replace"))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _end_java() -> bool:
    """Java ends with its standard input. Returns whether it ended, and without an error."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return False
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    try:
        return bool(process.wait(END_S) == 0)
    except subprocess.TimeoutExpired:
        return False
