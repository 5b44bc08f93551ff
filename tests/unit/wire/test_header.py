"""Request and response headers, against kafka-python's and in their refusals."""

from __future__ import annotations

import importlib
import struct
from typing import Any

import pytest

from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_CLIENT_ID_BYTES, MAX_TAGGED_FIELDS
from headrace.model.varint import write_uvarint
from headrace.wire.api_keys import FLEXIBLE_SINCE, ApiKey
from headrace.wire.header import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header,
    response_header,
)


def their_request(key: ApiKey, version: int, client_id: str | None) -> bytes:
    header = importlib.import_module("kafka.protocol.api_header").RequestHeader
    theirs: Any = header(
        request_api_key=int(key), request_api_version=version, correlation_id=77, client_id=client_id
    )
    raw: bytes = theirs.encode(flexible=version >= FLEXIBLE_SINCE[key])
    return raw


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "é漢"])
@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.METADATA, 8), (ApiKey.METADATA, 9), (ApiKey.SASL_HANDSHAKE, 1)]
)
def test_a_request_header_is_read_and_written_as_kafka_python_does(
    key: ApiKey, version: int, client_id: str | None
) -> None:
    raw = their_request(key, version, client_id)
    assert request_header(key, version, 77, client_id) == raw
    assert parse_request_header(raw + b"body") == RequestHeader(key, version, 77, client_id, len(raw))
    assert parse_request_header(memoryview(raw + b"body")).client_id == client_id


@pytest.mark.parametrize("version", [8, 9])
def test_a_request_header_cut_at_any_byte_is_refused(version: int) -> None:
    raw = request_header(ApiKey.METADATA, version, 1, "client")
    for end in range(len(raw)):
        with pytest.raises(ProtocolError):
            parse_request_header(raw[:end])


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    raw = request_header(ApiKey.METADATA, 9, 1, "c")[:-1] + b"\x01\x05\x03abc"
    assert parse_request_header(raw + b"body").body == len(raw)
    for end in range(len(raw)):
        with pytest.raises(ProtocolError):
            parse_request_header(raw[:end])


def test_too_many_tagged_fields_are_refused() -> None:
    raw = bytearray(request_header(ApiKey.METADATA, 9, 1, "c")[:-1])
    write_uvarint(raw, MAX_TAGGED_FIELDS + 1)
    with pytest.raises(ProtocolError, match="tagged fields"):
        parse_request_header(raw + bytes(4 * MAX_TAGGED_FIELDS))


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, -1, 1, -1),
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff",
        struct.pack(">hhih", 3, 1, 1, MAX_CLIENT_ID_BYTES + 1) + bytes(MAX_CLIENT_ID_BYTES + 1),
    ],
    ids=["unknown api", "negative api", "negative version", "length -2", "not utf-8", "long client id"],
)
def test_bad_request_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(raw)


def test_response_headers_have_tags_in_flexible_versions_only() -> None:
    assert response_header(ApiKey.METADATA, 8, 5) == b"\0\0\0\5"
    assert response_header(ApiKey.METADATA, 9, 5) == b"\0\0\0\5\0"
    assert parse_response_header(b"\0\0\0\5\0x", ApiKey.METADATA, 9) == (5, 5)
    with pytest.raises(ProtocolError):
        parse_response_header(b"\0\0\0", ApiKey.METADATA, 9)


def test_api_versions_answers_without_tags_in_its_header() -> None:
    assert response_header(ApiKey.API_VERSIONS, 3, 5) == b"\0\0\0\5"
    assert parse_response_header(b"\0\0\0\5", ApiKey.API_VERSIONS, 3) == (5, 4)
