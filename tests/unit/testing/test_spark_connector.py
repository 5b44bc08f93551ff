"""The environment with Spark's own connector: what it is held to, and that it is made only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import spark_connector
from headrace.testing.apache_kafka import OracleUnavailable
from headrace.testing.spark_connector import OWN_VERSIONS, connector_dir, fetch_connector, without


def test_spark_itself_is_not_held_to_the_projects_version() -> None:
    lines = ["numba==0.68.1", "py4j==0.10.9.9", "pyspark==4.3.0", "PyYAML==6.0.3"]
    assert without(lines, OWN_VERSIONS) == ["numba==0.68.1", "PyYAML==6.0.3"]


def test_made_once_and_never_half(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was interrupted is repeated from the beginning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls: list[str] = []

    def copy_jars(directory: Path) -> None:
        calls.append("jars")
        directory.mkdir()
        (directory / "a.jar").touch()

    def make_environment(directory: Path, project: Path) -> None:
        calls.append("environment")
        if len(calls) == 2:
            raise OracleUnavailable("no network")

    monkeypatch.setattr(spark_connector, "_run", lambda command: calls.append(command[-1]))
    monkeypatch.setattr(spark_connector, "_copy_jars", copy_jars)
    monkeypatch.setattr(spark_connector, "_make_environment", make_environment)
    with pytest.raises(OracleUnavailable):
        fetch_connector(tmp_path)
    found = fetch_connector(tmp_path)
    assert fetch_connector(tmp_path) == found
    assert calls == ["jars", "environment"] * 2
    assert found.jars == (connector_dir() / "jars" / "a.jar",)
    assert found.python == connector_dir() / "venv" / "bin" / "python"
    for _ in range(2):
        assert fetch_connector(tmp_path / "another") == found
    assert calls[4:] == [str(tmp_path / "another")]  # it is the project of whoever asks that runs in it


def test_maven_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OracleUnavailable, match="`mvn` was not found"):
        fetch_connector(tmp_path)
