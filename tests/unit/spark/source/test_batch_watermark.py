"""The watermark by which a batch is judged, out of the offset log of a query."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType, TimestampType

from headrace.spark.errors import SourceError
from headrace.spark.source.batch_watermark import late_watermark_ms, with_watermark, without_watermark


def log(folder: Path, *watermarks_ms: int, first: int = 0) -> str:
    for number, watermark_ms in enumerate(watermarks_ms, first):
        facts = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 5, "conf": {}})
        (folder / str(number)).write_text(f'v1\n{facts}\n{{"orders": {{"0": 7}}}}')
    (folder / ".3.crc").write_bytes(b"\0")
    return str(folder)


@pytest.mark.parametrize(
    ("watermarks", "expected"), [((0,), 0), ((0, 100), 0), ((0, 100, 100), 100), ((0, 1, 2, 3), 2)]
)
def test_the_batch_before_the_last_says_it(tmp_path: Path, watermarks: tuple[int, ...], expected: int) -> None:
    assert late_watermark_ms(log(tmp_path, *watermarks)) == expected


def test_batches_that_spark_has_deleted_do_not_matter(tmp_path: Path) -> None:
    place = log(tmp_path, 900, 1000, first=9)
    assert late_watermark_ms(f"file://{place}") == 900


def test_a_log_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no batch"):
        late_watermark_ms(str(tmp_path))
    with pytest.raises(SourceError, match="cannot be read"):
        late_watermark_ms(str(tmp_path / "nowhere"))
    (tmp_path / "0").write_text("v9")
    (tmp_path / "1").write_text("v9")
    with pytest.raises(SourceError, match="no watermark"):
        late_watermark_ms(str(tmp_path))


def test_the_column_is_the_last_one() -> None:
    schema = StructType().add("value", BinaryType()).add("batchWatermark", TimestampType())
    assert without_watermark(schema).fieldNames() == ["value"]
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    (made,) = with_watermark(iter([batch]), 1_500)
    assert made.schema.names == ["value", "batchWatermark"]
    assert made.column(1).to_pylist() == [datetime.fromtimestamp(1.5, UTC)] * 2
