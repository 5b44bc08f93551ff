"""Who leads instead, in answers of Produce and Fetch (KIP-951): clients go there without asking for metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from headrace.model.varint import write_uvarint

_LEADER = struct.Struct(">BBBiiB")
_LEADER_SIZE = 9
"""One tagged field, its number, its size; leader, epoch, no tagged fields of its own."""
_INT32 = struct.Struct(">i")


class LeaderHint(NamedTuple):
    node_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


def leader_tag(number: int, hint: LeaderHint) -> bytes:
    """The tagged fields of a partition that another broker leads; `number` is that of the field."""
    return _LEADER.pack(1, number, _LEADER_SIZE, hint.node_id, hint.leader_epoch, 0)


def endpoints_tag(hints: Iterable[LeaderHint]) -> bytes:
    """The tagged fields of the whole response: where the brokers are that its partitions name."""
    nodes = {hint.node_id: hint for hint in hints}
    if not nodes:
        return b"\0"
    body = bytearray()
    write_uvarint(body, len(nodes) + 1)
    for hint in nodes.values():
        body += _INT32.pack(hint.node_id)
        _write_string(body, hint.host)
        body += _INT32.pack(hint.port)
        _write_string(body, hint.rack)
        body.append(0)
    out = bytearray(b"\1\0")
    write_uvarint(out, len(body))
    return bytes(out + body)


def _write_string(out: bytearray, text: str | None) -> None:
    data = (text or "").encode()
    write_uvarint(out, len(data) + 1 if text is not None else 0)
    out += data
