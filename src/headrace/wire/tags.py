"""Tagged fields that the hot codecs do not read are stepped over."""

from __future__ import annotations

from headrace.model.errors import ProtocolError
from headrace.model.varint import read_uvarint


def skip_tags(frame: memoryview, position: int) -> int:
    """The position after the tagged fields that begin at `position`."""
    count = frame[position]
    if count == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolError("a tagged field is cut off")
    return position
