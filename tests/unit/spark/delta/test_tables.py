"""Delta tables without Spark: files of tasks become visible with one commit, once (R-SPK-4)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.spark.delta.files import TableFiles
from headrace.spark.delta.reading import FileReading, FileTask, added, snapshot
from headrace.spark.delta.table import TableOptions, open_table, parse_options
from headrace.spark.delta.writing import FilesWritten, TableWriting
from headrace.spark.errors import SourceError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def rows(*numbers: int) -> pa.RecordBatch:
    found: list[dict[str, Any]] = [
        {"id": n, "name": None if n % 5 == 0 else f"n {n % 3}/ä", "at": n * 1_000_000, "tags": ["x"] * (n % 3)}
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(found, SCHEMA)


def writing(folder: Path, *, overwrite: bool = False, **given: Any) -> TableWriting:
    return TableWriting(TableOptions(str(folder), **{"app_id": "app", **given}), SCHEMA, overwrite)


def ids(folder: Path) -> list[int]:
    found = pa.table(DeltaTable(str(folder)).to_pyarrow_table())
    return sorted(found.column("id").to_pylist())


def read_back(options: TableOptions, files: list[FileTask]) -> list[dict[str, Any]]:
    reading = FileReading(options, SCHEMA)
    found = [row for file in files for batch in reading.read(file) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: int(row["id"]))


def test_a_batch_counts_once(tmp_path: Path) -> None:
    table = writing(tmp_path / "t")
    done = [table.write(iter([rows(1, 2), rows(3)])), table.write(iter([])), table.write(iter([rows(4)]))]
    table.commit(done, 0)
    assert ids(tmp_path / "t") == [1, 2, 3, 4]
    again = [table.write(iter([rows(1, 2, 3, 4)]))]
    table.commit(again, 0)
    assert ids(tmp_path / "t") == [1, 2, 3, 4], "the same number again is not written"
    assert not (tmp_path / "t" / again[0].files[0].path).exists()
    table.commit([table.write(iter([rows(5)]))], 1)
    assert ids(tmp_path / "t") == [1, 2, 3, 4, 5]
    assert DeltaTable(str(tmp_path / "t")).transaction_version("app") == 1


def test_files_of_the_dead_are_not_seen(tmp_path: Path) -> None:
    table = writing(tmp_path / "t")
    table.commit([table.write(iter([rows(1)]))], 0)
    table.write(iter([rows(2)]))  # killed before its driver committed
    table.abort([table.write(iter([rows(3)])), None])
    assert ids(tmp_path / "t") == [1]
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 2


def test_a_commit_that_raised_but_arrived_keeps_its_files(tmp_path: Path) -> None:
    """As when an object store stores the commit, and its answer is lost: Spark then aborts."""
    table = writing(tmp_path / "t")
    written = [table.write(iter([rows(1)])), table.write(iter([rows(2)]))]
    table.commit(written, 0)
    table.abort(written)
    assert ids(tmp_path / "t") == [1, 2]


def test_a_query_that_starts_over_is_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint was removed, so its batches are counted from 0 again."""
    table = writing(tmp_path / "t", app_id="")
    for query, number in (("first", 1), ("first", 1), ("second", 2)):
        monkeypatch.setattr("headrace.spark.delta.writing.streaming_batch", lambda query=query: (query, 0))
        table.commit([table.write(iter([rows(number)])), table.write(iter([]))], 0)
    assert ids(tmp_path / "t") == [1, 2]


