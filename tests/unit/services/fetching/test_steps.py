"""However many large fetches there are, a turn of the loop holds one step of one of them."""

from __future__ import annotations

import asyncio

from headrace.env.real import RealClock
from headrace.services.fetching.steps import StepQueue


async def test_one_step_in_a_turn_and_everybody_has_turns() -> None:
    queue = StepQueue(RealClock())
    done: list[str] = []

    def work(name: str, steps: int) -> None:
        left = [steps]

        def step() -> bool:
            done.append(name)
            left[0] -= 1
            return left[0] > 0

        queue.add(step)

    for name in ("a", "b", "c"):
        work(name, 2)
    turns = 0
    while len(done) < 6:
        before = len(done)
        await asyncio.sleep(0)
        turns += 1
        assert len(done) - before <= 1
        assert turns < 50
    assert done == ["a", "b", "c", "a", "b", "c"]
    work("d", 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done[-1] == "d"


async def test_one_that_fails_does_not_stop_the_others() -> None:
    queue = StepQueue(RealClock())
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["exception"]))
    done: list[int] = []

    def broken() -> bool:
        raise ZeroDivisionError

    def fine() -> bool:
        done.append(1)
        return False

    queue.add(broken)
    queue.add(fine)
    for _ in range(4):
        await asyncio.sleep(0)
    assert done == [1]
    assert len(faults) == 1
