"""`dask.annotate` is honoured by graphs, `submit` and `map`, or refused; never ignored."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import weft
from weft.client.core.tasks import TaskColumns, TaskRecord

dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
da = pytest.importorskip("dask.array", reason="pip install 'weft[dask]'")
np = pytest.importorskip("numpy", reason="pip install 'weft[dask]'")

import dask.bag as db  # noqa: E402
from dask.highlevelgraph import HighLevelGraph  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

FIRST, SECOND = "k-0", "k-1"


@pytest.fixture(scope="module")
def client():
    with (
        weft.LocalCluster(2, 1, processes=False, name="k", resources={"GPU": 1}) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client


def where(*_args):
    return weft.get_worker().name


_lock = threading.Lock()
_calls: dict[str, int] = {}


def fail_twice(name):
    with _lock:
        _calls[name] = _calls.get(name, 0) + 1
        if _calls[name] <= 2:
            raise ValueError(name)
    return "done"


@pytest.mark.parametrize("worker", [FIRST, SECOND])
def test_annotations_where_a_collection_is_made_apply(client, worker):
    with dask.annotate(workers=worker):
        places = [dask.delayed(where, pure=False)() for _ in range(8)]
    assert {*dask.compute(*places)} == {worker}
    assert {*dask.compute(*places, optimize_graph=False)} == {worker}
    with dask.annotate(workers=worker):
        array = da.ones(8, chunks=1)
    for graph in (array, array.__dask_graph__()):
        futures = client.get(graph, array.__dask_keys__(), sync=False)
        assert {*client.gather(client.map(where, futures, workers=worker))} == {worker}


def worker_of_block(block):
    return np.full(block.shape, weft.get_worker().name)


@pytest.mark.parametrize("compute", [dask.compute, partial(dask.compute, scheduler=weft.get)])
def test_fused_tasks_of_an_array_keep_their_annotations(client, compute):
    with dask.annotate(workers=FIRST):
        first = da.ones(8, chunks=1).map_blocks(worker_of_block, dtype="U9")
    with dask.annotate(workers=SECOND):
        second = (first == FIRST).map_blocks(
            lambda block: np.where(block, weft.get_worker().name, "wrong"), dtype="U9"
        )
    options = {"executor": client} if compute is not dask.compute else {}
    assert {*compute(second, **options)[0]} == {SECOND}
    joined, place = compute(second, first, **options)
    assert ({*joined}, {*place}) == ({SECOND}, {FIRST})


def test_fused_tasks_of_a_bag_keep_their_annotations(client):
    bag = db.from_sequence(range(8), npartitions=4)
    with dask.annotate(workers=SECOND):
        bag = bag.map(where)
    bag = bag.map(lambda worker: (worker, weft.get_worker().name))
    assert {worker for worker, _ in bag.compute()} == {SECOND}


def test_blocks_with_the_same_annotations_are_one_task(client, monkeypatch):
    with dask.annotate(priority=1):
        array = da.ones(8, chunks=1) + 1
    array = array * 2
    submitted = record_tasks(client, monkeypatch)
    assert array.compute().tolist() == [4] * 8
    assert sorted(submitted) == [0] * 9 + [1] * 8  # the last is the whole
    assert array.compute(optimize_graph=False).tolist() == [4] * 8


def test_annotations_of_the_context_leave_the_optimization_to_dask(client, monkeypatch, wait_until):
    submitted = record_tasks(client, monkeypatch)
    total = da.ones(8, chunks=1).sum()
    assert total.compute() == 8
    n_plain = len(submitted)
    wait_until(lambda: not client.futures)
    with dask.annotate(priority=1):
        assert total.compute() == 8
    assert len(submitted) == 2 * n_plain
    assert {*submitted[n_plain:]} == {1}


def record_tasks(client, monkeypatch):
    """Return a list that gets the priority of each task that is submitted from now on."""
    engine, submitted = client._engine, []
    post = engine.post

    def note(operation):
        if isinstance(operation, (TaskColumns, TaskRecord)):
            n = len(operation.states) if isinstance(operation, TaskColumns) else 1
            submitted.extend([operation.options.priority] * n)
        post(operation)

    monkeypatch.setattr(engine, "post_submission", note)
    return submitted


@pytest.mark.parametrize("worker", [FIRST, SECOND])
def test_annotations_where_a_collection_is_computed_apply(client, worker):
    places = [dask.delayed(where, pure=False)() for _ in range(8)]
    with dask.annotate(workers=worker):
        assert {*dask.compute(*places)} == {worker}
        dsk = dict.fromkeys(range(8), (where,))
        assert {*client.get(dsk, [*dsk])} == {worker}
        assert {*weft.get(dsk, [*dsk], executor=client)} == {worker}
        assert {*client.gather(client.map(where, range(8)))} == {worker}
        assert client.submit(where, worker, pure=False).result() == worker


def test_annotations_of_fewer_tasks_take_precedence(client):
    layer = HighLevelGraph.from_collections("y", {"y": (where,)})
    layer.layers["y"].annotations = {"workers": [FIRST]}
    graph = HighLevelGraph({**layer.layers, "z": {"z": (where,)}}, {"y": set(), "z": set()})
    with dask.annotate(workers=SECOND):
        assert client.get(graph, ["y", "z"]) == [FIRST, SECOND]
        assert client.submit(where, "explicit", workers=FIRST).result() == FIRST
    assert client.get(graph, ["y", "z"], workers=SECOND) == [FIRST, SECOND]


def test_a_value_may_be_a_function_of_the_key(client):
    def choose(key):
        number = key[1] if isinstance(key, tuple) else int(key.partition("-")[2])
        return [FIRST, SECOND][number % 2]

    wanted = [FIRST, SECOND] * 4
    dsk = {("x", i): (where,) for i in range(8)}
    with dask.annotate(workers=choose, priority=lambda key: 1):
        assert client.get(dsk, [*dsk]) == wanted
        assert (
            client.gather(client.map(where, range(8), key=[f"m-{i}" for i in range(8)])) == wanted
        )
        assert client.submit(where, key="s-1").result() == SECOND


def test_retries_and_resources(client):
    with dask.annotate(retries=2):
        assert dask.delayed(fail_twice)("made").compute() == "done"
        assert client.submit(fail_twice, "submitted").result() == "done"
        assert client.gather(client.map(fail_twice, ["mapped"])) == ["done"]
        with pytest.raises(ValueError, match="explicit"):
            client.submit(fail_twice, "explicit", retries=0).result()
    with dask.annotate(resources={"GPU": 1}):
        assert dask.delayed(where)().compute() in (FIRST, SECOND)
    with dask.annotate(resources={"GPU": 2}):
        future = client.submit(where, "nobody has two")
        with pytest.raises(TimeoutError):
            client.gather(future, timeout=0)
        future.cancel()


def test_annotated_workers_may_be_only_preferred(client):
    with dask.annotate(allow_other_workers=True):
        assert client.submit(where, "anywhere").result() in (FIRST, SECOND)
        with dask.annotate(workers="nobody"):
            assert dask.delayed(where)().compute() in (FIRST, SECOND)


@pytest.mark.parametrize(
    ("annotations", "error", "text"),
    [
        ({"executor": "gpu"}, weft.NotSupported, "executor='gpu'.*leave it out"),
        ({"worker": FIRST}, weft.UnknownOption, "'worker'.*did you mean 'workers'"),
        ({"priority": 1.5}, ValueError, "priority=1.5: a priority is a whole number"),
        ({"workers": []}, ValueError, "workers= is empty"),
    ],
)
def test_annotations_that_cannot_be_honoured_are_refused(client, annotations, error, text):
    with dask.annotate(**annotations):
        value = dask.delayed(where)()
        for call in (
            lambda: client.submit(where),
            lambda: client.map(where, [1]),
            lambda: client.get({"x": (where,)}, "x"),
        ):
            with pytest.raises(error, match=text):
                call()
    with pytest.raises(error, match=text):
        value.compute()


def test_tags_of_spans_are_those_of_the_call_and_of_the_annotations(client, monkeypatch):
    spans = []
    for cls in (TaskRecord, TaskColumns):

        def init(self, *args, _original=cls.__init__, **kwargs):
            _original(self, *args, **kwargs)
            spans.append(self.options.span)

        monkeypatch.setattr(cls, "__init__", init)
    with weft.span("outer"), dask.annotate(span="inner"):
        client.submit(where, "span 1").result()
        client.gather(client.map(where, ["span 2"]))
    with dask.annotate(span={"name": ("of", "dask"), "ids": ("1", "2")}):
        value = dask.delayed(where)()
    with weft.span("outer"):
        client.submit(where, "span 3").result()
        value.compute()
    assert spans == [["outer", "inner"], ["outer", "inner"], ["outer"], ["outer", "of", "dask"]]
    with dask.annotate(span=7), pytest.raises(TypeError, match="tags of a span are texts, not 7"):
        client.submit(where)


def test_annotations_that_are_only_information_are_ignored(client):
    with dask.annotate(span=["a"], origin="test", executor="default", priority=1.0):
        assert client.submit(where).result() in (FIRST, SECOND)
        assert dask.delayed(where)().compute() in (FIRST, SECOND)


def test_the_context_is_that_of_the_thread(client):
    with dask.annotate(workers="nobody"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: client.submit(where, "thread").result()).result()


@pytest.mark.parametrize(
    ("name", "value"), [("queue", "nightly"), ("category", weft.Category("fits"))]
)
def test_a_gang_and_an_actor_are_in_no_queue_and_have_no_category(client, name, value):
    with dask.annotate(**{name: value}):
        with pytest.raises(TypeError, match=f"{name}= cannot be given for a gang"):
            client.submit_gang(abs, 2)
        with pytest.raises(TypeError, match=f"{name}= cannot be given for an actor"):
            client.submit(Thing, actor=True)
    assert client.submit(Thing, actor=True, key="thing").result(timeout=30) is not None


class Thing:
    """An actor."""
