"""examples/connectors against a real PostgreSQL: a copy of a table and a search index that follow it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from examples.connectors.search_index import search
from headrace.client.cluster import Cluster
from headrace.connect.definition import load_file
from headrace.testing.connectors import killed_everywhere, run_to_the_end
from tests.connectors.conftest import Database

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "connectors"


async def test_a_copy_and_a_search_index_follow_a_table(
    cluster: Cluster, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DB", database.conninfo)
    monkeypatch.setenv("SHOP_COPY", f"sqlite:{tmp_path / 'shop.db'}")
    monkeypatch.setenv("SHOP_SEARCH", str(tmp_path / "search.json"))
    products, copy, index = (load_file(EXAMPLE / f"{name}.yaml") for name in ("products", "copy", "search"))
    database.run("CREATE TABLE products (id int PRIMARY KEY, name text, category text, price numeric)")
    database.run("INSERT INTO products VALUES (1, 'Green tea', 'drinks', 4.5), (2, 'Tea cup', 'kitchen', 9)")
    await run_to_the_end(cluster, products)
    for sink in (copy, index):
        await run_to_the_end(cluster, sink)
    assert search(tmp_path / "search.json", "tea") == ["Green tea", "Tea cup"]

    async def feed(number: int) -> None:
        database.run(
            f"UPDATE products SET name = 'Black tea {number}' WHERE id = 1; DELETE FROM products WHERE id = 2"
        )
        database.run(f"INSERT INTO products VALUES ({number + 10}, 'Bread', 'food', {number})")
        await run_to_the_end(cluster, products)

    await killed_everywhere(cluster, index, feed, times=(1,))
    await run_to_the_end(cluster, copy)
    expected = sorted(str(name) for (name,) in database.rows("SELECT name FROM products"))
    assert search(tmp_path / "search.json", "tea") == [name for name in expected if "tea" in name]
    assert len(search(tmp_path / "search.json", "bread")) == len([name for name in expected if name == "Bread"])
    with sqlite3.connect(tmp_path / "shop.db") as copied:
        assert sorted(name for (name,) in copied.execute("SELECT name FROM products_copy")) == expected
