"""Databases that cannot be opened say why."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import pytest

from headrace.connect.api import ConnectorError
from headrace.connect.tables.database import check_address, open_database


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


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://someone:sec%ret@127.0.0.1/shop",
        "postgresql://someone:a@sec ret@127.0.0.1/shop",
        "mysql://someone:sec%ret/x@127.0.0.1/shop",
        "mysql://someone:sec[ret@127.0.0.1/shop",
    ],
)
def test_an_address_that_cannot_be_understood_is_not_repeated(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the drivers say of it has the part that they do not understand, which may be the password."""
    if address.startswith("mysql"):
        monkeypatch.setitem(sys.modules, "pymysql", mock.Mock())
    with pytest.raises(ConnectorError, match="% as %25") as told:
        open_database(address)
    assert "sec" not in str(told.value)


@pytest.mark.parametrize("address", ["host=db password=secret", "host=db password=secret:x", "someone:secret@db"])
def test_what_is_no_address_is_not_repeated(address: str) -> None:
    with pytest.raises(ConnectorError, match="it is not an address; write postgresql://") as told:
        check_address(address)
    assert "secret" not in str(told.value)
    with pytest.raises(ConnectorError, match="connection: oracle is not supported"):
        check_address("oracle://someone:secret@db")
