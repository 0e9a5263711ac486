"""Every public call has an asynchronous twin: the same method, which is awaited.

Each public name of the classes that users hold is in one of two tables: `WAITS`, with a call of it,
or `AT_ONCE`. The program of `WAITS` runs twice, on a blocking client and on an asynchronous one: an
awaitable must come where the other blocks, and lead to a result of the same kind. A name that is in
neither table fails the first test.
"""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace

import pytest

import weft
from weft.client.coordination.concurrency_limits import Limit
from weft.client.dask import absent_names
from weft.client.waiting import DoneAndNotDone

#: {class: names of what returns at once, for both kinds of clients}
AT_ONCE = {
    weft.Client: {
        "as_current",
        "asynchronous",
        "cluster",
        "current",
        "dashboard",
        "dashboard_link",
        "datasets",  # a mapping for blocking clients
        "futures",
        "get_executor",  # for blocking clients; its futures are awaited by asyncio.wrap_future
        "loop",
        "map",
        "persist",
        "register_scheduler_plugin",  # refuses
        "run_on_scheduler",  # refuses
        "scheduler_address",
        "submit",
        "submit_array",
        "submit_gang",
        "unsubscribe_topic",
    },
    weft.Future: {
        "add_done_callback",
        "before_leaving",
        "cancelled",
        "client",
        "done",
        "executor",
        "key",
        "release",
        "status",
        "substitute",  # called by dask
        "type",
    },
    weft.RecurringFuture: {
        *dir(weft.Future),  # which are in this table themselves
        "substitute",  # called by dask, with which it comes
        "runs",  # iterated by `for` or `async for`
    },
    weft.LocalCluster: {
        "adapt",
        "dashboard_link",
        "failure",
        "get_client",
        "no_pages_text",
        "shares_installation",
    },
    weft.Actor: {"key"},  # its methods give an ActorFuture, its attributes are awaited
    weft.ActorFuture: {
        "actor",
        "actor_key",
        "add_done_callback",
        "arguments",
        "blob",
        "cancel",
        "done",
        "engine",
        "failure",
        "finish",
        "forget",
        "id",
        "is_done",
        "kept",
        "key",
        "connection",
        "name",
        "nbytes",
        "notify",
        "request",
        "status",
        "value",
    },
    weft.Lock: {"client", "id"},
    Limit: {"client"},
    weft.MultiLock: {"client", "locked"},  # by this object
    weft.Semaphore: {"client"},
    weft.CountDown: {"client", "n"},
    weft.Event: {"client"},
    weft.Queue: {"client"},
    weft.Variable: {"client"},
    weft.as_completed: {
        "add",
        "batches",  # itself iterated by `for` or `async for`
        "clear",
        "count",
        "has_ready",
        "is_empty",
        "update",
    },
}
#: Names of the module `weft` that are no exceptions and no classes of the table above.
AT_ONCE_OF_MODULE = {
    "Awaited",  # for type checkers
    "Blocking",
    "Command",  # the function of a task
    "CommandResult",
    "CallOutput",
    "OutputFile",
    "Category",
    "Gang",
    "Retries",
    "Executor",  # of the standard library's kind: its futures are awaited by asyncio.wrap_future
    "SynchronousExecutor",
    "ThreadPool",
    "WorkerPlugin",  # plugins are objects that are registered
    "SupervisorPlugin",
    "InstallPlugin",
    "Environ",
    "PipInstall",
    "UploadDirectory",
    "UploadFile",
    "__version__",
    "default_client",
    "fire_and_forget",
    "futures_of",
    "get",  # runs a graph in this process
    "limit",  # an object like a lock
    "get_client",
    "get_current_task",
    "get_gang",
    "get_scratch_directory",
    "get_worker",
    "multiprocessing",
    "print",
    "rejoin",  # of a thread
    "secede",
    "get_task_stream",  # `with` or `async with`
    "performance_report",  # the same
    "span",  # a context manager of a thread or an asynchronous task
    "threaded",
    "timeline",  # its `record` is `with` or `async with`
    "warn",
    "worker_client",
}

PLUGIN = weft.Environ({})


def on_each_worker():
    """Be called on workers."""