def test_of_two_drivers_with_the_same_batch_one_wins(tmp_path: Path) -> None:
    table = writing(tmp_path / "t")
    table.commit([table.write(iter([rows(1)]))], 0)
    stale = DeltaTable(str(tmp_path / "t"))
    written = table.write(iter([rows(2)]))
    table.commit([table.write(iter([rows(2)]))], 1)

    class Stalled(TableWriting):
        def _table(self) -> DeltaTable:
            return stale

    with pytest.raises(Exception, match="ransaction"):
        Stalled(table.options, SCHEMA).commit([written], 1)
    assert ids(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize("columns", [(), ("name",), ("name", "id")])
def test_every_row_comes_back(tmp_path: Path, columns: tuple[str, ...]) -> None:
    table = writing(tmp_path / "t", partition_by=columns)
    for version in range(3):
        table.commit([table.write(iter([rows(*range(10 * version, 10 * version + 10))]))], version)
    wanted = rows(*range(30)).to_pylist()
    options = TableOptions(str(tmp_path / "t"))
    assert read_back(options, snapshot(options, None)) == wanted
    found = pa.table(DeltaTable(str(tmp_path / "t")).to_pyarrow_table()).select(SCHEMA.names).to_pylist()
    assert sorted(found, key=lambda row: int(row["id"])) == wanted
    newest = open_table(options).version()
    assert read_back(options, snapshot(options, newest - 1)) == wanted[:20]
    assert read_back(options, added(options, newest)) == wanted[20:]


UTC_TIMES = [datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC), datetime(2026, 1, 31, 12, tzinfo=UTC), None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "UTC"), UTC_TIMES),
        (pa.timestamp("us"), [one and one.replace(tzinfo=None) for one in UTC_TIMES]),
        (pa.float64(), [float("nan"), 0.0, -0.0, 1.5, float("inf"), float("-inf"), None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [date(2026, 1, 31), None]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None]),
    ],
    ids=["utc", "local", "double", "boolean", "date", "decimal"],
)
def test_partitions_of_every_type(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    """Ours and those of another writer, as a whole and commit by commit: each row once, with its value."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("p", kind)])
    batch = pa.RecordBatch.from_pydict({"id": list(range(len(values))), "p": pa.array(values, kind)}, schema)
    ours = TableWriting(TableOptions(str(tmp_path / "ours"), ("p",), app_id="app"), schema)
    ours.commit([ours.write(iter([batch]))], 0)
    write_deltalake(str(tmp_path / "theirs"), pa.Table.from_batches([batch]), partition_by=["p"])
    for name in ("ours", "theirs"):
        options = TableOptions(str(tmp_path / name))
        versions = range(open_table(options).version() + 1)
        for files in (snapshot(options, None), [one for version in versions for one in added(options, version)]):
            found = [
                row
                for file in files
                for rows in FileReading(options, schema).read(file)
                for row in rows.to_pylist()
            ]
            assert sorted(map(str, found)) == sorted(map(str, batch.to_pylist())), name
        table = pa.table(DeltaTable(str(tmp_path / name)).to_pyarrow_table()).select(["id", "p"])
        assert sorted(map(str, table.to_pylist())) == sorted(map(str, batch.to_pylist())), name


def test_no_partitions_by_bytes(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("p", pa.binary())])
    table = TableWriting(TableOptions(str(tmp_path / "t"), ("p",), app_id="app"), schema)
    with pytest.raises(SourceError, match="which is binary"):
        table.write(iter([pa.RecordBatch.from_pydict({"p": [b"x"]}, schema)]))


def test_tables_of_others_are_read(tmp_path: Path) -> None:
    """With folders named after values, and what is special in them escaped."""
    table = pa.Table.from_batches([rows(*range(10))])
    write_deltalake(str(tmp_path / "t"), table, partition_by=["name"])
    write_deltalake(str(tmp_path / "t"), table, mode="append")
    options = TableOptions(str(tmp_path / "t"))
    assert read_back(options, snapshot(options, 0)) == table.to_pylist()
    assert read_back(options, added(options, 1)) == table.to_pylist()


def test_the_rows_of_complete_mode_replace_those_before(tmp_path: Path) -> None:
    table = writing(tmp_path / "t", overwrite=True)
    table.commit([table.write(iter([rows(1, 2)]))], 0)
    table.commit([table.write(iter([rows(7)]))], 1)
    assert ids(tmp_path / "t") == [7]
    options = TableOptions(str(tmp_path / "t"))
    with pytest.raises(SourceError, match="removes or changes rows"):
        added(options, open_table(options).version())


def test_other_columns_are_refused(tmp_path: Path) -> None:
    table = writing(tmp_path / "t")
    table.commit([table.write(iter([rows(1)]))], 0)
    other = TableWriting(table.options, pa.schema([pa.field("id", pa.string())]))
    with pytest.raises(SourceError, match="the column at is not there in the rows"):
        other.commit([FilesWritten(())], 1)
    with pytest.raises(SourceError, match="there is no such column"):
        writing(tmp_path / "u", partition_by=("none",)).commit([FilesWritten(())], 0)


def test_options() -> None:
    made = parse_options({"path": "file:///t", "partitionby": "a, b", "storage.aws_region": "x"})
    assert (made.path, made.partition_by, made.storage) == ("/t", ("a", "b"), {"AWS_REGION": "x"})
    for wrong in ({}, {"path": "t", "txnversion": "1"}, {"path": "t", "startingversion": "x"}):
        with pytest.raises(SourceError):
            parse_options(wrong)
    with pytest.raises(SourceError, match="no Delta table"):
        open_table(TableOptions("/nowhere/at/all"))


def test_temporary_keys_of_an_object_store_come_with_their_token() -> None:
    """Without it the store refuses the data files, after it has accepted the table's log."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "the token"}
    given = {f"storage.{name}": value for name, value in {**keys, "AWS_REGION": "eu-west-1"}.items()}
    files = TableFiles.open(parse_options({"path": "s3a://lake/table", **given}))
    assert "'session_token': 'the token'" in repr(files._system.__reduce__())
