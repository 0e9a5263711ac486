"""Arguments in the place of futures are handled or refused, and never ignored."""

from __future__ import annotations

from collections import deque

import pytest

from weft.client import as_completed, wait
from weft.protocol.errors import TaskCancelled


@pytest.mark.parametrize(
    "form",
    [
        iter,
        lambda futures: (future for future in futures),
        lambda futures: dict(enumerate(futures)).values(),
        deque,
        lambda futures: {"a": [futures[0]], "b": (iter(futures[1:]),)},
    ],
    ids=["iterator", "generator", "values", "deque", "nested"],
)
def test_cancel_takes_all_iterables(client, scheduler, form):
    scheduler.is_holding = True
    futures = client.map(abs, range(3))
    client.cancel(form(futures))
    for future in futures:
        with pytest.raises(TaskCancelled):
            future.result(20)


@pytest.mark.parametrize("form", [iter, lambda fs: dict(enumerate(fs)).values(), deque])
def test_gather_takes_all_iterables(client, form):
    assert client.gather(form(client.map(abs, [-1, -2]))) == [1, 2]


def test_gather_leaves_values_in_containers_alone(client):
    assert client.gather([client.submit(abs, -1), 5, "x"]) == [1, 5, "x"]


@pytest.mark.parametrize("thing", [5, None, "abs-1", b"abs", 1.5])
def test_arguments_without_futures_are_refused(client, thing):
    for name, call in (
        ("cancel", client.cancel),
        ("gather", client.gather),
        ("wait", wait),
        ("as_completed", lambda fs: as_completed(fs).count()),
        ("cancel", lambda fs: client.cancel([client.submit(abs, 1), fs])),
    ):
        if thing is None and name == "as_completed":
            continue  # its default: nothing yet
        with pytest.raises(TypeError, match=rf"{name} takes futures.*not {type(thing).__name__}"):
            call(thing)


def test_collections_of_dask_are_refused_and_not_computed(client):
    pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
    bag = pytest.importorskip("dask.bag", reason="pip install 'weft[dask]'")
    numbers = bag.from_sequence(range(3)).map(lambda _: pytest.fail("it was computed"))
    for call in (
        client.cancel,
        client.gather,
        wait,
        as_completed,
        lambda fs: client.gather([client.submit(abs, 1), {"x": fs}]),
        lambda fs: client.cancel([fs]),
        lambda fs: wait([fs]),
    ):
        with pytest.raises(TypeError, match=r"this Bag of dask holds none: use x.compute\(\)"):
            call(numbers)


def test_literals_of_a_graph_are_no_futures_and_come_back(client):
    assert client.get({"x": 5}, "x") == 5
    assert client.get({"x": None, "y": "text"}, ["x", ["y"]]) == [None, ["text"]]


def test_futures_of_an_executor_are_refused_with_what_to_use(client):
    with client.get_executor() as executor:
        future = executor.submit(abs, -1)
        for call in (client.gather, wait, lambda futures: list(as_completed(futures))):
            with pytest.raises(TypeError, match=r"ExecutorFuture is one of an executor: use "):
                call([future])
        assert future.result(60) == 1


def test_the_answer_of_a_wait_for_nothing_is_shown_like_any_other():
    assert repr(wait([])) == "DoneAndNotDone(done=set(), not_done=set())"
