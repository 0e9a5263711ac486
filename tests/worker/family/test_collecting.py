"""collecting.py: full collections of a worker's process."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from weft.worker.family import collecting
from weft.worker.family.collecting import FULL_EVERY, LOOKS, REST_CPU_S, Rest


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def thresholds():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_full_collections_become_rare_and_young_ones_stay(thresholds):
    young, middle, _ = gc.get_threshold()
    collecting.hold_back()
    assert gc.get_threshold()[:2] == (young, middle)
    # Python 3.14 has no third threshold.
    assert gc.get_threshold()[2] in (FULL_EVERY, 0)


def test_a_process_rests_when_it_used_no_cpu_at_some_looks():
    rest = Rest()
    assert not rest.look(5.0)
    assert [rest.look(5.0) for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]
    assert rest.look(5.0 + REST_CPU_S / 2)
    assert not rest.look(6.0)
    assert not rest.look(6.0)


async def test_a_cycle_that_has_grown_old_is_collected_at_rest(monkeypatch):
    monkeypatch.setattr(collecting, "LOOK_S", 0.001)
    monkeypatch.setattr(collecting, "REST_CPU_S", float("inf"))
    monkeypatch.setattr(collecting, "REST_EVERY", -1)
    node = Node()
    old = weakref.ref(node)
    gc.collect()  # it is of the oldest generation now
    del node
    task = asyncio.create_task(collecting.collect_at_rest())

    async def until_it_is_gone() -> None:
        while old() is not None:  # noqa: ASYNC110 - a weak reference notifies no event
            await asyncio.sleep(0)

    await asyncio.wait_for(until_it_is_gone(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
