"""Locks and limits that tasks hold at their end, or where they are interrupted: none stays held."""

from __future__ import annotations

import os
import sys
import warnings
from functools import partial

import pytest

import weft
from weft import Lock, MultiLock, Semaphore
from weft.protocol.host.blocking import gate_here

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def keeps(held, *, fails):
    held.acquire(timeout=10)
    if fails:
        raise KeyError(held.name)


async def keeps_async(held, *, fails):
    await held.acquire(timeout=10)
    if fails:
        raise KeyError(held.name)


def releases(name):
    lock = Lock(name)
    lock.acquire()
    lock.release()
    with lock:
        pass


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("keep", [keeps, keeps_async])
@pytest.mark.parametrize(
    "make",
    [Lock, partial(Semaphore, 1), partial(weft.limit, at_once=1), lambda name: MultiLock([name])],
    ids=["lock", "semaphore", "limit", "multilock"],
)
def test_locks_that_a_task_still_holds_at_its_end_are_released_with_a_warning(
    client, make, keep, fails
):
    held = make(f"left, {fails}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = client.submit(keep, held, fails=fails, key="keeps").exception(60)
        assert isinstance(error, KeyError) is fails
        assert held.acquire(timeout=10)
        held.release()
        client.submit(releases, "released by a task").result(timeout=60)
        client.close()
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert str(warning.message).startswith(f"task 'keeps' has ended and still held {held._KIND}")


class Cut(BaseException):
    """Stands for an interrupt between two steps."""


def cut_at(step, make):
    """Acquire and release, and be cut off at a step of weft's code; return whether it came."""
    folder = os.path.dirname(os.path.abspath(weft.client.coordination.__file__))
    n = 0

    def trace(frame, event, _):
        nonlocal n
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "line":
            n += 1
            if n == step:
                sys.settrace(None)
                raise Cut
        return trace

    held = make("cut off")
    before = sys.gettrace()
    try:
        sys.settrace(trace)
        held.acquire(timeout=5)
        held.release()
    except Cut:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("make", [Lock, partial(weft.limit, at_once=1)], ids=["lock", "limit"])
def test_a_task_that_is_interrupted_between_any_two_steps_leaves_nothing_held(client, make):
    """Each step of `acquire` and `release` is cut off once; it is free after each."""
    held, step = make("cut off"), 1
    while client.submit(cut_at, step, make, pure=False).result(timeout=60):
        assert held.acquire(timeout=10), f"step {step}"
        held.release()
        step += 1
    assert step > 50, "the test does not see the steps"


gates = []


def notes_its_gate():
    seat = weft.get_worker().seat
    gate = gate_here()
    seat.when_task_ends(lambda: gates.append(gate.is_open))
    gates.append(gate.is_open)


def noted():
    return list(gates)


def test_locks_that_a_task_has_left_are_released_without_interrupts(client):
    """Else one at the end of a task would leave what is due there undone."""
    client.submit(notes_its_gate, pure=False).result(timeout=60)
    assert client.submit(noted, pure=False).result(timeout=60) == [True, False]


def acquires_often(name):
    for _ in range(50):
        with weft.limit(name, 1):
            pass
        assert Lock(name).acquire(timeout=0) is False
    return len(weft.get_worker().seat._at_end), len(weft.client.coordination.locks._of_tasks)


def test_a_long_task_keeps_nothing_of_what_it_has_released(client):
    with Lock("often"):
        assert client.submit(acquires_often, "often").result(timeout=60) == (1, 0)
