"""Connectors are found by name; one whose package is missing says what to install, in a line of a terminal."""

from __future__ import annotations

import importlib

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
