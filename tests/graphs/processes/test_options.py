"""Options of `weft.multiprocessing.get` that reach into the worker processes."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import weft
from weft.protocol.errors import ConfigError

pytestmark = pytest.mark.slow


def set_up():
    os.environ["SET_UP_FOR_TEST"] = os.environ.get("SET_UP_FOR_TEST", "") + "x"


def look():
    return os.environ.get("SET_UP_FOR_TEST")


def give_up():
    raise SystemExit(3)


DSK = {("x", i): (look,) for i in range(20)}


def test_an_initializer_is_called_once_in_each_worker_before_its_first_task():
    def get(**options):
        return set(weft.multiprocessing.get(DSK, list(DSK), num_workers=2, **options))

    assert get() == {None}
    assert get(initializer=set_up) == {"x"}
    assert get(initializer=set_up) == {"x"}
    assert get() == {None}
    dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
    with dask.config.set({"multiprocessing.initializer": lambda: os.environ.update(A="1")}):
        assert weft.multiprocessing.get({"a": (os.getenv, "A")}, "a", num_workers=1) == "1"


@pytest.mark.parametrize(
    ("initializer", "error"), [(lambda: 1 / 0, ZeroDivisionError), (give_up, weft.TaskErred)]
)
def test_an_initializer_that_fails_is_an_error_each_time(initializer, error):
    for _ in range(2):
        with pytest.raises(error) as info:
            weft.multiprocessing.get(DSK, list(DSK), num_workers=1, initializer=initializer)
        assert any("the initializer in worker process" in note for note in info.value.__notes__)


def holds(lock):
    with lock:
        return True


def test_tasks_can_use_what_a_manager_of_multiprocessing_has():
    with multiprocessing.Manager() as manager:
        dsk = {("x", i): (holds, manager.Lock()) for i in range(4)}
        assert all(weft.multiprocessing.get(dsk, list(dsk), num_workers=2))


def test_an_initializer_is_not_for_executors_that_are_given():
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConfigError, match="its own initializer"):
        weft.multiprocessing.get(DSK, list(DSK), executor=pool, initializer=set_up)
    with pytest.raises(ConfigError, match="initializer: it must be a function"):
        weft.multiprocessing.get(DSK, list(DSK), initializer=5)
    assert weft.threaded.get({"x": (abs, -1)}, "x", initializer=None) == 1
