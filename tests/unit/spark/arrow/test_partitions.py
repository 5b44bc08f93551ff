"""The partition of a key is the one that every other client would choose (R-TOP-2, R-SPK-3)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.partitioner import partition_for_key
from headrace.spark.arrow import kernels
from headrace.spark.arrow.engine import Engine
from headrace.spark.arrow.partitions import assign_partitions, rows_by_partition
from tests.unit.spark.arrow.cases import both_engines


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=20), st.integers(1, 1000), st.integers(0, 9))
@both_engines
def test_same_as_the_client(loops: Engine, keys: list[bytes | None], count: int, skipped: int) -> None:
    array = pa.array(keys, pa.binary()).slice(min(skipped, len(keys)))
    expected = [count if key is None else partition_for_key(key, count) for key in keys[skipped:]]
    assert assign_partitions(array, count, count, loops=loops).tolist() == expected


def test_known_keys() -> None:
    """Hashes that Java's producer gives, from its own tests of murmur2."""
    keys = pa.array([b"21", b"foobar", b"a-little-bit-long-string", b"abc", None])
    hashes = [-973932308, -790332482, -985981536, 479470107]
    expected = [(number & 0x7FFFFFFF) % 17 for number in hashes] + [3]
    assert assign_partitions(keys, 17, 3, loops=kernels).tolist() == expected


def test_keys_that_are_text_or_null() -> None:
    assert assign_partitions(pa.array(["21", "é"]), 50, 0).tolist() == [
        partition_for_key(key.encode(), 50) for key in ("21", "é")
    ]
    assert assign_partitions(pa.nulls(3), 50, 9).tolist() == [9, 9, 9]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30))
def test_rows_stay_in_order_within_a_partition(places: list[int]) -> None:
    found = {place: rows.tolist() for place, rows in rows_by_partition(np.array(places, np.int32))}
    expected = {place: [row for row, at in enumerate(places) if at == place] for place in set(places)}
    assert found == expected
