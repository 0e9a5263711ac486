"""The errors of `gather`, and `cancel`, blocking and awaited."""

from __future__ import annotations

import asyncio
import traceback

import pytest

import weft.client
from weft.client import Client, wait

SHAPES = [lambda f: [f], lambda f: {"a": (f, 1)}]
(FOLDER,) = weft.client.__path__


def fail(text):
    raise ValueError(text)


class Unreadable:
    """An object whose pickle can be written, but not read."""

    def __reduce__(self):
        return fail, ("unreadable",)


def own_frames(error):
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if frame.filename.startswith(FOLDER)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("call", [(fail, "boom"), (Unreadable,)], ids=["failed", "unreadable"])
def test_a_failure_that_is_gathered_has_one_frame_of_weft(client, shape, call):
    with pytest.raises(ValueError) as info:
        client.gather(shape(client.submit(*call)))
    assert own_frames(info.value) == ["gather"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_failure_that_is_gathered_asynchronously_has_one_frame_of_weft(scheduler, shape):
    async with Client(scheduler, asynchronous=True) as client:
        with pytest.raises(ValueError, match="boom") as info:
            await client.gather(shape(client.submit(fail, "boom")))
        assert own_frames(info.value) == ["awaited"]


def test_a_future_of_another_client_is_named_with_that_client(client, scheduler):
    other = Client(scheduler, name="other", set_as_default=False)
    future = other.submit(abs, -1)
    with pytest.raises(ValueError, match=r"another client, other \(open\): gather it with that"):
        client.gather([future])
    with pytest.raises(ValueError, match=f"different clients, {client.name} and other: wait for"):
        wait([client.submit(abs, -2), future])
    assert future.result(20) == 1
    other.close()
    with pytest.raises(ValueError, match=r"other \(closed\).* or use its result\(\)"):
        client.gather([future])
    assert future.result() == 1


def test_a_future_is_cancelled_blocking_or_awaited(client, scheduler):
    scheduler.is_holding = True
    one, other = client.map(abs, range(2))
    assert one.cancel(asynchronous=False) is None
    assert one.cancelled()
    asyncio.run(other.cancel(asynchronous=True))
    assert other.cancelled()
