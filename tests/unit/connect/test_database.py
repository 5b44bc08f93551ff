"""Databases that cannot be opened say why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.connect.api import ConnectorError
from headrace.connect.tables.database import open_database


@pytest.mark.parametrize(("kind", "package"), [("postgresql", "postgres"), ("mysql", "mysql")])
def test_a_driver_that_is_not_installed(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headrace.connect.tables.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "headrace.connect.postgres.catalog", None)
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(ConnectorError, match=rf"pip install 'headrace\[{package}\]'"):
        open_database(f"{kind}://someone@localhost/shop")


def test_a_sqlite_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="unable to open database file") as refused:
        open_database(f"sqlite:{tmp_path}/missing/people.db")
    assert f"{tmp_path}/missing/people.db" in str(refused.value)
