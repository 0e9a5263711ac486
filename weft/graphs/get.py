"""`weft.get` and `weft.threaded.get`: a graph, keys, and where to run it.

These, and `weft.multiprocessing.get`, read the same graphs, take the same options, and differ in
the driver that is used when no executor is given. They can be used wherever dask takes a scheduler:
`dask.config.set(scheduler=get)`, `x.compute(scheduler=get)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from ..protocol.host.collector import paused_collector
from ..protocol.host.machine import n_cores
from ..protocol.host.stderr_logging import mark_warnings
from .blocks.core.tasks import BlockTask
from .core.reading import FindOutside, Graph, read_graph
from .core.tasks import GraphTask, Literal
from .dask_graphs import active_callbacks, as_dask_shows_it, as_mapping, node_types
from .drivers import thread_pools
from .drivers.executors import ExecutorKind, SynchronousExecutor, kind_of, n_workers_of
from .drivers.inline import run_inline
from .drivers.nesting import innermost_executor
from .drivers.observing import Observer
from .drivers.pulling import run_pulling
from .drivers.relaying import Relay
from .options import (
    GetOptions,
    ResolvedOptions,
    priorities_of,
    read_options,
    use_configured_executor,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

mark_warnings()

_MANY_TASKS = 100
#: Stands for the keys that a call lacks.
_NO_KEYS: Any = object()

#: Reads the graph, with tasks of the given class.
Read: TypeAlias = "Callable[[type[GraphTask]], Graph]"
Drive: TypeAlias = "Callable[[Read, Observer | None, ResolvedOptions], Any]"


def get(dsk: Any, keys: Any = _NO_KEYS, **options: Unpack[GetOptions]) -> Any:
    """Run a graph and return the values of some of its keys.

    Without an executor, the calling thread runs everything: for debugging, and for graphs of tiny
    tasks.

    Args:
        dsk: {key: task}, or a graph of dask: nodes, expressions, a HighLevelGraph.
        keys: a key, or a list of keys and of such lists. Only tasks that these need are run.
        executor: any `concurrent.futures.Executor`, a `multiprocessing.pool.Pool`, or a
            `weft.Client`.
        pool: dask's name for the same.
        num_workers: largest number of its threads or processes to use.
        chunksize: number of tasks that a worker process gets at a time; -1 spreads them evenly.
            By default, or if it is "auto", it follows from their duration. Tasks of a client are
            submitted one by one, unless this is given: then they travel in blocks.
        initializer: called in each of weft's own worker processes before its first task.
        rerun_exceptions_locally: repeat a call that failed in the calling thread, where a debugger
            can stop.
        cache: a mapping: keys in it are not computed, and the requested values are put there.
        callbacks: of dask; by default those that are active.
        order: {key: number}, or a function that makes that of a graph, like `dask.order.order`:
            among tasks that became ready together, the lowest number runs first.

    Returns:
        The value of the key; for a list a tuple of values, nested like the list.

    Raises:
        GraphError: `dsk` is not a graph, a key is missing, or tasks need each other.
        UnknownOption: there is no such option.
        ConfigError: the value of an option cannot be used.
        WrongExecutor: the object is not an executor, or is shut down.
        SerializationError: a task for another process cannot be pickled.
        WorkerDied: a worker process ended while it ran a task.
        Exception: the exception of the first task that failed, with its key as a note.

    Example:
        >>> graph = {"x": 1, "y": (pow, "x", 2), "z": (sum, ["x", "y"])}
        >>> weft.get(graph, "z")
        2
    """
    if keys is _NO_KEYS:
        raise TypeError(
            "weft.get(graph, keys) runs a graph of tasks in this process: give the keys whose "
            f"values it should return, beside {dsk!r:.80}. The result of a future is "
            "future.result(), those of several are client.gather(futures)"
        )
    return run_graph(dsk, keys, read_options(options), _drive_inline)


def get_threaded(dsk: Any, keys: Any, **options: Unpack[GetOptions]) -> Any:
    """Run a graph on threads and return the values of some of its keys.

    Without an executor, and if dask's configuration has no `pool`, weft's own threads run it, one
    for each core by default. Arguments, results and errors are those of `weft.get`.
    """
    checked = read_options(options)
    use_configured_executor(checked)
    return run_graph(dsk, keys, checked, _drive_on_own_threads)


def run_graph(dsk: Any, keys: Any, options: ResolvedOptions, drive: Drive) -> Any:
    """Run a graph with these options; `drive` runs it if there is no executor."""
    if options.client is not None and not options.in_blocks:
        return options.client._run_graph(
            dsk,
            lambda mapping, task_class, outside: _read(
                mapping, keys, options, task_class, outside=outside
            ),
        )
    mapping = as_mapping(dsk)
    if options.executor is not None:
        drive = _drive_on_executor
    elif options.client is not None:
        drive = _drive_on_client
    if sys.is_finalizing():  # called by a destructor: threads and processes have ended
        drive = _drive_inline
    if options.callbacks is None:
        with active_callbacks() as callbacks:
            return _run_observed(mapping, keys, options, drive, list(callbacks))
    return _run_observed(mapping, keys, options, drive, options.callbacks)


def _run_observed(
    dsk: Mapping[Any, Any], keys: Any, options: ResolvedOptions, drive: Drive, callbacks: list[Any]
) -> Any:
    if not callbacks and options.cache is None:
        return drive(lambda task_class: _read(dsk, keys, options, task_class), None, options)
    observer = Observer(callbacks, options.cache)
    cache = options.cache or {}
    with _without_collections(dsk):
        shown = as_dask_shows_it(dsk, cache)
    for key in cache:
        shown[key] = Literal(cache[key])

    def read(task_class: type[GraphTask]) -> Graph:
        graph = _read(shown, keys, options, task_class, is_observed=True)
        if not observer.state:  # or another driver has tried before
            with _without_collections(shown):
                observer.make_tables(graph)
            observer.start_state()
        return graph

    is_errored = True
    try:
        observer.start(shown)
        results = drive(read, observer, options)
        is_errored = False
    finally:
        observer.finish(is_errored=is_errored)
    return results


def _read(
    dsk: Mapping[Any, Any],
    keys: Any,
    options: ResolvedOptions,
    task_class: type[GraphTask],
    *,
    is_observed: bool = False,
    outside: FindOutside | None = None,
) -> Graph:
    with _without_collections(dsk):
        graph = read_graph(
            dsk,
            keys,
            task_class=task_class,
            node_types=node_types(),
            is_observed=is_observed,
            outside=outside,
        )
    if options.order is not None:
        graph.sort(priorities_of(options.order, dsk))
    return graph


def _without_collections(dsk: Mapping[Any, Any]) -> AbstractContextManager[None]:
    """Pause the collector while a large graph is processed.

    Only for graphs large enough to start collections: pausing costs as much as reading a task.
    """
    return paused_collector() if len(dsk) > _MANY_TASKS else nullcontext()


# --- Drivers --------------------------------------------------------------------------------------


def _drive_on_client(read: Read, observer: Observer | None, options: ResolvedOptions) -> Any:
    return options.client._run_in_blocks(
        read(BlockTask),
        options.n_workers,
        chunksize=options.chunksize,
        rerun_exceptions_locally=options.rerun_exceptions_locally,
        observer=observer,
    )


def _drive_inline(read: Read, observer: Observer | None, options: ResolvedOptions) -> Any:
    return run_inline(read(GraphTask), observer)


def _drive_on_own_threads(read: Read, observer: Observer | None, options: ResolvedOptions) -> Any:
    n_workers = options.n_workers or n_cores()
    outer = innermost_executor()
    if outer is not None and thread_pools.is_own(outer):
        # The caller is a task: its graph shares the threads of the graph that it belongs to.
        return _drive_on_shared(read(GraphTask), outer, n_workers, observer, options)
    graph = read(GraphTask)
    pool = thread_pools.take(n_workers)
    is_clean = False
    try:
        results = _drive_on_shared(graph, pool, n_workers, observer, options)
        is_clean = True
    finally:
        thread_pools.give_back(pool, is_clean=is_clean)
    return results


def _drive_on_executor(read: Read, observer: Observer | None, options: ResolvedOptions) -> Any:
    executor = options.executor
    assert executor is not None
    kind = kind_of(executor)
    if type(executor) is SynchronousExecutor:  # what a subclass does in `submit` is to be done
        return run_inline(read(GraphTask), observer)
    if kind is ExecutorKind.INLINE:
        return _drive_on_shared(read(GraphTask), executor, 1, observer, options)
    n_workers = options.n_workers or n_workers_of(executor)
    if kind is ExecutorKind.SHARED:
        return _drive_on_shared(read(GraphTask), executor, n_workers, observer, options)
    from .blocks.driver import run_in_blocks
    from .blocks.executor_host import ExecutorHost

    return run_in_blocks(
        ExecutorHost(executor),
        read(BlockTask),
        n_workers,
        chunksize=options.chunksize,
        rerun_exceptions_locally=options.rerun_exceptions_locally,
        observer=observer,
    )


def _drive_on_shared(
    graph: Graph,
    executor: Executor,
    n_workers: int,
    observer: Observer | None,
    options: ResolvedOptions,
) -> Any:
    return run_pulling(
        graph,
        executor,
        n_workers,
        relay=None if observer is None else Relay(observer),
        rerun_exceptions_locally=options.rerun_exceptions_locally,
    )
