"""A request on its way to a socket, without a copy of the large values in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from headrace.model.varint import Buffer

APART_FROM_BYTES = 32 * 1024
"""A copy of less is cheaper than a piece of its own."""


class Frame(bytearray):
    """Grows as messages are encoded into it; a large value is only noted, with the place where it belongs.

    A value must stay as it is until the frame was sent.
    """

    def __init__(self, start: Buffer = b"") -> None:
        super().__init__(start)
        self._apart: list[tuple[int, memoryview]] = []

    def __iadd__(self, value: Any, /) -> Self:  # type: ignore[misc]  # `+` makes a plain copy, and is not used
        view = memoryview(value)
        if view.nbytes < APART_FROM_BYTES:
            self.extend(view)
        else:
            self._apart.append((len(self), view))
        return self

    @property
    def size(self) -> int:
        """With all that is apart."""
        return len(self) + sum(view.nbytes for _, view in self._apart)

    def pieces(self) -> Iterator[memoryview]:
        """What is to be sent, in order. Whoever holds one keeps the frame from growing."""
        whole, position = memoryview(self), 0
        for place, view in self._apart:
            yield whole[position:place]
            yield view
            position = place
        if position < len(whole):
            yield whole[position:]