#: [(class or module, name, call)], in this order; a call gets what `things_for` returns.
WAITS = [
    (weft.Client, "cancel", lambda on: on.client.cancel(on.client.submit(abs, -9))),
    (weft.Client, "compute", lambda on: on.client.compute(on.delayed, sync=True)),
    (weft.Client, "gather", lambda on: on.client.gather([on.future])),
    (weft.Client, "get", lambda on: on.client.get({"x": (abs, -3)}, "x")),
    (weft.Client, "wait_recorded", lambda on: on.client.wait_recorded()),
    (weft.Client, "jobs", lambda on: on.client.jobs(limit=1)),
    (weft.Client, "job_counts", lambda on: on.client.job_counts()),
    (weft.Client, "job", lambda on: on.client.job(on.job)),
    (weft.Client, "job_result", lambda on: on.client.job_result(on.job)),
    (weft.Client, "job_output", lambda on: on.client.job_output(on.job)),
    (weft.Client, "cancel_job", lambda on: on.client.cancel_job(on.late_job)),
    (weft.Client, "retry_job", lambda on: on.client.retry_job(on.late_job)),
    (weft.Client, "forget_job", lambda on: on.client.forget_job(on.job)),
    (weft.Client, "pause_queue", lambda on: on.client.pause_queue("twins")),
    (weft.Client, "paused_queues", lambda on: on.client.paused_queues()),
    (weft.Client, "resume_queue", lambda on: on.client.resume_queue("twins")),
    (weft.Client, "block_workers", lambda on: on.client.block_workers("twins", "1 h")),
    (weft.Client, "blocked_workers", lambda on: on.client.blocked_workers()),
    (weft.Client, "unblock_workers", lambda on: on.client.unblock_workers("twins")),
    (weft.RecurringFuture, "next_time", lambda on: on.recurring.next_time()),
    (weft.RecurringFuture, "last", lambda on: on.recurring.last()),
    (weft.Client, "publish_dataset", lambda on: on.client.publish_dataset({"t": 5})),
    (weft.Client, "list_datasets", lambda on: on.client.list_datasets()),
    (weft.Client, "get_dataset", lambda on: on.client.get_dataset("t")),
    (weft.Client, "unpublish_dataset", lambda on: on.client.unpublish_dataset("t")),
    (weft.Client, "set_metadata", lambda on: on.client.set_metadata("t", 1)),
    (weft.Client, "get_metadata", lambda on: on.client.get_metadata("t")),
    (weft.Client, "delete_metadata", lambda on: on.client.delete_metadata("t")),
    (weft.Client, "forward_logging", lambda on: on.client.forward_logging("twins")),
    (weft.Client, "unforward_logging", lambda on: on.client.unforward_logging("twins")),
    (weft.Client, "restart", lambda on: on.client.restart()),
    (weft.Client, "restart_workers", lambda on: on.client.restart_workers()),
    (weft.Client, "log_event", lambda on: on.client.log_event("twins", 1)),
    (weft.Client, "get_events", lambda on: on.client.get_events("twins")),
    (weft.Client, "subscribe_topic", lambda on: on.client.subscribe_topic("twins", print)),
    (weft.Client, "reproduce", lambda on: on.client.reproduce(on.future)),
    (weft.Client, "recreate_error_locally", lambda on: on.client.recreate_error_locally(on.future)),
    (weft.Client, "recreate_task_locally", lambda on: on.client.recreate_task_locally(on.future)),
    (weft.Future, "reproduce", lambda on: on.future.reproduce()),
    (weft.Client, "scatter", lambda on: on.client.scatter([1])),
    (weft.Client, "rebalance", lambda on: on.client.rebalance()),
    (weft.Client, "replicate", lambda on: on.client.replicate(on.future, n=2)),
    (weft.Client, "wait_for_workers", lambda on: on.client.wait_for_workers(1, timeout=20)),
    (weft.Client, "scheduler_info", lambda on: on.client.scheduler_info()),
    (weft.Client, "nthreads", lambda on: on.client.nthreads()),
    (weft.Client, "ncores", lambda on: on.client.ncores()),
    (weft.Client, "get_versions", lambda on: on.client.get_versions()),
    (weft.Client, "who_has", lambda on: on.client.who_has([on.future])),
    (weft.Client, "has_what", lambda on: on.client.has_what()),
    (weft.Client, "processing", lambda on: on.client.processing()),
    (weft.Client, "nbytes", lambda on: on.client.nbytes([on.future])),
    (weft.Client, "story", lambda on: on.client.story(on.future)),
    (weft.Client, "call_stack", lambda on: on.client.call_stack()),
    (weft.Client, "profile", lambda on: on.client.profile(seconds=0.05)),
    (weft.Client, "get_scheduler_logs", lambda on: on.client.get_scheduler_logs()),
    (weft.Client, "get_worker_logs", lambda on: on.client.get_worker_logs()),
    (weft.Client, "run", lambda on: on.client.run(abs, -1)),
    (weft.Client, "register_plugin", lambda on: on.client.register_plugin(PLUGIN)),
    (weft.Client, "unregister_plugin", lambda on: on.client.unregister_plugin(PLUGIN.name)),
    (weft.Client, "register_worker_plugin", lambda on: on.client.register_worker_plugin(PLUGIN)),
    (
        weft.Client,
        "unregister_worker_plugin",
        lambda on: on.client.unregister_worker_plugin(PLUGIN.name),
    ),
    (
        weft.Client,
        "register_worker_callbacks",
        lambda on: on.client.register_worker_callbacks(on_each_worker),
    ),
    (weft.Client, "upload_file", lambda on: on.client.upload_file(__file__, load=False)),
    (weft.Client, "retire_workers", lambda on: on.client.retire_workers(n=0)),
    (weft.Client, "scale", lambda on: on.client.scale(1)),
    (weft.Client, "retry", lambda on: on.client.retry([on.future])),
    (weft.Client, "get_task_stream", lambda on: on.client.get_task_stream(count=0)),
    (weft.Client, "dump_cluster_state", lambda on: on.client.dump_cluster_state(on.file)),
    (weft.Client, "explain", lambda on: on.client.explain(on.future)),
    (weft.Future, "explain", lambda on: on.future.explain()),
    (weft.Client, "reproduce", lambda on: on.client.reproduce(on.future)),
    (weft.Client, "recreate_error_locally", lambda on: on.client.recreate_error_locally(on.future)),
    (weft.Client, "recreate_task_locally", lambda on: on.client.recreate_task_locally(on.future)),
    (weft.Future, "reproduce", lambda on: on.future.reproduce()),
    (weft.Future, "retry", lambda on: on.future.retry()),
    (weft.Future, "result", lambda on: on.future.result()),
    (weft.Future, "exception", lambda on: on.future.exception(timeout=20)),
    (weft.Future, "traceback", lambda on: on.future.traceback()),
    (weft.Future, "output", lambda on: on.client.submit(print, output="keep").output()),
    (weft.Future, "attempts", lambda on: on.future.attempts()),
    (weft.Future, "measured", lambda on: on.future.measured()),
    (weft.Future, "cancel", lambda on: on.client.submit(abs, -8).cancel()),
    (weft.LocalCluster, "scheduler_info", lambda on: on.cluster.scheduler_info),
    (weft.LocalCluster, "workers", lambda on: on.cluster.workers),
    (weft.LocalCluster, "get_logs", lambda on: on.cluster.get_logs()),
    (weft.LocalCluster, "wait_for_workers", lambda on: on.cluster.wait_for_workers(1, 20)),
    (weft.LocalCluster, "scale", lambda on: on.cluster.scale(1)),
    (weft.Actor, "attribute", lambda on: on.actor.n),
    (weft.ActorFuture, "result", lambda on: on.actor.add(2).result(timeout=20)),
    (weft.ActorFuture, "exception", lambda on: on.actor.add(3).exception(timeout=20)),
    (weft.Lock, "acquire", lambda on: on.lock.acquire(timeout=20)),
    (weft.Lock, "locked", lambda on: on.lock.locked()),
    (weft.Lock, "release", lambda on: on.lock.release()),
    (Limit, "acquire", lambda on: on.limit.acquire(timeout=20)),
    (Limit, "release", lambda on: on.limit.release()),
    (weft.MultiLock, "acquire", lambda on: on.locks.acquire(timeout=20)),
    (weft.MultiLock, "release", lambda on: on.locks.release()),
    (weft.Semaphore, "register", lambda on: on.semaphore.register()),
    (weft.Semaphore, "acquire", lambda on: on.semaphore.acquire(timeout=20)),
    (weft.Semaphore, "get_value", lambda on: on.semaphore.get_value()),
    (weft.Semaphore, "release", lambda on: on.semaphore.release()),
    (weft.Semaphore, "close", lambda on: on.semaphore.close()),
    (weft.CountDown, "count_down", lambda on: on.latch.count_down()),
    (weft.CountDown, "wait", lambda on: on.latch.wait(timeout=20)),
    (weft.CountDown, "count", lambda on: on.latch.count()),
    (weft.Event, "set", lambda on: on.event.set()),
    (weft.Event, "wait", lambda on: on.event.wait(timeout=20)),
    (weft.Event, "is_set", lambda on: on.event.is_set()),
    (weft.Event, "clear", lambda on: on.event.clear()),
    (weft.Queue, "put", lambda on: on.queue.put(1)),
    (weft.Queue, "qsize", lambda on: on.queue.qsize()),
    (weft.Queue, "get", lambda on: on.queue.get(timeout=20)),
    (weft.Queue, "close", lambda on: on.queue.close()),
    (weft.Variable, "set", lambda on: on.variable.set(1)),
    (weft.Variable, "get", lambda on: on.variable.get(timeout=20)),
    (weft.Variable, "delete", lambda on: on.variable.delete()),
    (weft.as_completed, "next_batch", lambda on: weft.as_completed([on.future]).next_batch()),
    (weft, "wait", lambda on: weft.wait([on.future], timeout=20)),
    (weft, "wait", lambda on: weft.wait([])),
    (weft, "progress", lambda on: weft.progress([on.future], blocking=True)),
    # The end:
    (weft.Client, "close", lambda on: on.second_client.close()),
    (weft.Client, "shutdown", lambda on: on.client.shutdown()),
    (weft.LocalCluster, "close", lambda on: on.cluster.close()),
]
#: Names that only give advice.
ABSENT = {
    cls: absent_names.ABSENT[cls.__name__] for cls in (weft.Client, weft.Future, weft.LocalCluster)
}


