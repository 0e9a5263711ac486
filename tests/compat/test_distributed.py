"""Names of dask.distributed lead to weft while that is installed, and not afterwards."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import weft
import weft.compat.distributed
from weft.compat.names import NAMES
from weft.compat.standing import of_weft
from weft.protocol.errors import NotSupported, TaskCancelled, WorkerDied

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def everything(distributed):
    """Return all that `install` may change, by place."""
    owners = [module for name, module in sys.modules.items() if name.startswith("distributed")]
    owners += [weft.Client, WorkerDied, TaskCancelled]
    found = {(owner, name): value for owner in owners for name, value in vars(owner).items()}
    found |= {(cls, "__bases__"): cls.__bases__ for cls in (WorkerDied, TaskCancelled)}
    return found


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.name)
def test_a_name_of_the_table_is_one_of_both(distributed, name):
    for module in name.modules:
        assert hasattr(import_module(module), name.name)
    if name.kind != "refused":
        assert callable(of_weft(name.weft))


def test_uninstall_restores_every_attribute(distributed, monkeypatch):
    monkeypatch.delenv("WEFT_AS_DISTRIBUTED", raising=False)
    import_module("dask.distributed")
    before = everything(distributed)
    weft.compat.distributed.install()
    weft.compat.distributed.install()
    assert weft.compat.distributed.is_installed()
    assert os.environ["WEFT_AS_DISTRIBUTED"] == "1"
    changed = [key for key, value in everything(distributed).items() if before.get(key) != value]
    assert len(changed) > len(NAMES)
    weft.compat.distributed.uninstall()
    weft.compat.distributed.uninstall()
    assert not weft.compat.distributed.is_installed()
    assert "WEFT_AS_DISTRIBUTED" not in os.environ
    assert everything(distributed) == before


def test_names_that_were_imported_before_are_changed_and_what_is_kept_ends(
    distributed, client, monkeypatch
):
    from distributed import futures_of

    importing = ModuleType("weft_imports_names_of_dask")
    importing.futures_of = futures_of
    monkeypatch.setitem(sys.modules, importing.__name__, importing)
    future = client.submit(abs, -1)
    weft.compat.distributed.install()
    try:
        kept = importing.futures_of
        assert kept(future) == [future]
    finally:
        weft.compat.distributed.uninstall()
    assert importing.futures_of is futures_of
    assert kept(future) == []


def test_a_class_that_is_kept_is_that_of_dask_again(distributed, client):
    future = client.submit(abs, -1)
    weft.compat.distributed.install()
    try:
        kept = [distributed.Future, distributed.Client]
        assert isinstance(future, kept[0])
    finally:
        weft.compat.distributed.uninstall()
    assert not isinstance(future, kept[0])
    assert not issubclass(weft.Client, kept[1])
    assert issubclass(distributed.Client, kept[1])


def test_modules_of_dask_that_are_imported_meanwhile_have_its_own_names_again(
    distributed, monkeypatch
):
    future, wait = distributed.Future, distributed.wait
    late = ModuleType("distributed.imported_late")
    monkeypatch.setitem(sys.modules, late.__name__, late)
    weft.compat.distributed.install()
    try:
        late.Future, late.wait = distributed.Future, distributed.wait
    finally:
        weft.compat.distributed.uninstall()
    assert (late.Future, late.wait) == (future, wait)


def test_the_current_client_is_that_of_weft(installed, client):
    import dask.distributed

    found = [
        installed.get_client(),
        installed.default_client(),
        installed.Client.current(),
        installed.client.default_client(),
        installed.worker.get_client(),
        dask.distributed.get_client(),
    ]
    assert all(each is client for each in found)
    assert isinstance(client, installed.Client)
    with pytest.raises(ValueError, match="as_current"):
        installed.Client.current(allow_global=False)
    with client.as_current():
        assert installed.Client.current(allow_global=False) is client


def test_futures_and_executors_count_as_those_of_dask(installed, client):
    future = client.submit(abs, -1)
    assert isinstance(future, installed.Future)
    assert not isinstance(1, installed.Future)
    assert issubclass(weft.Future, installed.Future)
    with client.get_executor() as executor:
        assert isinstance(executor, installed.cfexecutor.ClientExecutor)


def test_functions_of_futures_take_futures_of_weft(installed, client):
    import dask

    futures = client.map(abs, [-1, -2])
    assert installed.wait(futures).done == {*futures}
    assert installed.wait({"a": futures[0], "b": [futures[1]]}).done == {*futures}
    assert {f.result() for f in installed.as_completed(futures)} == {1, 2}
    kept = dask.persist(dask.delayed(abs)(-3))[0]
    [inner] = installed.futures_of(kept)
    assert installed.wait(kept).done == {inner}
    installed.fire_and_forget(client.submit(abs, -4))
    installed.progress(futures)


def test_locks_queues_and_the_like_are_on_the_cluster_of_weft(installed, client):
    made = [
        installed.Event("e"),
        installed.Lock("l"),
        installed.MultiLock(["m"]),
        installed.Queue("q"),
        installed.Semaphore(2, "s"),
        installed.Variable("v"),
    ]
    assert [type(each) for each in made] == [
        weft.Event,
        weft.Lock,
        weft.MultiLock,
        weft.Queue,
        weft.Semaphore,
        weft.Variable,
    ]
    made[0].set()
    assert weft.Event("e").is_set()
    assert not isinstance(weft.Event("e"), installed.Lock)


def in_a_task():
    import distributed

    worker = distributed.get_worker()
    with distributed.worker_client() as client:
        n = client.submit(abs, -2).result()
    distributed.secede()
    distributed.rejoin()
    return worker.name, worker.nthreads, n


def test_a_task_finds_its_worker_and_client(installed, client):
    name, nthreads, n = client.submit(in_a_task).result()
    info = client.scheduler_info()["workers"]
    [worker] = info.values()
    assert (name, nthreads, n) == (worker["name"], worker["nthreads"], 2)
    with pytest.raises(ValueError, match="only in a task"):
        installed.get_worker()


def test_collections_are_computed_by_the_name_of_the_scheduler(installed, client):
    import dask

    with dask.config.set(scheduler="distributed"):
        assert dask.delayed(in_a_task)().compute()[2] == 2
    assert dask.compute(dask.delayed(abs)(-3), scheduler="dask.distributed") == (3,)


async def total(client, *futures):
    found = [await future.result() for future in futures]
    who_has = await client.scheduler.who_has([futures[0].key])
    info = await client.scheduler.identity()
    return sum(found), [*who_has], len(info["workers"])


async def test_sync_runs_coroutines_in_which_all_is_awaited_also_in_a_running_loop(
    installed, client
):
    futures = client.map(abs, [-1, -2])
    assert client.sync(total, client, *futures) == (3, [futures[0].key], 1)
    assert futures[0].result() == 1

    async def fail():
        await client.submit(divmod, 1, 0)

    with pytest.raises(ZeroDivisionError):
        client.sync(fail)


def test_sync_blocks_a_thread_that_runs_no_loop(installed, client):
    futures = client.map(abs, [-1, -2])
    assert client.sync(total, client, *futures)[0] == 3
    assert client.sync(lambda: 5) == 5


async def five():
    return 5


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.run is all that Python has")
def test_sync_leaves_the_event_loop_of_the_thread(installed, client):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert client.sync(five) == 5
        assert asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_functions_for_the_scheduler_run_here_whether_they_are_awaited_or_not(installed, client):
    assert client.run_on_scheduler(five) == 5
    assert client.run_on_scheduler(max, 1, 2) == 2  # it has no signature
    assert client.sync(client.run_on_scheduler, five) == 5


def test_another_client_is_made_for_a_cluster_of_weft(installed, client):
    with installed.Client(client.cluster, set_as_default=False) as other:
        assert type(other) is weft.Client
        assert other.submit(abs, -1).result() == 1


def test_exceptions_are_caught_by_their_names(installed):
    with pytest.raises(installed.KilledWorker) as caught:
        raise WorkerDied("a-task", 3, "a-worker")
    error = caught.value
    assert (error.task, error.last_worker, error.allowed_failures) == ("a-task", "a-worker", 2)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert pickle.loads(pickle.dumps(TaskCancelled("a-task", "no"))).reason == "no"
    with pytest.raises(installed.client.FutureCancelledError, match="was cancelled"):
        raise TaskCancelled("a-task")
    with pytest.raises(installed.CancelledError):
        raise TaskCancelled("a-task")


def test_a_name_that_weft_lacks_is_refused_with_the_reason(installed, client):
    with pytest.raises(NotSupported, match=r"distributed\.get_task_metadata: use"):
        installed.get_task_metadata()
    with pytest.raises(NotSupported, match="no dask_scheduler"):
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler)
    with pytest.raises(AttributeError, match=r"client\.scheduler\.restart"):
        client.scheduler.restart()

    class Derived(installed.Client):
        pass

    with pytest.raises(NotSupported, match=r"Derived.* derived from distributed\.Client"):
        Derived(client.cluster)


def test_functions_are_pickled_by_their_names(installed, client):
    for function in (installed.wait, installed.get_client, installed.progress, installed.Lock):
        assert pickle.loads(pickle.dumps(function)) is function


def run(program, **variables):
    environ = {k: v for k, v in os.environ.items() if k != "WEFT_AS_DISTRIBUTED"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


_MIXED = """
import distributed, weft, weft.compat.distributed
weft.compat.distributed.install()

