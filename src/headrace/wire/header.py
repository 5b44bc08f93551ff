"""Request and response headers.

Request v1: api_key int16, api_version int16, correlation_id int32, client_id nullable string. v2, used by flexible
versions, adds tagged fields; the client id keeps its plain encoding. Response v0: correlation_id; v1 adds tagged
fields. ApiVersions answers with v0 always, since its client may not know yet what the broker speaks (KIP-511).

No tagged field of a header has a meaning yet: they are checked and skipped.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.model.buffers import Buffer
from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_CLIENT_ID_BYTES, MAX_TAGGED_FIELDS
from headrace.model.varint import read_uvarint
from headrace.wire.api_keys import FLEXIBLE_SINCE, ApiKey

_FIXED = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Where the message begins."""


def parse_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request of an API we know; anything else is a `ProtocolError`."""
    try:
        api_key, api_version, correlation_id, client_id_size = _FIXED.unpack_from(frame, 0)
    except struct.error:
        raise ProtocolError("a request header is cut off") from None
    flexible_since = FLEXIBLE_SINCE.get(api_key)
    if flexible_since is None:
        raise ProtocolError(f"there is no API {api_key}")
    if api_version < 0:
        raise ProtocolError(f"version {api_version} of API {api_key}")
    position = _FIXED.size
    client_id = None
    if client_id_size >= 0:
        client_id = _client_id(frame, position, client_id_size)
        position += client_id_size
    elif client_id_size != -1:
        raise ProtocolError(f"a client id of {client_id_size} bytes")
    if api_version >= flexible_since:
        position = _skip_tagged_fields(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def _client_id(frame: Buffer, position: int, size: int) -> str:
    if size > MAX_CLIENT_ID_BYTES:
        raise ProtocolError(f"a client id of {size} bytes")
    raw = bytes(frame[position : position + size])
    if len(raw) != size:
        raise ProtocolError("a client id is cut off")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a client id is not UTF-8") from None


def _skip_tagged_fields(frame: Buffer, position: int) -> int:
    if frame[position : position + 1] == b"\0":  # none, the usual case
        return position + 1
    count, position = read_uvarint(frame, position)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields in a header")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolError("a tagged field of a header is cut off")
    return position


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    raw = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(raw)
    flexible = api_version >= FLEXIBLE_SINCE[api_key]
    return _FIXED.pack(api_key, api_version, correlation_id, size) + raw + (b"\0" if flexible else b"")


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    packed = _CORRELATION_ID.pack(correlation_id)
    return packed + b"\0" if _has_response_tags(api_key, api_version) else packed


def parse_response_header(frame: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id of a response and where its message begins."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 0)
    except struct.error:
        raise ProtocolError("a response header is cut off") from None
    position = _CORRELATION_ID.size
    if _has_response_tags(api_key, api_version):
        position = _skip_tagged_fields(frame, position)
    return correlation_id, position


def _has_response_tags(api_key: int, api_version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and api_version >= FLEXIBLE_SINCE[api_key]