def is_exception(thing):
    return isinstance(thing, type) and issubclass(thing, BaseException)


def public_names(cls):
    names = {name for name in dir(cls) if not name.startswith("_")}
    return names - ABSENT.get(cls, {}).keys()


@pytest.mark.parametrize("cls", AT_ONCE, ids=lambda cls: cls.__name__)
def test_each_public_method_is_known_to_wait_or_to_return_at_once(cls):
    waits = {name for owner, name, _ in WAITS if owner is cls}
    assert not waits & AT_ONCE[cls]
    unknown = public_names(cls) - waits - AT_ONCE[cls]
    assert not unknown, f"add a call of {sorted(unknown)} to WAITS, or the name to AT_ONCE"
    assert not {name for name in public_names(cls) if name.endswith("_async")}


def test_each_public_name_of_the_module_is_known_to_wait_or_to_return_at_once():
    exceptions = {name for name in weft.__all__ if is_exception(getattr(weft, name))}
    names = {*weft.__all__} - exceptions
    waits = {name for owner, name, _ in WAITS if owner is weft}
    classes = {cls.__name__ for cls in AT_ONCE}
    unknown = names - waits - classes - AT_ONCE_OF_MODULE
    assert not unknown, f"add a call of {sorted(unknown)} to WAITS, or to AT_ONCE_OF_MODULE"