def name():
    return distributed.get_worker().name, type(distributed.get_client()).__module__.split(".")[0]

theirs = distributed.Client(processes=False, n_workers=1, dashboard_address=":0")
with weft.Client(processes=False, n_workers=1) as ours:
    assert type(theirs).__module__ == "distributed.client"
    assert isinstance(theirs, distributed.Client) and isinstance(ours, distributed.Client)
    a, b = theirs.submit(name), ours.submit(name)
    assert a.result() == (0, "distributed"), a.result()
    assert b.result()[1] == "weft", b.result()
    assert distributed.wait([a]).done == {a} and distributed.wait([b]).done == {b}
    assert [*distributed.as_completed([a])] == [a]
    assert distributed.get_client() is ours
    with theirs.as_current():
        assert distributed.get_client() is theirs
        with ours.as_current():
            assert distributed.get_client() is ours
    queue = distributed.Queue("x", client=theirs)
    assert type(queue).__module__ == "distributed.queues"
    with distributed.Lock("x"), theirs.as_current(), distributed.Lock("x"):
        pass
    import dask
    kept = theirs.persist(dask.delayed(abs)(-1))
    assert distributed.futures_of(kept)[0].client is theirs
    distributed.wait(kept)
    assert theirs.compute(dask.delayed(abs)(-2)).result() == 2
