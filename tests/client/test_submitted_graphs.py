"""The same call with a client."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
from tests.graphs.graph_kit import evaluate, graphs, inc, total

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=2, threads_per_worker=1, processes=False) as client:
        yield client


@given(case=graphs())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_graph_gives_the_same_results_as_in_this_process(client, case):
    dsk, wanted = case
    assert client.get(dsk, wanted) == [evaluate(dsk, key) for key in wanted]


def test_results_are_nested_like_the_keys(client):
    dsk = {"x": (inc, 1), "y": "x", "z": "literal"}
    assert client.get(dsk, "x") == 2
    assert client.get(dsk, [["x", "y"], ["z"], []]) == [[2, 2], ["literal"], []]


@pytest.mark.parametrize(
    "get", ["client.get", "weft.get"], ids=["the client's get", "the executor of weft.get"]
)
def test_an_order_gives_each_task_its_rank(client, monkeypatch, get):
    dsk = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, 2), "all": (total, "b", "c"), "d": (inc, 3)}
    ranks = {}
    submit = client._submit_task

    def note(func, args, name, options, rank):
        ranks[name.split("-")[0]] = rank
        return submit(func, args, name, options, rank)

    monkeypatch.setattr(client, "_submit_task", note)

    def run(**options):
        ranks.clear()
        if get == "client.get":
            return list(client.get(dsk, ["all", "d"], **options))
        return list(weft.get(dsk, ["all", "d"], executor=client, **options))

    values = [evaluate(dsk, "all"), 4]
    assert run(order={"c": -2.5, "a": 10, "b": 20, "all": 30}) == values
    assert ranks == {"c": 0, "a": 1, "b": 2, "all": 3, "d": 4}
    assert run(order=lambda graph: {key: -i for i, key in enumerate(graph)}) == values
    assert ranks == {"d": 0, "all": 1, "c": 2, "b": 3, "a": 4}
    assert run() == values
    assert set(ranks.values()) == {None}
    with pytest.raises(weft.ConfigError, match="order"):
        run(order=[1, 2])
    with pytest.raises(weft.ConfigError, match="must return"):
        run(order=lambda graph: 3)


def test_nested_calls_are_made_on_the_workers(client):
    dsk = {"x": (inc, 1), "y": (total, (inc, "x"), [(inc, (inc, "x"))], {"x"})}
    assert client.get(dsk, "y") == evaluate(dsk, "y")


def test_nothing_is_held_after_the_call(client, wait_until):
    client.get({("x", i): (inc, i) for i in range(100)}, [("x", 0)])
    wait_until(lambda: not any(client.scheduler_info()["tasks"].values()))


def test_a_failure_names_the_key(client):
    with pytest.raises(ZeroDivisionError) as info:
        client.get({("part", 3): (divmod, 1, 0), "all": [("part", 3)]}, "all")
    assert "('part', 3)" in "\n".join(info.value.__notes__)


def test_names_of_tasks_begin_with_the_text_of_their_keys(client):
    keys = [("x", np.int64(0)), "('x', 0)", frozenset([1])]
    futures = client.get(dict.fromkeys(keys, (inc, 1)), keys, sync=False)
    assert client.gather(futures) == [2, 2, 2]
    numbered, quoted, other = (future.key for future in futures)
    assert numbered.startswith("('x', 0)-")
    assert quoted.startswith("(\"('x', 0)\")-")
    assert other.startswith("frozenset({1})-")


def test_graphs_that_cannot_be_run_are_refused_before_anything_is_submitted(client):
    with pytest.raises(weft.GraphCycle):
        client.get({"x": (inc, "x")}, "x")
    with pytest.raises(weft.MissingKey):
        client.get({"x": (inc, 1)}, "y")
    with pytest.raises(weft.SerializationError, match=r"task 'x': argument args\[0\] of list"):
        client.get({"x": (list, iter_of())}, "x")


def test_options_that_do_not_exist_are_ignored_but_misspelt_ones_are_not(client):
    # dask passes on all options of `compute`, and its own schedulers ignore unknown ones.
    assert client.get({"x": (inc, 1)}, "x", num_workers=2, bogus_keyword=10) == 2
    for name in ("worker", "resource", "retrys", "allow_other_worker"):
        with pytest.raises(weft.UnknownOption, match=f"no option '{name}': did you mean"):
            client.get({"x": (inc, 1)}, "x", **{name: 1})


def test_options_of_the_engines_are_not_silently_ignored(client):
    for name, value in {
        "cache": {},
        "callbacks": [(None,) * 5],
        "chunksize": 2,
        "initializer": iter_of,
        "num_workers": 2,
        "rerun_exceptions_locally": True,
    }.items():
        with pytest.raises(weft.ConfigError, match=f"{name}.*weft.Client"):
            weft.get({"x": (inc, 1)}, "x", executor=client, **{name: value})


def iter_of():
    return (i for i in range(3))


def test_options_of_submit_are_accepted(client):
    assert client.get({"x": (fail_once, uuid.uuid4().hex)}, "x", retries=1) == "done"


_failed = set()


def fail_once(name):
    if name not in _failed:
        _failed.add(name)  # the workers are threads of this process
        raise ValueError(name)
    return "done"


def test_collections_of_dask(client):
    pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
    da = pytest.importorskip("dask.array", reason="pip install 'weft[dask]'")
    assert da.arange(100, chunks=10).sum().compute(scheduler=client) == 4950
