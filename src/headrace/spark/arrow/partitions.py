"""Which rows go to which partition: by key with murmur2, the same as every other Kafka client's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.spark.arrow.engine import Engine, engine
from headrace.spark.arrow.fields import field_table
from headrace.spark.arrow.layout import Numbers


def assign_partitions(
    keys: pa.Array, partition_count: int, unkeyed: int, *, loops: Engine | None = None
) -> NDArray[np.int32]:
    """The partition of each key; `unkeyed` for rows without one, which the caller picks now and then."""
    assert partition_count > 0
    fields = field_table(keys)
    out = np.empty(len(keys), np.int32)
    (loops or engine()).place_keys(fields.data, fields.at, fields.lengths, partition_count, unkeyed, out)
    return out


def rows_by_partition(partitions: NDArray[np.int32]) -> Iterator[tuple[int, Numbers]]:
    """Each partition that has rows, with those rows in their order."""
    order = np.argsort(partitions, kind="stable").astype(np.int64)
    grouped = partitions[order]
    cuts = np.flatnonzero(np.diff(grouped)) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield int(partitions[rows[0]]), rows