assert distributed.get_client() is theirs
assert dask.delayed(name)().compute() == (0, "distributed")
with theirs, weft.Client(processes=False, n_workers=1) as ours:
    assert distributed.get_client() is theirs
    with ours.as_current():
        assert distributed.get_client() is ours
print("ok")
"""


def test_programs_of_real_dask_clients_go_on_beside_weft(distributed):
    done = run(_MIXED)
    assert done.stdout == "ok\n", done.stderr


_BY_VARIABLE = """
import sys
import weft
assert "distributed" not in sys.modules
import distributed
with weft.Client(processes=False, n_workers=1) as client:
    assert distributed.get_client() is client
print("ok")
"""


def test_the_variable_is_read_by_the_import_of_weft(distributed):
    done = run(_BY_VARIABLE, WEFT_AS_DISTRIBUTED="1")
    assert (done.stdout, done.stderr) == ("ok\n", "")
    assert "get_client" in run(_BY_VARIABLE, WEFT_AS_DISTRIBUTED="0").stderr
    wrong = run("import weft", WEFT_AS_DISTRIBUTED="perhaps")
    assert "WEFT_AS_DISTRIBUTED" in wrong.stderr.splitlines()[-1]


_NOTED = """
import distributed, weft
before = distributed.get_client, distributed.client.default_client
with weft.Client(processes=False, n_workers=1):
    for ask in (distributed.default_client, distributed.get_client, distributed.Client.current):
        try:
            ask()
        except ValueError as error:
            print("install()" in "".join(error.__notes__))
assert before == (distributed.get_client, distributed.client.default_client)
try:
    distributed.get_client()
except ValueError as error:
    print(hasattr(error, "__notes__"))
"""


def test_without_it_the_errors_of_dask_name_it_while_a_client_of_weft_is_open(distributed):
    done = run(_NOTED)
    assert (done.stdout, done.stderr) == ("True\nTrue\nTrue\nFalse\n", "")


def test_nothing_can_be_installed_without_dask_distributed(monkeypatch):
    monkeypatch.setattr("weft.compat.distributed.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "distributed", raising=False)
    with pytest.raises(ImportError, match="distributed is not installed"):
        weft.compat.distributed.install()
    assert not weft.compat.distributed.is_installed()
