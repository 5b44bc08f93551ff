"""The watermark by which Spark judges the rows of a batch, as a column beside them.

Spark drops late rows inside its operators, and does not report which they were. The watermark it uses is known
before a batch runs: Spark writes the batch, with the watermark when it begins, to the offset log in the checkpoint
of the query (`offsets/<batch>`). A row of batch N is late if it is not after the watermark of batch N-1 (Spark's
`PropagateWatermarkSimulator`); before the first batch that is 0, the year 1970. When batch N is planned the log
already has N, so N-1 is read there. A batch that is repeated after a failure finds the same entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyspark.sql.types import StructType

from headrace.spark.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN, SPARK_TYPE = "batchWatermark", "timestamp"
FIELD = "batchWatermarkMs"


def without_watermark(schema: StructType) -> StructType:
    return StructType([field for field in schema.fields if field.name != COLUMN])


def late_watermark_ms(offset_log: str) -> int:
    """The watermark for late rows of the batch that is being planned: the last one in the log."""
    folder = Path(unquote(urlsplit(offset_log).path) if offset_log.startswith("file:") else offset_log)
    try:
        batches = sorted(int(one.name) for one in folder.iterdir() if one.name.isdecimal())
        if not batches:
            raise SourceError(f"the offset log {folder} has no batch yet, so late rows cannot be recognized.")
        before = folder / str(batches[-1] - 1)
        return _watermark_in(before.read_text(encoding="utf-8"), before) if before.exists() else 0
    except OSError as error:
        raise SourceError(f"the offset log {folder} cannot be read: {error.strerror}.") from None


def _watermark_in(text: str, file: Path) -> int:
    for line in text.splitlines():
        if FIELD in line:
            return int(json.loads(line)[FIELD])
    raise SourceError(f"the offset log has no watermark in {file}.")


def with_watermark(batches: Iterator[pa.RecordBatch], watermark_ms: int) -> Iterator[pa.RecordBatch]:
    """The batches with one more column, the last."""
    import numpy as np
    import pyarrow as pa

    from headrace.spark.arrow.columns import TIMESTAMP_ARROW_TYPE

    moment = np.datetime64(watermark_ms * 1000, "us")
    for batch in batches:
        column = pa.array(np.full(batch.num_rows, moment), TIMESTAMP_ARROW_TYPE)
        schema = pa.schema([*batch.schema, pa.field(COLUMN, TIMESTAMP_ARROW_TYPE)])
        yield pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema)
