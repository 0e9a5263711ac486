"""A client that is open is the scheduler of dask's collections."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import weft

dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with weft.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, name="k") as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def threads_of_dask():
    """An executor whose threads are never joined."""
    with ThreadPoolExecutor(4) as pool, dask.config.set(pool=pool):
        yield


@dask.delayed
def where():
    """Return the name of the worker, "" outside of weft."""
    try:
        return weft.get_worker().name
    except RuntimeError:
        return ""


@dask.delayed
def where_within(scheduler=None):
    return where().compute(scheduler=scheduler)


def test_a_collection_is_computed_by_the_open_client(cluster):
    assert where().compute() == ""
    with weft.Client(cluster):
        assert where().compute() == "k-0"
        assert dask.compute(where(), where()) == ("k-0", "k-0")
    assert where().compute() == ""


def test_closing_the_client_restores_dask_s_configuration(cluster):
    names = ["scheduler", "dataframe.shuffle.method"]
    before = [dask.config.get(name, None) for name in names]
    with weft.Client(cluster):
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
        with weft.Client(cluster):
            pass
        assert where().compute() == "k-0"
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
    assert [dask.config.get(name, None) for name in names] == before
    with dask.config.set({"scheduler": "sync", "dataframe.shuffle.method": "disk"}):
        with weft.Client(cluster):
            assert where().compute() == "k-0"
            assert dask.config.get("dataframe.shuffle.method") == "disk"
        assert dask.config.get("scheduler") == "sync"


def test_clients_may_be_closed_in_any_order(cluster):
    first, second = weft.Client(cluster), weft.Client(cluster)
    first.close()
    assert where().compute() == "k-0"
    second.close()
    assert dask.config.get("scheduler", None) is None


@pytest.mark.parametrize("is_closed_inside", [True, False])
def test_an_explicit_scheduler_wins(cluster, is_closed_inside):
    client = weft.Client(cluster)
    assert where().compute(scheduler="threads") == ""
    with dask.config.set(scheduler="threads"):
        assert where().compute() == ""
        with weft.Client(cluster):
            assert where().compute() == "k-0"
        assert where().compute() == ""
        if is_closed_inside:
            client.close()
            assert where().compute() == ""
    # dask restores the setting that it found, which may be of a client that is closed by now.
    assert where().compute() == ("" if is_closed_inside else "k-0")
    client.close()
    dask.config.config.pop("scheduler", None)


def test_a_client_that_outlives_the_block_it_was_made_in_leaves_the_older_client(cluster):
    with weft.Client(cluster):
        with dask.config.set(scheduler="synchronous"):
            second = weft.Client(cluster)
            assert where().compute() == "k-0"
        assert where().compute() == "k-0"
        second.close()
        assert where().compute() == "k-0"
    assert "scheduler" not in dask.config.config
    assert where().compute() == ""


def test_an_older_client_that_is_closed_in_a_block_does_not_come_back(cluster):
    first = weft.Client(cluster)
    with dask.config.set(scheduler="synchronous"):
        second = weft.Client(cluster)
        first.close()
        assert where().compute() == "k-0"
    assert where().compute() == "k-0"
    second.close()
    assert "scheduler" not in dask.config.config


def test_the_end_of_a_block_that_takes_the_client_away_is_logged_and_mended(cluster, caplog):
    with dask.config.set(scheduler="synchronous"):
        first = weft.Client(cluster, name="first")
    assert where().compute() == ""  # dask has put back what it found
    second = weft.Client(cluster)
    assert where().compute() == "k-0"
    second.close()
    assert where().compute() == "k-0"
    first.close()
    assert "scheduler" not in dask.config.config
    lost = [record.getMessage() for record in caplog.records if "was lost" in record.getMessage()]
    assert len(lost) == 1
    assert "'first'" in lost[0]


def test_a_client_that_refresh_took_away_is_put_back_when_another_is_closed(cluster, caplog):
    pool = dask.config.get("pool")
    with weft.Client(cluster), weft.Client(cluster) as second:
        dask.config.refresh()
        dask.config.set(pool=pool)
        assert where().compute() == ""
        with caplog.at_level(logging.WARNING, "weft.client"):
            second.close()
        assert where().compute() == "k-0"
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
        assert "refresh()" in caplog.text
    assert "scheduler" not in dask.config.config
    assert dask.config.get("dataframe.shuffle.method", None) is None


def test_a_scheduler_that_the_user_configured_meanwhile_stays(cluster, caplog):
    with dask.config.set(scheduler=None), weft.Client(cluster):
        dask.config.set(scheduler="threads")
        with weft.Client(cluster):
            assert where().compute() == "k-0"
        assert where().compute() == ""
    assert "was lost" not in caplog.text


def test_copies_of_the_configuration_keep_their_meaning(cluster):
    with weft.Client(cluster):
        configured = dask.config.get("scheduler")
        assert copy.deepcopy({"scheduler": configured})["scheduler"] is configured
        pickled = pickle.loads(pickle.dumps(configured))
        assert where().compute(scheduler=pickled) == "k-0"
    assert not pickled


def test_a_client_that_is_not_the_default_computes_where_it_is_current(cluster):
    with weft.Client(cluster, set_as_default=False) as client, ThreadPoolExecutor(1) as pool:
        assert where().compute() == ""
        with client.as_current():
            assert where().compute() == "k-0"
            assert pool.submit(where().compute).result() == ""
            with dask.config.set(scheduler="sync"), client.as_current():
                assert where().compute() == "k-0"
                thread = dask.delayed(threading.get_ident)()
                assert (
                    pool.submit(thread.compute).result()
                    == pool.submit(threading.get_ident).result()
                )
        assert where().compute() == ""


def test_a_task_computes_on_the_cluster_unless_it_names_a_scheduler(cluster):
    with weft.Client(cluster):
        assert where_within().compute() == "k-0"
        assert where_within("threads").compute() == ""
    assert where_within().compute() == ""


@dask.delayed
def where_of_a_client():
    with weft.worker_client():
        inner = where().compute(), where_within().compute()
    return *inner, where().compute()


def test_a_task_computes_on_the_cluster_where_it_names_its_client(cluster):
    with weft.Client(cluster):
        assert where_of_a_client().compute() == ("k-0", "k-0", "k-0")


async def test_an_asynchronous_client_is_not_used():
    async with weft.Client(processes=False, n_workers=1, asynchronous=True) as client:
        assert where().compute() == ""
        with client.as_current():
            assert where().compute() == ""


async def test_an_asynchronous_client_that_is_named_is_refused_by_dask(cluster):
    with weft.Client(cluster):
        async with weft.Client(processes=False, n_workers=1, asynchronous=True) as client:
            assert where().compute() == "k-0"
            with client.as_current(), pytest.raises(RuntimeError, match="asynchronous"):
                where().compute()


def test_a_collection_is_persisted_where_it_would_be_computed(cluster):
    with weft.Client(cluster) as client:
        for options in ({}, {"scheduler": client}, {"scheduler": client.get}):
            kept = where().persist(**options)
            assert kept.compute() == "k-0"
            assert len(weft.futures_of(kept)) == 1
        (value,) = dask.persist(where(), scheduler="threads")
        assert value.compute() == ""
    assert where().persist().compute() == ""


def test_shuffles_go_from_task_to_task(cluster):
    dd = pytest.importorskip("dask.dataframe", reason="pip install 'weft[dask]'")
    pd = pytest.importorskip("pandas", reason="pandas is missing: pip install 'weft[dask]'")
    frame = pd.DataFrame({"a": [3, 1, 2, 3], "b": range(4)})
    with weft.Client(cluster):
        shuffled = dd.from_pandas(frame, npartitions=3).shuffle("a")
        names = {type(part).__name__ for part in shuffled.optimize().expr.walk()}
        assert "TaskShuffle" in names
        assert sorted(shuffled.compute()["b"]) == [0, 1, 2, 3]


_IMPORTED_LATER = """
import sys, weft
assert "dask" not in sys.modules
with weft.Client(n_workers=1, processes=False):
    assert "dask" not in sys.modules
    import dask, inspect
    assert inspect.getsource(dask.config) and "exec_module" not in vars(dask.config.__loader__)
    print(dask.delayed(lambda: weft.get_worker().name[:6])().compute())
print(dask.config.get("scheduler", None), dask.delayed(lambda: 5)().compute())
with weft.Client(n_workers=1, processes=False):
    print(dask.delayed(lambda: weft.get_worker().name[:6])().compute())
print([finder for finder in sys.meta_path if type(finder).__module__.startswith("weft")])
"""

_NEVER_IMPORTED = """
import sys, weft
n = len(sys.meta_path)
with weft.Client(n_workers=1, processes=False):
    pass
print(len(sys.meta_path) - n)
import dask
print(dask.config.get("scheduler", None))
"""


@pytest.mark.parametrize(
    ("program", "text"),
    [(_IMPORTED_LATER, "local-\nNone 5\nlocal-\n[]\n"), (_NEVER_IMPORTED, "0\nNone\n")],
)
def test_dask_may_be_imported_later(program, text):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (text, "")
