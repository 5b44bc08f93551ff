"""Whose state is found in a checkpoint directory, and what is refused. Spark's part of it is made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.pipelines.compiling.checkpoint_folders import (
    CheckpointFolder,
    CheckpointPlace,
    CheckpointRefused,
)
from headrace.spark.pipelines.compiling.checkpoints import Fingerprint

LETTERS = "raw.dead-letter"


class LocalFiles:
    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def is_file(self, path: str) -> bool:
        return Path(path).is_file()

    def read(self, path: str) -> str:
        return Path(path).read_text()

    def write(self, path: str, text: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def folder(root: Path, name: str, sharers: dict[str, frozenset[str]] | None = None) -> CheckpointFolder:
    place = CheckpointPlace(f"{root}/{name}", str(root), sharers or {})
    return CheckpointFolder(LocalFiles(), place, name)


def made_for(name: str | None, reads: str = "orders") -> Fingerprint:
    return Fingerprint((("raw", (reads,)),), (), name)


def begin(location: str | Path) -> None:
    (Path(location) / "offsets").mkdir(parents=True)


def run(checkpoints: CheckpointFolder, name: str, query: str = "out") -> str:
    location = checkpoints.locate(query, made_for(name))
    checkpoints.record(location, made_for(name))
    begin(location) if not Path(location).exists() else None
    return location


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """As an earlier version left it: `<checkpoint>/<sink>`, without a name."""
    for query in ("out", LETTERS):
        begin(tmp_path / query)
    (tmp_path / "out.json").write_text('{"sources": [{"name": "raw", "reads": ["orders"]}], "stateful": []}')
    return tmp_path


def test_pipelines_with_one_checkpoint_keep_their_own_state(tmp_path: Path) -> None:
    assert run(folder(tmp_path, "a"), "a") == f"{tmp_path}/a/out"
    assert run(folder(tmp_path, "b"), "b") == f"{tmp_path}/b/out"
    assert run(folder(tmp_path, "a"), "a") == f"{tmp_path}/a/out"


def test_the_old_place_is_used_by_the_one_it_fits_and_by_nobody_else(old: Path) -> None:
    a, b = folder(old, "a"), folder(old, "b")
    assert run(a, "a") == f"{old}/out"
    assert a.locate(LETTERS, made_for("a"), [f"{old}/out"]) == f"{old}/{LETTERS}"
    assert run(b, "b") == f"{old}/b/out"
    assert b.locate(LETTERS, made_for("b"), [f"{old}/b/out"]) == f"{old}/b/{LETTERS}"
    assert (run(a, "a"), run(b, "b")) == (f"{old}/out", f"{old}/b/out")


def test_the_old_place_of_other_sources_is_refused(old: Path) -> None:
    with pytest.raises(CheckpointRefused, match=r"source raw read orders, and now reads payments") as refused:
        folder(old, "b").locate("out", made_for("b", "payments"))
    assert "run that one first" in refused.value.advice
    run(folder(old, "a"), "a")
    assert folder(old, "b").locate("out", made_for("b", "payments")) == f"{old}/b/out"


def test_the_old_place_that_two_used_is_nobodys_until_someone_decides(old: Path) -> None:
    sharers = {"b": frozenset({"out", LETTERS}), "c": frozenset({"other"})}
    with pytest.raises(CheckpointRefused, match=r"pipelines b and a shared the checkpoint .*/out ") as refused:
        folder(old, "a", sharers).locate("out", made_for("a"))
    assert f"into {old}/<pipeline>" in refused.value.advice
    (old / "a").mkdir()
    for name in ("out", "out.json"):
        (old / name).rename(old / "a" / name)
    assert run(folder(old, "a", sharers), "a") == f"{old}/a/out"
    assert run(folder(old, "b", {"a": frozenset({"out"})}), "b") == f"{old}/b/out"


def test_state_of_which_nothing_is_noted_is_not_ours(old: Path) -> None:
    (old / "out.json").unlink()
    with pytest.raises(CheckpointRefused, match="was not made by a pipeline"):
        folder(old, "a").locate("out", made_for("a"))


def test_two_that_take_over_at_once(old: Path) -> None:
    a, b = folder(old, "a"), folder(old, "b")
    place = a.locate("out", made_for("a"))
    assert b.locate("out", made_for("b")) == place
    a.record(place, made_for("a"))
    with pytest.raises(CheckpointRefused, match="pipeline a took over"):
        b.record(place, made_for("b"))


@pytest.mark.parametrize("where", [".", "a"])
def test_a_checkpoint_of_one_query_is_no_place_for_pipelines(tmp_path: Path, where: str) -> None:
    folder(tmp_path, "a").check()
    begin(tmp_path / where)
    (tmp_path / where / "metadata").write_text('{"id":"x"}')
    with pytest.raises(CheckpointRefused, match="single Spark query"):
        folder(tmp_path, "a").check()


def test_a_folder_that_was_never_shared_stays_as_it_is(tmp_path: Path) -> None:
    begin(tmp_path / "checkpoint" / "out")
    own = CheckpointFolder(LocalFiles(), CheckpointPlace(f"{tmp_path}/checkpoint"), "a")
    assert own.locate("out", made_for("a")) == f"{tmp_path}/checkpoint/out"
    own.record(f"{tmp_path}/checkpoint/out", made_for("a"))
    assert own.recorded(f"{tmp_path}/checkpoint/out") == made_for("a")
