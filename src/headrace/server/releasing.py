"""Large messages are freed in slices too: a hundred thousand small objects take some 50 ms when all go at once.

Nothing is taken out of a message, whose parts may be kept elsewhere: its elements are held in one list beside it,
the message is dropped, and then one element after the other.

    elements = await elements_of(message, slices)
    del message
    await release(elements, slices)
"""

from __future__ import annotations

from typing import Any

from headrace.handlers.context import Slices
from headrace.wire.schema import Message
from headrace.wire.stepwise import arrays_in

RELEASED_AT_ONCE = 256


async def elements_of(message: Message, slices: Slices) -> list[Any]:
    """The elements of all its arrays; what holds others comes after them, and is released first."""
    elements: list[Any] = []
    for values in arrays_in(message):
        elements += values
        if slices.due():
            await slices.give_way()
    elements.reverse()
    return elements


async def release(elements: list[Any], slices: Slices) -> None:
    while elements:
        del elements[-RELEASED_AT_ONCE:]
        if slices.due():
            await slices.give_way()
