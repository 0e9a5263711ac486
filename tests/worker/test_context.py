"""The object that `get_worker` returns: attributes of plugins and tasks, and weft's own."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from weft.worker.context import WorkerContext


@pytest.fixture
def worker() -> WorkerContext:
    return WorkerContext("w", "tcp://w", "id")


def test_attributes_are_those_of_all_threads_of_a_worker_and_of_no_other(worker):
    thread = copy.copy(worker)
    thread.conn = "c"
    worker.cache = {}
    again = copy.copy(thread)
    assert (worker.conn, again.conn) == ("c", "c")
    assert again.cache is worker.cache
    del again.conn
    other = WorkerContext("other", "tcp://other", "id2")
    for one in (worker, thread, other):
        assert not hasattr(one, "conn")
        assert getattr(one, "conn", None) is None
    assert not hasattr(other, "cache")
    assert vars(worker) == {"cache": {}}


def test_threads_share_the_plugins_and_not_the_task_that_they_run(worker):
    task: Any = SimpleNamespace(key="x", attempt=3)
    worker.here.task = task
    thread = copy.copy(worker)
    worker.here.task = None
    assert (thread.key, thread.attempt) == ("x", 3)
    assert (worker.key, worker.attempt) == ("", 0)
    assert thread.plugins is worker.plugins


@pytest.mark.parametrize(
    "name", ["name", "address", "plugins", "key", "task", "is_cancelled", "show", "host", "here"]
)
def test_names_of_weft_are_protected(worker, name):
    before = getattr(worker, name)
    with pytest.raises(AttributeError, match=f"the attribute '{name}' of a worker is weft's own"):
        setattr(worker, name, 1)
    with pytest.raises(AttributeError, match="keep what is yours under another name"):
        delattr(worker, name)
    assert getattr(worker, name) == before


def test_an_attribute_that_nobody_has_set_is_named(worker):
    with pytest.raises(AttributeError, match="the worker has no attribute 'conn': neither weft"):
        worker.conn
    with pytest.raises(AttributeError):
        del worker.conn


def test_names_of_dask_s_worker_are_answered_by_what_to_use():
    context = WorkerContext("w", "tcp://w", "id of w")
    with pytest.raises(AttributeError, match="no attribute 'id': use worker_id, or name"):
        _ = context.id