class Counter:
    """An actor."""

    def __init__(self):
        self.n = 1

    def add(self, n):
        self.n += n
        return self.n


def local_cluster(file, **options):
    """A cluster of one thread, with a journal."""
    return weft.LocalCluster(1, 1, processes=False, journal=f"{file}.sqlite", **options)


def things_for(cluster, client, second_client, file):
    dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
    return SimpleNamespace(
        cluster=cluster,
        client=client,
        second_client=second_client,
        future=client.submit(abs, -7),
        job=client.submit(abs, -8, detached=True, output="keep").key,
        late_job=client.submit(abs, -9, detached=True, start_after="1 h").key,
        recurring=client.submit(abs, -6, cron="@yearly"),
        file=file,
        delayed=dask.delayed(abs)(-5),
        lock=weft.Lock("twins", client=client),
        limit=weft.limit("twins", 2, client=client),
        locks=weft.MultiLock(["twins-1", "twins-2"], client=client),
        semaphore=weft.Semaphore(2, "twins", client=client),
        latch=weft.CountDown("twins", client=client),
        event=weft.Event("twins", client=client),
        queue=weft.Queue("twins", client=client),
        variable=weft.Variable("twins", client=client),
    )


def kind_of(value):
    """Return what must be alike in the results of both twins, whose workers and times differ."""
    if isinstance(value, DoneAndNotDone):
        return len(value.done), len(value.not_done)
    if isinstance(value, dict):
        return "a dict", len(value)
    if isinstance(value, (list, tuple, set)):
        return type(value)
    return value if isinstance(value, (int, str)) else type(value)


