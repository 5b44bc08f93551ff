"""Coroutines driven by hand: the first step at once, the rest as a task's, each measured."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

from headrace.metrics.requests import RequestMeter

T = TypeVar("T")


@types.coroutine
def rest_of(
    work: Coroutine[Any, Any, T], waits_for: object, meter: RequestMeter, now: Callable[[], float]
) -> Generator[Any, Any, T]:
    """The rest of a coroutine whose first step was done elsewhere and gave `waits_for`.

    The time of its steps counts as busy, and not as waiting.
    """
    while True:
        step: Callable[[], object]
        try:
            value = yield waits_for
        except BaseException as error:  # whatever is thrown into the task is the coroutine's to deal with
            step = partial(work.throw, error)
        else:
            step = partial(work.send, value)
        began = now()
        try:
            waits_for = step()
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            spent = now() - began
            meter.busy_seconds += spent
            meter.wait_seconds -= spent
