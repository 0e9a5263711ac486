"""Libraries that ask dask.distributed by themselves, on a cluster of weft."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft
import weft.compat.distributed

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def required(name):
    return pytest.importorskip(name, reason=f"{name} is missing: pip install 'weft[compat-test]'")


@pytest.fixture(scope="module")
def client():
    """Start a cluster whose workers find weft in `distributed`, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        required("distributed")
    weft.compat.distributed.install()
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client
    weft.compat.distributed.uninstall()


def peak(x):
    return x + 0.01 / (0.0001 + x**2)


def digits():
    from sklearn.datasets import make_classification

    return make_classification(100, random_state=0)


def test_joblib_and_scikit_learn_take_the_backend_of_the_name_dask(client):
    import joblib
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    import weft.joblib

    with joblib.parallel_config("dask", scatter=[1], wait_for_workers_timeout=1):
        parallel = joblib.Parallel()
        assert parallel(joblib.delayed(abs)(-i) for i in range(20)) == [*range(20)]
        assert isinstance(parallel._backend, weft.joblib.WeftBackend)
        search = GridSearchCV(SVC(), {"C": [0.1, 1]}, cv=2, n_jobs=-1).fit(*digits())
    assert search.best_params_["C"] in {0.1, 1}


def test_xarray_computes_by_the_name_of_the_scheduler(client):
    xarray = pytest.importorskip("xarray", reason="xarray is missing: pip install 'weft[test]'")
    array = xarray.DataArray(np.arange(12.0).reshape(3, 4), dims=("x", "y")).chunk(x=1)
    assert array.mean("x").compute(scheduler="distributed").values.tolist() == [4, 5, 6, 7]
    persisted = array.persist()
    assert client.futures_of(persisted.data)
    assert float(persisted.sum()) == 66


def test_adaptive_finds_the_cores_of_a_client_and_of_its_executor(client):
    adaptive = required("adaptive")
    with client.get_executor() as executor:
        for given in (client, executor):
            learner = adaptive.Learner1D(peak, bounds=(-1, 1))
            adaptive.BlockingRunner(learner, npoints_goal=20, executor=given)
            assert learner.npoints >= 20


@pytest.mark.filterwarnings("ignore")
def test_grid_search_of_dask_ml(client):
    required("dask_ml")
    from dask_ml.model_selection import GridSearchCV
    from sklearn.svm import SVC

    grid = {"C": [0.1, 1, 10], "kernel": ["linear", "rbf"]}
    search = GridSearchCV(SVC(random_state=0), grid, cv=3).fit(*digits())
    assert len(search.cv_results_["params"]) == 6
    assert search.best_score_ > 0.8


@pytest.mark.filterwarnings("ignore")
def test_hyperband_of_dask_ml(client):
    required("dask_ml")
    from dask_ml.datasets import make_classification
    from dask_ml.model_selection import HyperbandSearchCV
    from sklearn.linear_model import SGDClassifier

    x, y = make_classification(n_samples=200, chunks=50, random_state=0)
    space = {"alpha": np.logspace(-4, 0, num=100)}
    search = HyperbandSearchCV(SGDClassifier(), space, max_iter=3, random_state=0)
    search.fit(x, y, classes=[0, 1])
    assert 0.4 < search.best_score_ <= 1
    assert search.metadata_["n_models"] == len(search.model_history_)


@pytest.mark.filterwarnings("ignore")
def test_xgboost_trains_on_all_workers_and_predicts(client):
    required("xgboost")
    import dask.array as da
    from xgboost import dask as dxgb
    from xgboost.collective import Config

    x = da.random.default_rng(1).random((400, 5), chunks=(100, 5))
    y = (x.sum(axis=1) > 2.5).astype(int)
    data = dxgb.DaskDMatrix(client, x, y)
    trained = dxgb.train(
        client,
        {"tree_method": "hist", "objective": "binary:logistic", "verbosity": 0},
        data,
        num_boost_round=4,
        evals=[(data, "train")],
        verbose_eval=False,
        coll_cfg=Config(tracker_host_ip="127.0.0.1"),
    )
    losses = trained["history"]["train"]["logloss"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    found = (dxgb.predict(client, trained, x) > 0.5) == y
    assert float(found.mean().compute()) > 0.8


def count(n):
    return {"n": n}


@pytest.mark.filterwarnings("ignore")
def test_coffea_shows_its_progress(client, capsys):
    required("coffea")
    from coffea.processor import DaskExecutor

    executor = DaskExecutor(client=client, status=True, retries=0)
    assert executor([1, 2, 3, 4, 5], count, None) == ({"n": 15}, 0)
    assert "done" in capsys.readouterr().err


def test_another_client_is_made_for_the_address_of_an_open_one(client):
    import distributed

    with distributed.Client(client.scheduler_address, set_as_default=False) as other:
        assert type(other) is weft.Client
        assert other.submit(abs, -1).result() == 1


def sum_by_tasks(n):
    import distributed

    client = distributed.get_client()

    async def total():
        return sum(await client.gather(client.map(abs, range(-n, 0))))

    return client.sync(total)


def test_a_task_runs_a_coroutine_that_waits_for_its_tasks(client):
    futures = client.map(sum_by_tasks, [1, 2, 3], pure=False)
    assert client.gather(futures) == [1, 3, 6]
