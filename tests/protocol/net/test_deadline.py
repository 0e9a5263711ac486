"""A time limit that neither loses a cancellation nor leaves anything behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from weft.protocol.errors import CommError
from weft.protocol.net.deadline import unless, within


def _fails(future: asyncio.Future[int]) -> None:
    future.set_exception(CommError("no process listens there"))


def _succeeds(future: asyncio.Future[int]) -> None:
    future.set_result(1)


async def test_the_result_is_that_of_the_awaited_call() -> None:
    async def done() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await within(30, done()) == "done"


async def test_the_error_is_that_of_the_awaited_call() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    _fails(future)
    with pytest.raises(CommError, match="no process listens"):
        await within(30, future)


async def test_a_call_that_takes_too_long_has_ended_when_the_limit_is_reported() -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(TimeoutError, match=r"0\.001 s"):
        await within(0.001, endless())
    assert ended


async def test_a_cancellation_first_ends_the_awaited_call() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(within(30, future))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled()


@pytest.mark.parametrize("ends", [_fails, _succeeds])
async def test_a_cancellation_counts_though_all_is_over_in_the_same_turn(
    ends: Callable[[asyncio.Future[int]], None],
) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(within(30, future))
    await asyncio.sleep(0)
    ends(future)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_abandoned_call_is_cancelled_or_may_end_by_itself():
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    ended = []

    async def turns(n: int) -> int:
        for _ in range(n):
            await asyncio.sleep(0)
        ended.append(n)
        return n

    assert await unless(over, turns(2)) == 2
    over.set_result(None)
    assert await unless(over, turns(3)) is None
    assert await unless(over, turns(4), grace_s=20.0) is None
    assert ended == [2, 4]
    assert await unless(over, loop.create_future(), grace_s=0.001) is None
