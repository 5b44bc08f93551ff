"""Every codec there and back, levels, foreign framings, and bombs that must not go off."""

from __future__ import annotations

import gzip
import random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.compression import Codec, compress, decompress

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ALLOWED = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.RECORD_LIST_TOO_LARGE}


def attempt(codec: Codec, data: bytes, limit: int) -> bytes | ErrorCode:
    try:
        return bytes(decompress(codec, data, limit))
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 100, 40_000, 300_000])
def test_there_and_back(codec: Codec, size: int) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    packed = compress(codec, memoryview(data))
    assert bytes(decompress(codec, memoryview(packed), limit=max(size, 1))) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 1), (Codec.LZ4, 12), (Codec.ZSTD, -5)]
)
def test_levels(codec: Codec, level: int) -> None:
    data = b"the same words again and again " * 1000
    assert bytes(decompress(codec, compress(codec, data, level))) == data


def test_shapes_that_other_clients_write() -> None:
    data = b"abc" * 1000
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data
    assert bytes(decompress(Codec.GZIP, gzip.compress(data) + gzip.compress(data))) == data * 2
    assert compress(Codec.SNAPPY, data).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(8 * 1024 * 1024))
    with pytest.raises(KafkaError) as error:
        decompress(codec, bomb, limit=1024 * 1024)
    assert error.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert len(decompress(codec, bomb, limit=8 * 1024 * 1024)) == 8 * 1024 * 1024


@pytest.mark.parametrize("codec", PACKED)
def test_cut_off_at_every_byte(codec: Codec) -> None:
    data = bytes(range(256)) * 4
    packed = compress(codec, data)
    for size in range(1, len(packed)):
        result = attempt(codec, packed[:size], 4096)
        assert result in ALLOWED or result != data or size >= len(packed) - 8


@given(st.sampled_from(PACKED), st.binary(max_size=200))
def test_noise_raises_only_our_errors(codec: Codec, noise: bytes) -> None:
    result = attempt(codec, noise, 100_000)
    assert isinstance(result, bytes) or result in ALLOWED


def test_an_unknown_codec() -> None:
    with pytest.raises(KafkaError) as error:
        decompress(5, b"x")
    assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
