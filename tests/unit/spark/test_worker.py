"""What is spared a Python worker between tasks; and that other processes are left alone."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark import worker
from headrace.spark.worker import REUSED_WORKER, settle_worker


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Two archives on the import path, one of which bears the name of Spark's."""
    places = {}
    for name in ("pyspark", "mine"):
        places[name] = str(tmp_path / f"{name}.zip")
        with zipfile.ZipFile(places[name], "w") as archive:
            archive.writestr(f"first_of_{name}.py", "")
            archive.writestr(f"second_of_{name}.py", "")
            archive.writestr(f"package_of_{name}/__init__.py", "")
            archive.writestr(f"package_of_{name}/inner.py", "")
        monkeypatch.syspath_prepend(places[name])
        importlib.import_module(f"first_of_{name}")
        importlib.import_module(f"package_of_{name}.inner")
    monkeypatch.setattr(worker, "_set_aside_modules", lambda: None)
    yield places
    for name in places:
        for module in [module for module in sys.modules if f"_of_{name}" in module]:
            del sys.modules[module]


def test_finder_of_sparks_archive_is_dropped_and_comes_back(
    archives: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REUSED_WORKER, "1")
    assert archives["pyspark"] in sys.path_importer_cache
    settle_worker()
    assert not [path for path in sys.path_importer_cache if path.startswith(archives["pyspark"])]
    assert archives["mine"] in sys.path_importer_cache, "a user's archive may change"
    importlib.import_module("second_of_pyspark")
    assert archives["pyspark"] in sys.path_importer_cache


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.3.0.jar"])
def test_finders_of_all_that_spark_puts_on_the_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jar has thousands of entries: reading them again took more of a short task than its records did."""
    monkeypatch.setenv(REUSED_WORKER, "1")
    monkeypatch.setattr(worker, "_set_aside_modules", lambda: None)
    place = str(tmp_path / name)
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("org/apache/Some.class", "")
    monkeypatch.syspath_prepend(place)
    with pytest.raises(ImportError):
        importlib.import_module("nowhere_to_be_found")
    assert place in sys.path_importer_cache
    settle_worker()
    assert place not in sys.path_importer_cache


def test_nothing_happens_outside_a_worker(archives: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REUSED_WORKER, raising=False)
    settle_worker()
    assert archives["pyspark"] in sys.path_importer_cache


def test_modules_are_set_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setenv(REUSED_WORKER, "1")
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    worker._set_aside_modules.cache_clear()
    settle_worker()
    settle_worker()
    worker._set_aside_modules.cache_clear()
    assert calls == ["freeze"]


TWO_BATCHES = """
import resource, sys
from headrace.spark.worker import settle_worker
settle_worker()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for number in range(7):
    if number == 2:
        before = faults()
    one, other = b"x" * (12 << 20), b"x" * (12 << 20)
    del one, other
print((faults() - before) * resource.getpagesize())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_memory_of_one_batch_serves_the_next() -> None:
    """Without the setting, ten times 12 MB came from the kernel."""
    environment = {**os.environ, REUSED_WORKER: "1"}
    command = [sys.executable, "-c", TWO_BATCHES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 << 20
