"""A start that fails removes the directories that it made, and nothing that anybody needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.broker.fresh_directories import FreshDirectories


def test_what_was_made_is_removed_with_its_parents(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    fresh = FreshDirectories()
    for name in ("old", "new/deep/data", "new/other", "old/data"):
        fresh.make(str(tmp_path / name))
    (tmp_path / "new/deep/data/cluster.db").write_bytes(b"x")
    (tmp_path / "new/deep/data/orders-0").mkdir()
    (tmp_path / f"new/deep/data/orders-0/{0:020}.log").write_bytes(b"")
    fresh.remove()
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


@pytest.mark.parametrize("name", [f"orders-0/{0:020}.log", "broker-1/headrace.pid"])
def test_records_and_running_brokers_stay(tmp_path: Path, name: str) -> None:
    fresh = FreshDirectories()
    fresh.make(str(tmp_path / "data"))
    file = tmp_path / "data" / name
    file.parent.mkdir()
    file.write_bytes(b"x")
    fresh.remove()
    assert file.exists()


def test_a_directory_that_others_use_stays(tmp_path: Path) -> None:
    fresh = FreshDirectories()
    fresh.make(str(tmp_path / "shared/mine"))
    (tmp_path / "shared/theirs").mkdir()
    fresh.remove()
    assert list((tmp_path / "shared").iterdir()) == [tmp_path / "shared/theirs"]
