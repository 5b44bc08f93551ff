"""What Java accepts of lz4: frames whose blocks stand alone."""

from __future__ import annotations

import pytest

from headrace.records.compression import Codec, compress, decompress

_FLAGS = 4
_BLOCKS_STAND_ALONE = 0x20


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_blocks_stand_alone(kind: type) -> None:
    """R-LOG-3: Kafka and Java clients refuse frames with linked blocks ("dependent block stream")."""
    data = b"abcdefgh" * 100_000
    packed = compress(Codec.LZ4, kind(data))
    assert packed[_FLAGS] & _BLOCKS_STAND_ALONE
    assert bytes(decompress(Codec.LZ4, packed)) == data
