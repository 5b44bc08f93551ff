"""Which partition of `__consumer_offsets` a group belongs to: Kafka's rule, so that every client and tool
agrees."""

from __future__ import annotations

from functools import lru_cache

REMEMBERED_GROUPS = 16_384
LONGEST_REMEMBERED = 255
"""Characters: thousands of longer names would fill the memory, and nobody who means well has them."""
_INT_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 code units, in 32 bits with a sign."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of(group_id: str, partition_count: int) -> int:
    if len(group_id) > LONGEST_REMEMBERED:
        return _computed(group_id, partition_count)
    return _remembered(group_id, partition_count)


def _computed(group_id: str, partition_count: int) -> int:
    value = java_hash(group_id)
    return (0 if value == _INT_MIN else abs(value)) % partition_count


_remembered = lru_cache(REMEMBERED_GROUPS)(_computed)
