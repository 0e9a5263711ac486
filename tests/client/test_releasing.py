"""A released future keeps nothing of its result in this process."""

from __future__ import annotations

import gc
import weakref

import pytest

import weft


class Large:
    """A value that records when it is freed."""


def test_release_frees_the_copy_of_the_client_at_once(wait_until):
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        future = client.submit(Large)
        seen = weakref.ref(future.result())
        future.release()
        wait_until(lambda: gc.collect() + 1 and seen() is None, 30)
        assert future.key
        assert future.status == "finished"


@pytest.mark.parametrize("argument", ["3", "x"], ids=["finished", "failed"])
@pytest.mark.parametrize("name", ["result", "exception", "traceback"])
def test_a_released_future_answers_for_no_outcome(name, argument):
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        future = client.submit(int, argument)
        weft.wait([future], timeout=60)
        future.release()
        with pytest.raises(ValueError, match="was released; submit its call again"):
            getattr(future, name)()


def test_a_map_that_is_broken_off_leaves_no_tasks_although_its_traceback_is_kept(wait_until):
    def rows():
        yield from range(5_000)
        raise KeyboardInterrupt

    with weft.Client(processes=False, n_workers=0, set_as_default=False) as client:
        with pytest.raises(KeyboardInterrupt) as kept:
            client.map(abs, rows(), batch_size=100)
        wait_until(lambda: not any(client.scheduler_info()["tasks"].values()), 30)
        assert kept.traceback


class Held:
    """Something in a local variable of the program."""


def by_result(client, future):
    future.result()


def by_gather(client, future):
    client.gather([future])


def by_as_completed(client, future):
    for _ in weft.as_completed([future], with_results=True):
        raise AssertionError("it has failed")


def by_exception(client, future):
    raise future.exception()


@pytest.mark.parametrize("read", [by_result, by_gather, by_as_completed, by_exception])
def test_the_error_of_a_task_keeps_no_variables_of_the_program_alive(read):
    def use(client, future):
        held = Held()
        with pytest.raises(ValueError, match="invalid literal"):
            read(client, future)
        return weakref.ref(held)

    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        future = client.submit(int, "x")
        weft.wait([future], timeout=60)
        use(client, future)  # imports, and caches of tracebacks
        gc.collect()
        gc.disable()
        try:
            assert use(client, future)() is None
        finally:
            gc.enable()
