"""The same partition as the Java client for the same key (R-TOP-2)."""

from __future__ import annotations

import pytest
from kafka.partitioner.default import murmur2 as reference

from headrace.client.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize("length", range(40))
def test_as_another_client_does_it(length: int) -> None:
    key = bytes((number * 37 + length) % 256 for number in range(length))
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


def test_known_values() -> None:
    """From Kafka's own test of its murmur2."""
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert partition_for_key(b"foobar", 1) == 0
    assert {partition_for_key(b"%d" % number, 5) for number in range(100)} == {0, 1, 2, 3, 4}
