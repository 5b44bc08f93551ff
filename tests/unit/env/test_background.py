"""Background work that ends unexpectedly ends the broker, with the reason (D16)."""

from __future__ import annotations

import asyncio

import pytest

from headrace.env.background import Background


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def background(reasons: list[str]) -> Background:
    background = Background()
    background.on_failure = reasons.append
    return background


async def broken() -> None:
    raise ZeroDivisionError("a fault")


async def short() -> int:
    return 7


async def endless() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_failure_is_told_with_the_name_of_the_work(background: Background, reasons: list[str]) -> None:
    background.run("Maintenance", broken())
    await asyncio.sleep(0.01)
    assert reasons == ["Maintenance failed: ZeroDivisionError: a fault"]


async def test_work_that_should_last_may_not_end(background: Background, reasons: list[str]) -> None:
    async def ended() -> None:
        return

    background.run("Maintenance", ended())
    await asyncio.sleep(0.01)
    assert reasons == ["Maintenance ended"]


async def test_work_that_ends_by_itself_gives_its_result(background: Background, reasons: list[str]) -> None:
    assert await background.start("A count", short()) == 7
    await background.close()
    assert reasons == []


async def test_its_failure_is_told_and_raised(background: Background, reasons: list[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        await background.start("A count", broken())
    assert reasons == ["A count failed: ZeroDivisionError: a fault"]


async def test_closing_cancels_without_a_failure(background: Background, reasons: list[str]) -> None:
    background.run("Maintenance", endless())
    task = background.start("A count", endless())
    await background.close()
    assert task.cancelled()
    assert reasons == []
