"""Collections of dask on a cluster: `compute`, `persist`, and futures inside of collections."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

import weft

np = pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
pd = pytest.importorskip("pandas", reason="pandas is missing: pip install 'weft[dask]'")
dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
da = pytest.importorskip("dask.array", reason="pip install 'weft[dask]'")
db = pytest.importorskip("dask.bag", reason="pip install 'weft[dask]'")
dd = pytest.importorskip("dask.dataframe", reason="pip install 'weft[dask]'")

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=2, threads_per_worker=1, processes=False) as client:
        yield client


#: Names of calls, in the order in which they were made; the workers are threads of this process.
_calls = []


def noted(name, *values):
    _calls.append(name)
    return sum(values)


_gate = threading.Event()


def wait_for_gate():
    return _gate.wait(20)


@pytest.fixture(autouse=True)
def no_calls():
    _calls.clear()


def frame(n=6):
    return dd.from_pandas(pd.DataFrame({"a": range(n)}), npartitions=3)


COLLECTIONS = {
    "array": (lambda: da.arange(10, chunks=4) + 1, lambda value: value.sum() == 55),
    "bag": (lambda: db.from_sequence(range(5), npartitions=2), lambda value: sum(value) == 10),
    "frame": (frame, lambda value: value.a.sum() == 15),
    "scalar": (lambda: frame().a.sum(), lambda value: value == 15),
    "delayed": (lambda: dask.delayed(noted)("d", 1, 2), lambda value: value == 3),
    "literal": (lambda: dask.delayed([1, 2]), lambda value: value == [1, 2]),
}


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_each_kind_of_collection_is_computed_and_persisted(client, kind):
    make, is_right = COLLECTIONS[kind]
    future = client.compute(make())
    assert isinstance(future, weft.Future)
    assert is_right(future.result(20))
    assert is_right(client.compute(make(), sync=True))
    kept = client.persist(make())
    futures = weft.futures_of(kept)
    assert futures
    assert type(kept) is type(make()) or kind in ("delayed", "literal")
    assert is_right(kept.compute())
    assert is_right(make().persist().compute())
    weft.wait(kept, 20)
    assert all(future.status == "finished" for future in futures)
    assert is_right(client.gather(kept))
    client.cancel(kept)
    assert weft.progress(kept, notebook=False) is None


@pytest.mark.filterwarnings("ignore:Computing mixed collections")
@pytest.mark.parametrize("optimize_graph", [True, False])
def test_collections_of_different_kinds_in_any_order_keep_their_places(client, optimize_graph):
    names = ["scalar", "array", "frame", "bag", "array", "delayed", "bag", "scalar"]
    given = [COLLECTIONS[name][0]() for name in names]
    kept = client.persist(given, optimize_graph=optimize_graph)
    assert [type(item) for item in kept] == [type(item) for item in given]
    for collections in (given, kept):
        values = client.gather(client.compute(collections, optimize_graph=optimize_graph))
        assert all(COLLECTIONS[name][1](v) for name, v in zip(names, values, strict=True))
    values = client.gather(kept)
    assert all(COLLECTIONS[name][1](v) for name, v in zip(names, values, strict=True))


def test_several_collections_are_lists_and_other_objects_stay(client):
    x, d = da.ones(4, chunks=2), dask.delayed(noted)("d", 5)
    futures = client.compute([x.sum(), 7, d])
    assert futures[1] == 7
    assert client.gather(futures) == [4, 7, 5]
    assert client.compute((x.sum(), d), sync=True) == [4, 5]
    assert client.compute([[x.sum(), 1], {"d": d}], sync=True) == [[4, 1], {"d": 5}]
    assert client.compute([]) == []
    kept, other = client.persist([x, d])
    assert len(weft.futures_of([kept, {"d": other}])) == 3
    assert dask.compute(kept.sum(), other) == (4, 5)
    (one, two) = dask.persist(x, d)
    assert dask.compute(one.sum(), two) == (4, 5)


def test_persisted_parts_are_not_computed_again(client):
    x = db.from_sequence([1, 2, 3], npartitions=3).map(lambda value: noted("part", value))
    kept = x.persist()
    assert kept.sum().compute() == 6
    assert kept.map(lambda value: value * 2).compute() == [2, 4, 6]
    assert len(_calls) == 3


def test_a_graph_with_the_keys_of_persisted_parts_uses_them(client):
    part = dask.delayed(noted)("part", 1)
    kept = part.persist()
    assert (part + 1).compute() == 2  # of the call itself, not of the one that was returned
    assert dask.delayed(sum)([part, part]).compute() == 2
    assert len(weft.futures_of(kept)) == 1
    assert _calls == ["part"]


def test_parts_are_released_with_their_collection(client, wait_until):
    kept = (da.arange(8, chunks=2) + 1).persist()
    total = kept.sum()
    del kept
    assert total.compute() == 36  # it was made of them, and keeps them
    futures = weft.futures_of(total)
    assert len(futures) == 4
    del futures, total
    gc.collect()
    wait_until(lambda: not client.futures)


@pytest.mark.parametrize("kind", ["bag", "frame", "literal"])
def test_data_of_the_program_is_released_without_the_collector(client, kind, wait_until):
    make, _ = COLLECTIONS[kind]
    gc.collect()
    wait_until(lambda: not client.futures)
    gc.disable()
    try:
        kept = client.persist(make())
        assert weft.futures_of(kept)
        del kept
        wait_until(lambda: not client.futures)
    finally:
        gc.enable()


def test_persisting_again_uses_no_released_futures_and_none_of_another_client(client):
    # dask keeps one object for equal expressions, while it lives.
    kept = client.persist(frame())
    with weft.Client(client.cluster, set_as_default=False) as other:
        theirs = other.persist(frame())
        assert {future.client for future in weft.futures_of(theirs)} == {other}
        assert theirs.a.sum().compute(scheduler=other) == 15
    for future in weft.futures_of(kept):
        future.release()
    assert client.persist(frame()).a.sum().compute() == 15


#: Parts whose calls fail.
_broken = set()


def checked(part):
    if int(part[0]) in _broken:
        raise OSError(f"part {part[0]} is broken")
    return part


def test_failed_parts_of_a_collection_are_run_again(client):
    _broken.update([0, 4])
    kept = client.persist((da.arange(10, chunks=4) + 0).map_blocks(checked, dtype=int))
    total = client.compute(kept.sum())
    with pytest.raises(OSError, match="is broken"):
        total.result(20)
    weft.wait(kept, timeout=20)
    statuses = sorted(future.status for future in weft.futures_of(kept))
    assert statuses == ["error", "error", "finished"]
    client.retry(kept)
    weft.wait(kept, timeout=20)
    assert sorted(f.status for f in weft.futures_of(kept)) == statuses
    _broken.clear()
    client.retry([kept, total])
    assert (client.gather(kept, timeout=20).sum(), total.result(20)) == (45, 45)
    with pytest.raises(TypeError, match="this Array of dask holds none"):
        client.retry(da.arange(3))


def test_the_future_of_a_collection_is_retried_with_the_parts_that_only_it_reads(client):
    _broken.add(4)
    total = client.compute(da.arange(10, chunks=4).map_blocks(checked, dtype=int).sum())
    with pytest.raises(OSError, match="part 4 is broken"):
        total.result(20)
    _broken.clear()
    total.retry()
    assert total.result(20) == 45


def test_persisted_collections_are_arguments_and_results_of_tasks(client):
    def total(x):
        with weft.worker_client():
            return x.sum().compute()

    def persisted():
        return weft.get_client().persist(da.ones(6, chunks=2))

    for kept in (da.ones(6, chunks=2), db.from_sequence([1, 2, 3]), frame(4).a):
        assert client.submit(total, kept.persist()).result(20) == 6
    result = client.submit(persisted).result(20)
    assert len(weft.futures_of(result)) == 3
    assert result.sum().compute() == 6


def test_futures_are_inputs_of_delayed_calls_and_collections(client):
    one = client.submit(noted, "one", 1)
    assert isinstance(one, sys.modules["dask._task_spec"].TaskRef)
    assert dask.delayed(noted)("sum", one, 2).compute() == 3
    assert dask.delayed(one).compute() == 1
    assert dask.delayed(sum)([one, one, 5]).compute() == 7
    assert dask.delayed(dict)(a=one, b=[one]).compute() == {"a": 1, "b": [1]}
    assert (dask.delayed(one) + 1).compute() == 2
    parts = client.map(lambda n: pd.DataFrame({"a": [n]}), range(3))
    assert dd.from_delayed(parts, meta={"a": int}).a.sum().compute() == 3
    lists = client.map(lambda n: [n, n], range(3))
    assert sorted(db.from_delayed(lists).compute()) == [0, 0, 1, 1, 2, 2]
    block = client.submit(np.ones, 3)
    array = da.from_delayed(dask.delayed(block), shape=(3,), dtype=float)
    assert array.sum().compute() == 3
    assert _calls.count("one") == 1


def test_futures_are_entries_and_arguments_of_graphs(client):
    one = client.submit(noted, "one", 1, key="one")
    pair = client.submit(noted, "two", 2, key=("two", 0))
    dsk = {"one": one, "other": pair, "s": (noted, "sum", "one", "other", one), "l": ["one", one]}
    assert client.get(dsk, ["s", "l", "one"]) == [4, [1, 1], 1]
    assert list(weft.get(dsk, ["s"], executor=client)) == [4]
    spec = sys.modules["dask._task_spec"]
    nodes = {
        "n": spec.Task("n", noted, "n", spec.TaskRef("one"), pair),
        "m": spec.Task("m", dict, a=spec.TaskRef(("two", 0)), b=one),
        "again": spec.Alias("again", "one"),
        "one": spec.Alias("one", "one"),
    }
    assert client.get(nodes, ["n", "m", "again", "one"]) == [3, {"a": 2, "b": 1}, 1, 1]
    assert client.get({}, [("two", 0)]) == [2]  # dask leaves out entries that stand for themselves


def test_arrays_in_a_file_of_hdf5_are_read_on_the_workers(client, tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is missing: pip install h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(10)
    with h5py.File(tmp_path / "x.h5", "r") as file:
        assert da.from_array(file["x"], chunks=5).sum().compute() == 45


def test_tasks_that_dask_has_fused_are_counted_by_the_names_of_their_keys(client, capsys):
    frame = dd.from_pandas(pd.DataFrame({"a": range(10)}), npartitions=2)
    kept = frame[frame.a > 2].assign(c=1).persist()
    name = weft.futures_of(kept)[0].key[0].rpartition("-")[0]
    assert "getitem" in name
    weft.progress(kept, notebook=False)
    assert f"2 tasks of {name} done" in capsys.readouterr().err


def test_a_key_that_nothing_has_is_an_error_that_names_it(client, wait_until):
    kept = client.persist(dask.delayed(noted)("gone", 1))
    for future in weft.futures_of(kept):
        future.release()
    wait_until(lambda: not client.futures)
    with pytest.raises(ValueError, match="was released"):
        kept.compute()
    spec = sys.modules["dask._task_spec"]
    with pytest.raises(weft.MissingKey, match="'nowhere' is needed by 'n'") as caught:
        client.get({"n": spec.Task("n", noted, "n", spec.TaskRef("nowhere"))}, "n")
    assert "persist" in "\n".join(caught.value.__notes__)


def test_the_failure_of_a_part_is_that_of_all_that_read_it(client):
    kept = client.persist(dask.delayed(divmod)(1, 0))
    weft.wait(kept, 20)
    with pytest.raises(ZeroDivisionError):
        (kept[0] + 1).compute()
    with pytest.raises(ZeroDivisionError):
        client.gather([kept])
    assert client.gather([kept, 5], errors="skip") == [5]


def test_futures_of_finds_each_once_in_order_and_raises_for_cancelled_ones(client):
    a, b = client.submit(wait_for_gate), client.submit(abs, -2)
    assert weft.futures_of([a, (b, {"x": a}), {b}, 5]) == [a, b]
    assert weft.futures_of(da.ones(3)) == []
    a.cancel()
    assert weft.futures_of([a], client=None) == [a]
    with pytest.raises(weft.TaskCancelled):
        weft.futures_of([a], client=client)
    _gate.set()


def test_collections_in_containers_are_waited_for_and_gathered(client):
    x, future = da.ones(4, chunks=2).persist(), client.submit(abs, -1)
    done, left = weft.wait([x, future], 20)
    assert (len(done), len(left)) == (3, 0)
    assert len(list(weft.as_completed([x, future]))) == 3
    found = client.gather({"x": [x], "f": future, "n": 3})
    assert found["x"][0].tolist() == [1, 1, 1, 1]
    assert (found["f"], found["n"]) == (1, 3)


@pytest.mark.parametrize("thing", [5, None, "x", len, [5, da.ones(3)]])
def test_persist_and_compute_refuse_what_is_no_collection(client, thing):
    with pytest.raises(TypeError, match="persist takes collections of dask, not"):
        client.persist(thing)
    if thing.__class__ is not list:
        with pytest.raises(TypeError, match="compute takes collections of dask, not"):
            client.compute(thing)


def test_a_collection_that_was_not_persisted_holds_no_futures(client):
    x = da.ones(3)
    for call in (client.gather, client.cancel, weft.wait, weft.progress, weft.as_completed):
        with pytest.raises(TypeError, match=r"Array of dask holds none: use x.compute\(\)"):
            call(x)


def test_options_are_those_of_the_tasks(client):
    name = sorted(worker["name"] for worker in client.scheduler_info()["workers"].values())[0]

    def where(*_):
        return weft.get_worker().name

    for call in (client.compute, lambda x, **options: client.compute(client.persist(x, **options))):
        assert call(dask.delayed(where)(), workers=name, priority=3).result(20) == name
    assert client.compute(dask.delayed(where)(), retries=2, order=lambda dsk: {}).result(20)
    with pytest.raises(weft.UnknownOption, match="workers"):
        client.compute(dask.delayed(where)(), worker=name)
    with pytest.raises(TypeError, match="actors= is not supported"):
        client.persist(dask.delayed(where)(), actors=True)
    with pytest.raises(TypeError, match="actors= is not supported"):
        client.compute(call := dask.delayed(where)(), actors=call)
    with dask.annotate(workers=name):
        annotated = dask.delayed(where)(1)
    assert client.compute(annotated).result(20) == name
    assert client.persist(annotated).compute() == name


def test_a_closed_client_refuses(client):
    with weft.Client(client.cluster, set_as_default=False) as other:
        pass
    with pytest.raises(weft.ClientClosed):
        other.compute(dask.delayed(noted)("x"))
    with pytest.raises(weft.ClientClosed):
        other.persist(dask.delayed(noted)("x"))


def test_an_old_version_of_dask_is_refused_by_name(client, monkeypatch):
    monkeypatch.delattr("dask._expr.FinalizeCompute")
    with pytest.raises(weft.NotSupported, match=r"client\.compute needs dask 2025\.4 or later"):
        client.compute(dask.delayed(noted)("x"))


async def test_an_asynchronous_client_awaits():
    async with weft.Client(processes=False, n_workers=1, asynchronous=True) as client:
        assert await client.compute(da.ones(3, chunks=2).sum()) == 3
        assert await client.compute(da.ones(3, chunks=2).sum(), sync=True) == 3
        kept = client.persist(da.ones(4, chunks=2))
        await weft.wait(kept)
        assert (await client.gather(kept)).tolist() == [1, 1, 1, 1]
        await client.cancel(kept)


_IMPORTED_LATER = """
import weft
with weft.Client(n_workers=1, processes=False) as client:
    future = client.submit(abs, -3)
    import dask
    from dask._task_spec import TaskRef
    assert isinstance(future, TaskRef) and future == future and len({future, future}) == 1
    print(dask.delayed(future).compute(), str(future) == repr(future))
"""


def test_dask_may_be_imported_after_futures_were_made():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _IMPORTED_LATER],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("3 True\n", "")
