"""The same call with a client."""

from __future__ import annotations

import re
import uuid

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
from tests.graphs.graph_kit import evaluate, graphs, inc, total
from weft.client.core.tasks import TaskColumns

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
def test_an_order_gives_each_task_its_rank(client, monkeypatch, wait_until, get):
    dsk = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, 2), "all": (total, "b", "c"), "d": (inc, 3)}
    ranks = {}
    post = client._engine.post

    def note(operation):
        if isinstance(operation, TaskColumns):
            names = [state.key.split("-")[0] for state in operation.states]
            ranks.update(zip(names, operation.ranks or [None] * len(names), strict=True))
        post(operation)

    monkeypatch.setattr(client._engine, "post_submission", note)

    def run(**options):
        wait_until(lambda: not client.futures)  # equal tasks would not be submitted
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


def test_requested_tasks_that_no_other_reads_keep_their_names(client):
    keys = [("x", np.int64(0)), "('x', 0)", "plain", frozenset([1]), 5, "n" * 2000]
    futures = client.get(dict.fromkeys(keys, (inc, 1)), keys, sync=False)
    assert client.gather(futures) == [2] * 6
    names = [future.key for future in futures]
    assert names[:3] == [("x", 0), "('x', 0)", "plain"]
    assert re.fullmatch(r"frozenset\(\{1\}\)-[0-9a-f]{32}", names[3])
    assert re.fullmatch(r"5-[0-9a-f]{32}", names[4])
    assert re.fullmatch(r"n{80}-[0-9a-f]{32}", names[5])


def test_names_chosen_by_hand_do_not_mix_up_different_tasks(client):
    with weft.Client(client.cluster, set_as_default=False) as other:
        graphs = [{"a": (inc, n), "b": (inc, "a"), "c": (inc, "b")} for n in range(4)]
        first = client.get(graphs[0], ["a", "b", "c"], sync=False)
        again = client.get(graphs[0], ["a", "b", "c"], sync=False)
        assert [future.key for future in first] == [future.key for future in again]
        assert first[2].key == "c"
        second = client.get(graphs[1], ["a", "b", "c"], sync=False)
        assert second[2].key.startswith("c-")
        assert client.gather([first, second]) == [[1, 2, 3], [2, 3, 4]]
        assert other.get(graphs[2], ["a", "b", "c"]) == [3, 4, 5]
        refused = other.get(graphs[3], ["b", "c"], sync=False)
        assert refused[0].result(20) == 5
        with pytest.raises(ValueError, match="c"):
            refused[1].result(20)


TOKEN = "0123456789abcdef" * 2


def test_keys_that_name_their_content_are_shared_and_what_only_they_need_is_left_out(client):
    _calls.clear()
    dsk = {
        f"load-{TOKEN}": (note_call, "load", 1),
        (f"part-{TOKEN}", 0): (note_call, "part", f"load-{TOKEN}"),
        f"sum-{TOKEN}": (note_call, "sum", (f"part-{TOKEN}", 0)),
    }
    (part,) = client.get(dsk, [(f"part-{TOKEN}", 0)], sync=False)
    assert part.key == (f"part-{TOKEN}", 0)
    assert part.result(20) == 1
    assert client.get(dsk, f"sum-{TOKEN}") == 1
    assert _calls == ["load", "part", "sum"]
    # The same key with another call, as dask's optimization makes it.
    fused = {(f"part-{TOKEN}", 0): (note_call, "fused", (note_call, "load", 1))}
    assert client.get(fused, [(f"part-{TOKEN}", 0)]) == [1]
    assert _calls == ["load", "part", "sum"]


def test_another_client_s_call_under_a_key_that_names_content_is_used(client):
    _calls.clear()
    key = f"value-{TOKEN}"
    with weft.Client(client.cluster, set_as_default=False) as other:
        mine = client.get({key: (note_call, "mine", 7)}, key, sync=False)
        assert mine.result(20) == 7
        theirs = {key: (note_call, "theirs", (inc, 6)), "next": (inc, key)}
        assert other.get(theirs, ["next", key]) == [8, 7]
    assert _calls == ["mine"]


def test_a_failed_task_that_is_held_is_run_again(client):
    key, name = f"flaky-{TOKEN}", uuid.uuid4().hex
    failed = client.get({key: (fail_once, name)}, key, sync=False)
    with pytest.raises(ValueError, match=name):
        failed.result(20)
    assert client.get({key: (fail_once, name)}, key) == "done"


_calls = []


def note_call(name, value):
    _calls.append(name)  # the workers are threads of this process
    return value


def test_arguments_of_all_forms_arrive(client):
    block = np.arange(300_000.0)  # larger than what travels with a call
    dsk = {
        "one": (inc, 0),
        "two": (inc, "one"),
        "flat": (list, ["one", "two", "one"]),
        "mixed": (list, ["one", 5, ["two"], ("one", "two"), {"two"}]),
        "twice": (divmod, "two", "two"),
        "call": (list, [(inc, "two"), "one"]),
        "large": (np.vdot, block, block),
        "added": (np.add, block, "one"),
        "block": (np.sum, block),
        "local": (lambda a, b: a + b, "two", 3),
    }
    keys = [key for key in dsk if key not in ("one", "two")]
    expected = {
        "flat": [1, 2, 1],
        "mixed": [1, 5, [2], (1, 2), {2}],
        "twice": (1, 0),
        "call": [3, 1],
        "large": np.vdot(block, block),
        "block": block.sum(),
        "local": 5,
    }
    found = dict(zip(keys, client.get(dsk, keys), strict=True))
    assert (found.pop("added") == block + 1).all()
    assert found == expected


class Pickled:
    """A large value that counts how often it is pickled."""

    def __init__(self, nbytes=2_000_000):
        self.nbytes = nbytes
        self.n_pickled = 0

    def __reduce__(self):
        self.n_pickled += 1
        return len, (b"x" * self.nbytes,)


def add(*numbers):
    return sum(numbers)


@pytest.mark.parametrize("n_large", [1, 2])
def test_a_large_value_of_a_graph_is_not_pickled_for_each_task_that_reads_it(client, n_large):
    large = [Pickled(2_000_000 + i) for i in range(n_large)]
    dsk = {f"large-{i}": value for i, value in enumerate(large)}
    names = list(dsk)
    dsk |= {("add", i): (add, *names, i) for i in range(50)}
    dsk |= {("more", i): (add, ("add", i), *names) for i in range(50)}
    total = sum(value.nbytes for value in large)
    wanted = [2 * total + i for i in range(50)]
    assert client.get(dsk, [("more", i) for i in range(50)]) == wanted
    assert max(value.n_pickled for value in large) < 10


def test_a_graph_that_cannot_be_sent_as_a_whole_leaves_nothing(client, wait_until):
    dsk = {("x", i): (inc, i) for i in range(400)}
    dsk["all"] = (sum, [*dsk])
    dsk["bad"] = (list, iter_of(), "all")
    for sync in (True, False):
        with pytest.raises(weft.SerializationError, match="task 'bad'"):
            client.get(dsk, ["bad", ("x", 3)], sync=sync)
    wait_until(lambda: not client.futures)
    wait_until(lambda: not any(client.scheduler_info()["tasks"].values()))


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


def test_a_key_with_a_hash_is_computed_again_once_its_futures_are_gone(client, tmp_path):
    """A program reads a file, writes it anew, and reads it again: dask gives both equal keys."""
    file = tmp_path / "number"
    key = f"read-{uuid.uuid4().hex}"
    for number in range(20):
        file.write_text(str(number), encoding="utf-8")
        assert client.get({key: (file.read_text,)}, key) == str(number)
