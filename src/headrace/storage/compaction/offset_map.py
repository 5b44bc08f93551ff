"""The last offset of each key, in bounded memory.

A key is known by 16 bytes of its BLAKE2 hash: two keys will not share them by chance, nor by intent. One block of
memory holds all entries, 24 bytes each (hash, offset), in buckets that are searched in C; what does not fit into
its bucket goes to the next. A full map is no failure: the log is cleaned up to where the map got, and the next
cleaning continues from there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b

ENTRY_BYTES = 24
BUCKET_ENTRIES = 32
LOAD_FACTOR = 0.85
"""The maximum share of entries in use: beyond it ever more keys are far from their bucket."""
_HASH_BYTES = 16
_BUCKET_BYTES = ENTRY_BYTES * BUCKET_ENTRIES
_OFFSET = struct.Struct("=q")
_BUCKET_NUMBER = struct.Struct("=I")


class OffsetMap:
    __slots__ = ("_capacity", "_count", "_entries", "_used", "latest_offset")

    def __init__(self, memory_bytes: int, most_keys: int, latest_offset: int) -> None:
        """A map that takes `memory_bytes`, or less if `most_keys` need less."""
        needed = int(most_keys / LOAD_FACTOR) // BUCKET_ENTRIES + 2
        buckets = max(min(memory_bytes // (_BUCKET_BYTES + 1), needed), 1)
        self._entries = bytearray(buckets * _BUCKET_BYTES)
        self._used = bytearray(buckets)
        self._capacity = max(int(buckets * BUCKET_ENTRIES * LOAD_FACTOR), 1)
        self._count = 0
        self.latest_offset = latest_offset
        """The last offset whose record is in the map; records after it are not judged."""

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """The number of further keys that fit."""
        return self._capacity - self._count

    @property
    def utilization(self) -> float:
        return self._count / self._capacity

    def put_all(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Remember (key, offset) pairs with growing offsets, and no more of them than there is room for."""
        entries, used = self._entries, self._used
        find, buckets = entries.find, len(used)
        pack, pack_into, number = _OFFSET.pack, _OFFSET.pack_into, _BUCKET_NUMBER.unpack_from
        added = 0
        for key, offset in records:
            digest = blake2b(key, digest_size=_HASH_BYTES).digest()
            bucket = number(digest)[0] % buckets
            while True:
                start = bucket * _BUCKET_BYTES
                end = start + used[bucket] * ENTRY_BYTES
                position = find(digest, start, end)
                if position >= 0 and (position - start) % ENTRY_BYTES:
                    position = self._aligned(digest, start, end)
                if position >= 0:
                    pack_into(entries, position + _HASH_BYTES, offset)
                    break
                if used[bucket] < BUCKET_ENTRIES:
                    entries[end : end + ENTRY_BYTES] = digest + pack(offset)
                    used[bucket] += 1
                    added += 1
                    break
                bucket = (bucket + 1) % buckets
        self._count += added
        assert self._count <= self._capacity

    def get(self, key: bytes) -> int:
        """The last offset of a key, -1 if there is none."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        used = self._used
        bucket = _BUCKET_NUMBER.unpack_from(digest)[0] % len(used)
        while True:
            start = bucket * _BUCKET_BYTES
            end = start + used[bucket] * ENTRY_BYTES
            position = self._entries.find(digest, start, end)
            if position >= 0 and (position - start) % ENTRY_BYTES:
                position = self._aligned(digest, start, end)
            if position >= 0:
                return int(_OFFSET.unpack_from(self._entries, position + _HASH_BYTES)[0])
            if used[bucket] < BUCKET_ENTRIES:
                return -1
            bucket = (bucket + 1) % len(used)

    def _aligned(self, digest: bytes, start: int, end: int) -> int:
        """The position of the entry, for when the bytes of the hash also occur across two other entries."""
        position = self._entries.find(digest, start, end)
        while position >= 0 and (position - start) % ENTRY_BYTES:
            position = self._entries.find(digest, position + 1, end)
        return position
