"""The codecs of record batches, with explicit levels and bounded decompression.

A batch names its codec in the low three bits of its attributes: 0 none, 1 gzip, 2 snappy, 3 lz4 (frame), 4 zstd.
Snappy comes in two shapes: raw, and the framing of the xerial library that Java clients write:

    magic 82 53 4e 41 50 50 59 00 · version int32 · compatible version int32 · blocks of (length int32, raw snappy)

A few kilobytes can stand for gigabytes of zeros, so nothing here produces more than the given limit.
The codec library is imported on first use: a broker that only passes batches through never needs it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum

from headrace.model.buffers import Buffer
from headrace.model.errors import ErrorCode, KafkaError

MAX_DECOMPRESSED_BYTES = 512 * 1024 * 1024
"""The maximum size of a decompressed batch, unless the caller has a smaller limit."""

GZIP_DEFAULT_LEVEL = -1
LZ4_DEFAULT_LEVEL = 9
ZSTD_DEFAULT_LEVEL = 3

_GZIP_WINDOW_BITS = 31
_LZ4_FAST_LEVEL = 1
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The values of `compression.type` that name a codec; `producer` names none."""

LAST_CODEC = int(Codec.ZSTD)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed; `level` in the codec's own terms, None for Kafka's default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        packer = zlib.compressobj(GZIP_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    import cramjam

    if codec == Codec.LZ4:
        # Kafka's "9" means its fast compressor; the library's default would be five times slower.
        lz4_level = _LZ4_FAST_LEVEL if level in (None, LZ4_DEFAULT_LEVEL) else level
        # Blocks that stand alone: Java clients and Kafka refuse a frame whose blocks build on each other.
        packed = cramjam.lz4.Compressor(lz4_level, content_checksum=True, block_linked=False)
        packed.compress(bytes(data))
        return bytes(packed.finish())
    assert codec == Codec.ZSTD
    return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """`data` unfolded to at most `limit` bytes; more is RECORD_LIST_TOO_LARGE, nonsense CORRUPT_MESSAGE."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return _decompress_gzip(data, limit)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    import cramjam

    if codec == Codec.LZ4:
        return _decompress_growing(cramjam.lz4.decompress_into, data, limit)
    if codec == Codec.ZSTD:
        return _decompress_growing(cramjam.zstd.decompress_into, data, limit)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression codec {codec} is not known")


def _too_large(limit: int) -> KafkaError:
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"A record batch decompresses to more than {limit} bytes")


def _corrupt(problem: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A record batch does not decompress: {problem}")


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    try:
        while rest:  # a stream may hold several members, one after the other
            unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
            part = unpacker.decompress(rest, limit - size + 1)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if not unpacker.eof:
                raise _corrupt("the gzip stream is cut off")
            parts.append(part)
            rest = unpacker.unused_data
    except zlib.error as error:
        raise _corrupt(error) from error
    return b"".join(parts)


def _decompress_growing(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int) -> Buffer:
    """For codecs that do not tell the size before: try with growing buffers, never beyond the limit."""
    import cramjam

    if not len(data):
        raise _corrupt("there are no bytes")
    capacity = min(limit, max(_FIRST_GUESS_BYTES, _GROWTH * len(data)))
    while True:
        output = bytearray(capacity)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise _corrupt(error) from error
            if capacity >= limit:
                raise _too_large(limit) from error
        capacity = min(limit, capacity * _GROWTH)


def _compress_snappy(data: Buffer) -> bytes:
    """In xerial framing, the only shape every client reads."""
    import cramjam

    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    parts: list[Buffer] = []
    size, position, end = 0, _XERIAL_HEADER.size, len(view)
    while position < end:
        if position + _INT32.size > end:
            raise _corrupt("a snappy block is cut off")
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if length < 0 or position + length > end:
            raise _corrupt("a snappy block is longer than the batch")
        part = _decompress_snappy_block(view[position : position + length], limit - size)
        parts.append(part)
        size += len(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytearray:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_large(limit)
        output = bytearray(size)
        if cramjam.snappy.decompress_raw_into(block, output) != size:
            raise _corrupt("a snappy block is shorter than it states")
    except cramjam.DecompressionError as error:
        raise _corrupt(error) from error
    return output
