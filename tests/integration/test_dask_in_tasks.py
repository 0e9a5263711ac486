"""Tasks on worker processes that compute dask's collections: on the cluster, to any depth."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import weft

dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        yield client


def count_down(n):
    return dask.delayed(count_down)(n - 1).compute() + 1 if n else 0


def test_collections_within_collections_thirty_deep_end_on_one_thread(client):
    assert dask.delayed(count_down)(30).compute() == 30


def fibonacci(n):
    if n < 2:
        return n
    return sum(dask.compute(dask.delayed(fibonacci)(n - 1), dask.delayed(fibonacci)(n - 2)))


def test_the_recursion_of_dask_s_documentation_ends(client):
    assert client.submit(fibonacci, 6).result(60) == 8


def key_here():
    """Return the key of the task, or "" in a thread of dask."""
    try:
        return str(weft.get_current_task())
    except RuntimeError:
        return ""


def keys_of_inner_calls():
    here = dask.delayed(key_here)
    with dask.config.set(scheduler="threads"):
        configured = here().compute()
    named = here().compute(scheduler="threads")
    return here(dask_key_name="inner").compute(), configured, named, here().persist().compute()


def test_a_scheduler_that_the_task_names_wins(client):
    on_cluster, configured, named, persisted = client.submit(keys_of_inner_calls).result(60)
    assert on_cluster.startswith("inner")
    assert (configured, named) == ("", "")
    assert persisted.startswith("key_here")


def compute_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(dask.delayed(key_here)().compute()))
    thread.start()
    thread.join()
    return found


def test_code_outside_of_tasks_computes_by_itself(client):
    """A thread that a task has started, and a function of `client.run`, may submit nothing."""
    assert client.submit(compute_in_a_thread).result(60) == [""]
    assert [*client.run(lambda: dask.delayed(key_here)().compute()).values()] == [""]


async def sum_in_a_coroutine(n):
    array = pytest.importorskip(
        "dask.array", reason="dask.array is missing: pip install 'weft[dask]'"
    )
    return int(array.arange(n, chunks=10).sum().compute()), dask.delayed(key_here)().compute()


def test_a_coroutine_computes_on_the_cluster_as_well(client):
    total, key = client.submit(sum_in_a_coroutine, 100).result(60)
    assert total == 4950
    assert key.startswith("key_here")


def persist_blocks():
    array = pytest.importorskip(
        "dask.array", reason="dask.array is missing: pip install 'weft[dask]'"
    )
    return array.arange(30, chunks=10).persist()


def total_of(blocks):
    return int(blocks.sum().compute())


def test_parts_that_a_task_keeps_are_read_by_other_tasks(client):
    pytest.importorskip("dask.array", reason="dask.array is missing: pip install 'weft[dask]'")
    blocks = client.submit(persist_blocks).result(60)
    assert client.submit(total_of, blocks).result(60) == 435
    assert len(weft.futures_of(blocks)) == 3


ITSELF = ("itself-0123456789abcdef0123456789", 1)


def compute_itself():
    return dask.delayed(compute_itself)(dask_key_name=ITSELF).compute()


def test_a_task_that_computes_its_own_key_is_refused(client):
    with pytest.raises(weft.WaitingCycle, match="would wait for itself"):
        dask.delayed(compute_itself)(dask_key_name=ITSELF).compute()


def fail_twice(path):
    with open(path, "a+") as file:
        file.write("x")
        file.seek(0)
        if len(file.read()) < 3:
            raise OSError("on purpose")
    return "third attempt"


def compute_with_retries(path):
    return dask.delayed(fail_twice)(path).compute(retries=2)


def test_options_of_compute_hold_in_tasks(client, tmp_path):
    assert client.submit(compute_with_retries, str(tmp_path / "n")).result(60) == "third attempt"


_PROGRAM = """
import sys, weft

def loaded():
    return [name for name in ("dask", "weft.client.client") if name in sys.modules]

def compute():
    import dask
    return dask.delayed(weft.get_current_task)(dask_key_name="inner").compute()[:5]

def configured():
    import dask
    try:
        return dask.delayed(weft.get_current_task)().compute()
    except RuntimeError:
        return "by itself"

if __name__ == "__main__":
    with weft.Client(n_workers=1) as client:
        for call in (loaded, abs, loaded, {call}):
            print(client.submit(call, *[-1] * (call is abs)).result())
"""


@pytest.mark.parametrize(
    ("call", "environment", "text"),
    [("compute", {}, "inner"), ("configured", {"DASK_SCHEDULER": "threads"}, "by itself")],
)
def test_a_worker_loads_no_client_for_tasks_without_dask(
    call, environment, text, tmp_path, monkeypatch
):
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM.replace("{call}", call))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (f"[]\n1\n[]\n{text}\n", "")
