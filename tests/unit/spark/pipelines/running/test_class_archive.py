"""Which options Java gets for the archive of classes. That Java makes and uses it shows in bench/first_rows.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext

from headrace.spark.pipelines.running.class_archive import ClassArchive, cache_directory, class_archive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    return tmp_path / "java"


def archive(java: Path, folder: Path, make: bool = True, **environment: str) -> ClassArchive | None:
    return class_archive(java, {"HEADRACE_CACHE_DIR": str(folder / "cache"), **environment}, make=make)


def test_the_first_run_makes_what_later_ones_use(java: Path, tmp_path: Path) -> None:
    assert archive(java, tmp_path, make=False) is None
    first = archive(java, tmp_path)
    assert first is not None
    assert first.fresh is not None
    assert f"-XX:ArchiveClassesAtExit={first.fresh} " in first.options
    first.path.write_bytes(b"classes")
    for make in (True, False):
        later = archive(java, tmp_path, make=make)
        assert later is not None
        assert (later.fresh, later.path) == (None, first.path)
        assert f"-XX:SharedArchiveFile={first.path} " in later.options
        assert not later.keep()


def test_another_java_has_another(java: Path, tmp_path: Path) -> None:
    first = archive(java, tmp_path)
    (java / "release").write_text('JAVA_VERSION="21"\n')
    second = archive(java, tmp_path)
    (java / "release").unlink()
    third = archive(java, tmp_path)
    assert first is not None
    assert second is not None
    assert third is not None
    assert len({first.path, second.path, third.path}) == 3


def test_an_archive_of_the_user_is_left_alone(java: Path, tmp_path: Path) -> None:
    assert archive(java, tmp_path, SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=/mine.jsa") is None
    assert archive(java, tmp_path, SPARK_SUBMIT_OPTS="-Xmx1g") is not None


def test_where_nothing_can_be_kept_there_is_none(java: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert archive(java, tmp_path) is None


def test_what_java_did_not_write_is_not_kept(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)  # other tests of this process may have a session
    made = archive(java, tmp_path)
    assert made is not None
    assert made.fresh is not None
    made.fresh.write_bytes(b"half")
    assert not made.keep(), "no Java has ended"
    assert not made.fresh.exists()
    assert not made.path.exists()


def test_the_directory() -> None:
    assert cache_directory({"HEADRACE_CACHE_DIR": "/c"}) == Path("/c")
    assert cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/headrace")
    assert cache_directory({}) == Path.home() / ".cache" / "headrace"
