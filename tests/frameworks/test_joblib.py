"""joblib and scikit-learn on a cluster, by the backend "weft"."""

from __future__ import annotations

import operator
import os
import subprocess
import sys

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config

import weft
import weft.joblib

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture
def on_weft(client):
    with parallel_config("weft"):
        yield client


def inner_sum(n):
    return sum(Parallel()(delayed(abs)(-i) for i in range(n))), os.getpid()


def describe(array, row, *, scale):
    return float(array[row].sum()) * scale


def test_batches_run_on_the_workers_in_order(on_weft):
    pids = {*Parallel()(delayed(os.getpid)() for _ in range(20))}
    assert os.getpid() not in pids
    assert Parallel()(delayed(operator.mul)(i, 2) for i in range(1000)) == [*range(0, 2000, 2)]
    assert Parallel()(delayed(abs)(i) for i in ()) == []


@pytest.mark.parametrize(
    ("before", "duration_s", "size"),
    [(1, 0.0, 1), (1, 0.0004, 4), (64, 0.009, 256), (8, 0.03, 16), (8, 0.2, 8), (8, 1.0, 1)],
)
def test_batches_that_take_very_short_grow_fast_and_others_as_joblib_has_it(
    before, duration_s, size
):
    backend = weft.joblib.WeftBackend()
    backend.parallel = Parallel(verbose=0)
    backend._effective_batch_size, backend._smoothed_batch_duration = before, duration_s
    assert backend.compute_batch_size() == size
    assert backend._effective_batch_size == size


@pytest.mark.parametrize("kind", ["generator", "generator_unordered"])
def test_results_are_returned_as_they_come(on_weft, kind):
    results = Parallel(return_as=kind)(delayed(abs)(-i) for i in range(50))
    assert next(results) >= 0
    assert len([*results]) == 49


def test_calls_within_calls_are_run(on_weft):
    found = Parallel()(delayed(inner_sum)(n) for n in range(0, 50, 10))
    assert [total for total, _ in found] == [0, 45, 190, 435, 780]
    assert os.getpid() not in {pid for _, pid in found}


def test_large_arguments_arrive_in_all_calls(on_weft):
    array = np.arange(400_000.0).reshape(4, -1)
    found = Parallel()(delayed(describe)(array, row, scale=2) for row in [0, 1, 2, 3] * 5)
    assert found == [float(array[row].sum()) * 2 for row in [0, 1, 2, 3] * 5]


def test_the_exception_of_a_call_is_raised_and_the_next_call_works(on_weft):
    with pytest.raises(ZeroDivisionError):
        Parallel()(delayed(operator.truediv)(1, i) for i in range(20))
    assert Parallel()(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


def test_the_number_of_jobs_is_that_of_the_cluster_or_lower(on_weft):
    backend = weft.joblib.WeftBackend()
    assert [backend.effective_n_jobs(n) for n in (None, -1, 1, 2, 9)] == [2, 2, 1, 2, 2]
    with pytest.raises(ValueError, match="n_jobs == 0"):
        backend.effective_n_jobs(0)
    backend.terminate()


def test_a_client_and_options_may_be_named(client):
    with parallel_config("weft", client=client, priority=2, retries=1):
        assert Parallel()(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


def test_grid_search_of_scikit_learn_gives_the_same_result(on_weft):
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(200, random_state=0)
    grid = {"C": [0.01, 0.1, 1.0, 10.0]}
    search = GridSearchCV(LogisticRegression(), grid, cv=3, n_jobs=-1).fit(x, y)
    with parallel_config("sequential"):
        alone = GridSearchCV(LogisticRegression(), grid, cv=3).fit(x, y)
    assert search.best_params_ == alone.best_params_
    assert search.cv_results_["mean_test_score"].tolist() == (
        alone.cv_results_["mean_test_score"].tolist()
    )


SCRIPT = """
import joblib, weft.joblib
if __name__ == "__main__":
    with joblib.parallel_config("weft", n_jobs=2):
        print(joblib.Parallel()(joblib.delayed(abs)(-i) for i in range(3)))
"""


def test_without_a_client_a_cluster_is_started_and_ended(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[0, 1, 2]\n", "", 0)


def test_importing_weft_imports_no_framework():
    code = "import sys, weft, weft.client.executor; print({'joblib', 'sklearn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


_NAMED_ALONE = """
import sys
import joblib, weft
assert "weft.joblib" not in sys.modules
with weft.Client(n_workers=1, processes=False):
    assert "weft.joblib" not in sys.modules
    with joblib.parallel_config("weft"):
        print(joblib.Parallel()(joblib.delayed(abs)(-i) for i in range(3)))
    print(joblib.Parallel(backend="weft")(joblib.delayed(abs)(-i) for i in range(3)))
"""


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (_NAMED_ALONE, "[0, 1, 2]\n[0, 1, 2]\n"),
        (
            "import sys, weft\n"
            "with weft.Client(n_workers=1, processes=False): print('joblib' in sys.modules)",
            "False\n",
        ),
    ],
    ids=["joblib was imported", "joblib was not imported"],
)
def test_an_open_client_makes_the_backend_known_to_a_joblib_that_is_there(program, text):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (text, "")
