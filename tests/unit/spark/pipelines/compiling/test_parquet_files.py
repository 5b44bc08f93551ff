"""Files of batches get their names exactly once, wherever a run ends. Spark's part is made by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.pipelines.compiling.parquet_files import FilesAhead, ParquetFolder

WRITER = "0123abcd-out"


class Killed(Exception):
    """The process ends here."""


class LocalFiles:
    """Ends after so many changes."""

    def __init__(self, changes: int = 1000) -> None:
        self.changes = changes

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def read(self, path: str) -> str:
        return Path(path).read_text()

    def write(self, path: str, text: str) -> None:
        self._changing()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)

    def rename(self, path: str, to: str) -> None:
        self._changing()
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        assert not Path(to).exists()
        Path(path).rename(to)

    def remove(self, path: str) -> None:
        self._changing()
        shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink(missing_ok=True)

    def files_below(self, path: str) -> list[str]:
        found = [one.relative_to(path) for one in Path(path).rglob("*") if one.is_file()]
        return [str(one) for one in found if not any(part.startswith(("_", ".")) for part in one.parts)]

    def names_in(self, path: str) -> list[str]:
        return [one.name for one in Path(path).iterdir()] if Path(path).is_dir() else []

    def _changing(self) -> None:
        if self.changes == 0:
            raise Killed
        self.changes -= 1


class ObjectStoreFiles(LocalFiles):
    """Cannot rename: it copies and deletes, and may end in between. An object that exists is not replaced."""

    def rename(self, path: str, to: str) -> None:
        self._changing()
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        assert not Path(to).exists()
        shutil.copy(path, to)
        self.remove(path)


def spark_writes(folder: ParquetFolder, batch_id: int, attempt: int) -> None:
    """The rows of a batch, differently spread over files each time, as after a shuffle."""
    for row in range(3):
        staged = (
            Path(folder.staged(batch_id)) / f"day={row % 2}" / f"part-{(row + attempt) % 3}-{attempt}.zstd.parquet"
        )
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(f"{batch_id}:{row}")
    (Path(folder.staged(batch_id)) / "_SUCCESS").touch()


def write(folder: ParquetFolder, batch_id: int, attempt: int) -> None:
    if not folder.is_done(batch_id):
        spark_writes(folder, batch_id, attempt)
        folder.decide(batch_id)


def rows(root: Path) -> list[str]:
    return sorted(path.read_text() for path in root.rglob("*.parquet"))


def all_rows(batches: int) -> list[str]:
    return sorted(f"{batch}:{row}" for batch in range(batches) for row in range(3))


def attempts(root: Path, changes: int, store: type[LocalFiles]) -> Iterator[None]:
    """Three batches; the second one ends after so many changes, and is repeated."""
    write(ParquetFolder(store(), str(root), WRITER), 0, 0)
    with pytest.raises(Killed):
        write(ParquetFolder(store(changes), str(root), WRITER), 1, 1)
    yield
    for batch_id in (1, 2):
        write(ParquetFolder(store(), str(root), WRITER), batch_id, 2)


def changes_of_a_batch(root: Path, store: type[LocalFiles]) -> int:
    files = store()
    write(ParquetFolder(files, str(root), WRITER), 0, 0)
    return 1000 - files.changes


@pytest.mark.parametrize("store", [LocalFiles, ObjectStoreFiles])
def test_a_batch_that_ends_anywhere_is_there_once_after_it_was_repeated(
    tmp_path: Path, store: type[LocalFiles]
) -> None:
    most = changes_of_a_batch(tmp_path / "counted" / "out", store)
    assert most > 5
    for changes in range(most):
        root = tmp_path / str(changes) / "out"
        for _ in attempts(root, changes, store):
            seen = rows(root)
            assert set(all_rows(1)) <= set(seen) <= set(all_rows(2))
            assert len(seen) == len(set(seen)), "never a row twice, not even before it is repeated"
        assert rows(root) == all_rows(3), f"after {changes} changes"
        assert {path.name for path in root.parent.iterdir()} == {"out", ".out.staging"}


def test_names_keep_folders_and_extensions(tmp_path: Path) -> None:
    write(ParquetFolder(LocalFiles(), str(tmp_path / "out"), WRITER), 7, 0)
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet"))
    assert found[0] == "day=0/batch-00000007-0000-0123abcd-out.zstd.parquet"


def test_an_older_checkpoint_is_refused_and_a_new_one_is_another_writer(tmp_path: Path) -> None:
    folder = ParquetFolder(LocalFiles(), str(tmp_path / "out"), WRITER)
    for batch_id in range(3):
        write(folder, batch_id, 0)
    with pytest.raises(FilesAhead, match="batch 2, and the checkpoint repeats batch 1"):
        write(folder, 1, 0)
    write(ParquetFolder(LocalFiles(), str(tmp_path / "out"), "new-out"), 0, 0)
    assert len(rows(tmp_path / "out")) == 12


def test_what_spark_listed_stays_and_what_it_did_not_goes(tmp_path: Path) -> None:
    """As a version left it that used Spark's own stream of files, killed in batch 2."""
    root = tmp_path / "out"
    (root / "_spark_metadata").mkdir(parents=True)
    names = {"a": "0:0", "b": "0:1", "c": "0:2", "orphan": "1:0"}
    for name, text in names.items():
        (root / f"{name}.parquet").write_text(text)
    entries = {name: json.dumps({"path": f"file://{root}/{name}.parquet", "action": "add"}) for name in names}
    (root / "_spark_metadata" / "0.compact").write_text(f"v1\n{entries['a']}\n{entries['b']}")
    (root / "_spark_metadata" / "1").write_text(f"v1\n{entries['c']}")
    folder = ParquetFolder(LocalFiles(), str(root), WRITER)
    assert folder.is_done(1), "it is in the list"
    assert rows(root) == ["0:0", "0:1", "0:2"]
    assert not (root / "_spark_metadata").exists()
    assert [path.name for path in (tmp_path / ".out.staging" / "orphans").iterdir()] == ["orphan.parquet.orphan"]


def test_staging_of_a_folder_without_a_parent(tmp_path: Path) -> None:
    assert ParquetFolder(LocalFiles(), "s3a://bucket", WRITER).staging == "s3a://bucket/_staging"
    assert ParquetFolder(LocalFiles(), "s3a://bucket/a/out/", WRITER).staging == "s3a://bucket/a/.out.staging"
