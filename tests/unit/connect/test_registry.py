"""Connectors are found by name; one whose package is missing says what to install, in a line of a terminal."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from headrace.connect.api import ConnectorError
from headrace.connect.registry import find_connector


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        raise ModuleNotFoundError(name="psycopg.pq" if "postgres" in name else name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConnectorError) as missing:
        find_connector("postgres-source")
    assert str(missing.value) == "needs psycopg: pip install 'headrace[postgres]'"
    with pytest.raises(ConnectorError, match="there is no module lines: is it installed"):
        find_connector("lines:Lines")


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text("from pathlib import Path\nimport nothing_like_it\n")
    with pytest.raises(ConnectorError, match=r"lines\.py:2: ModuleNotFoundError: No module named"):
        find_connector("lines.py:Lines", tmp_path)