def results_of_blocking_calls(file):
    with (
        local_cluster(file) as cluster,
        weft.Client(cluster) as client,
    ):
        things = things_for(cluster, client, weft.Client(cluster, set_as_default=False), file)
        things.actor = client.submit(Counter, actor=True).result()
        for _, name, call in WAITS:
            try:
                value = call(things)
            except weft.NotSupported as error:  # without processes
                value = type(error).__name__
            is_of_nothing = isinstance(value, DoneAndNotDone) and not any(value)
            assert is_of_nothing or not inspect.isawaitable(value), name
            yield name, kind_of(value)


async def results_of_awaited_calls(file):
    options = {"asynchronous": True}
    async with (
        local_cluster(file, **options) as cluster,
        weft.Client(cluster, **options) as client,
    ):
        second = await weft.Client(cluster, set_as_default=False, **options)
        things = things_for(cluster, client, second, file)
        things.actor = await client.submit(Counter, actor=True)
        found = []
        for _, name, call in WAITS:
            awaitable = call(things)
            assert inspect.isawaitable(awaitable), name
            try:
                value = await awaitable
            except weft.NotSupported as error:
                value = type(error).__name__
            found.append((name, kind_of(value)))
        await asyncio.get_running_loop().shutdown_default_executor()  # of `reproduce`
        return found


#: What the task of `results_in_a_coroutine_task` finds, in this process.
here = SimpleNamespace()


def is_for_tasks(owner, name):
    """Return whether a task can make a call without ending its own cluster, and with any result."""
    return owner is not weft.LocalCluster and name not in ("close", "shutdown", "call_stack")


async def await_all():
    """Make the calls of clients, as a task that is a coroutine function."""
    assert weft.get_client() is here.client
    things = things_for(here.cluster, here.client, here.second_client, here.file)
    things.actor = await here.client.submit(Counter, actor=True)
    found = []
    for owner, name, call in WAITS:
        if not is_for_tasks(owner, name):
            continue
        awaitable = call(things)
        assert inspect.isawaitable(awaitable), name
        try:
            value = await awaitable
        except weft.NotSupported as error:
            value = type(error).__name__
        found.append((name, kind_of(value)))
    return found


@pytest.fixture(scope="module")
def results_of_blocking(tmp_path_factory):
    return [*results_of_blocking_calls(tmp_path_factory.getbasetemp() / "dump")]


async def test_awaited_calls_have_the_results_of_blocking_ones(
    results_of_blocking, tmp_path_factory
):
    file = tmp_path_factory.getbasetemp() / "dump"
    assert await results_of_awaited_calls(file) == results_of_blocking


def test_in_tasks_that_are_coroutines_the_calls_of_any_client_are_awaited(
    results_of_blocking, tmp_path_factory
):
    here.file = file = tmp_path_factory.getbasetemp() / "dump"
    with (
        local_cluster(file) as here.cluster,
        weft.Client(here.cluster) as here.client,
        weft.Client(here.cluster, set_as_default=False) as here.second_client,
    ):
        found = here.client.submit(await_all).result(60)
    assert len(found) > 50
    assert found == [
        result
        for (owner, name, _), result in zip(WAITS, results_of_blocking, strict=True)
        if is_for_tasks(owner, name)
    ]
