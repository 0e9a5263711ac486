"""Methods of `Client` that run graphs and collections of dask.

Collections are turned into graphs by dask itself, so this module is the only one here that calls
dask. It is never imported: without it in `sys.modules` there are no collections.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import NotSupported
from ..calls.call_options import check_unsupported
from ..future import Future, join_dask
from ..modes import waits
from ..results.future_arguments import futures_of, is_collection, no_future
from ..results.gathering import Gathering
from ..shell.short_tracebacks import short_tracebacks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...graphs.core.reading import FindOutside, Graph
    from ...graphs.core.tasks import GraphTask
    from ...protocol.durations import Duration
    from ..calls.retries import Retries
    from ..client import Client

_CONTAINERS = (list, tuple, set, frozenset)


# --- Collections ----------------------------------------------------------------------------------


def compute(
    client: Client[Any],
    /,
    collections: Any,
    sync: bool = False,
    optimize_graph: bool = True,
    workers: str | Iterable[str] | None = None,
    allow_other_workers: bool = False,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    fifo_timeout: object = None,
    actors: object = None,
    traverse: bool = True,
    timeout: Duration | None = None,
    **options: Any,
) -> Any:
    """Compute collections of dask on the cluster; return futures of their values at once.

    Args:
        collections: one, or a list, tuple or set of them. Other objects among them are returned
            as they are.
        sync: return the values in place of futures.
        optimize_graph: False = leave the graphs as they are.
        workers: see `submit`; for every task of the collections.
        allow_other_workers: see `submit`.
        resources: see `submit`.
        retries: see `submit`.
        priority: see `submit`.
        fifo_timeout: see `submit`.
        actors: see `submit`.
        traverse: look for collections in lists, dicts and other containers in `collections`.
        timeout: how long an attempt of each task may run; see `submit`.
        options: `order`, see `get`. Others are ignored, unless they look misspelt.

    Returns:
        A future for one collection, else a list.

    Raises:
        TypeError: `collections` is neither a collection nor a list of some.
        NotSupported: the version of dask is too old, or an annotation cannot be honoured.

    Example:
        >>> import dask
        >>> client.compute(dask.delayed(sum)([1, 2])).result()
        3
    """
    check_unsupported(fifo_timeout=fifo_timeout, actors=actors)
    is_one = not isinstance(collections, _CONTAINERS)
    given = [collections] if is_one else list(collections)
    if traverse and "dask.delayed" in sys.modules:
        delayed = sys.modules["dask.delayed"].delayed
        given = [
            delayed(item) if isinstance(item, (*_CONTAINERS, dict, Iterator)) else item
            for item in given
        ]
    found = [item for item in given if is_collection(item)]
    if is_one and not found:
        raise _no_collection(collections, "compute")
    options.update(
        workers=workers,
        allow_other_workers=allow_other_workers,
        resources=resources,
        retries=retries,
        priority=priority,
        timeout=timeout,
    )
    futures = iter(_compute(client, found, optimize_graph, options) if found else ())
    results = [next(futures) if is_collection(item) else item for item in given]
    outputs = results[0] if is_one else results
    return values_of(client, outputs) if sync else outputs


def _compute(
    client: Client[Any], collections: list[Any], optimize_graph: bool, options: dict[str, Any]
) -> list[Any]:
    from .submitted_graphs import submit_graph

    finalize = _expressions("compute").FinalizeCompute
    places = _by_kind(collections, optimize_graph)
    expression = _expression_of([collections[i] for i in places], optimize_graph)
    expression = finalize(expression).optimize()
    keys = _flat(expression.__dask_keys__())
    futures = submit_graph(client, expression, keys, options, as_futures=True)
    of_places = dict(zip(places, futures, strict=True))
    return [of_places[i] for i in range(len(collections))]


def future_of(client: Client[Any], collection: Any) -> Future:
    """Return a future of the value of a collection that was persisted, for `gather`.

    Raises:
        TypeError: it was not persisted.
    """
    if not futures_of(collection):
        raise no_future(collection, "gather")
    future: Future = client.compute(collection)
    return future


def persist(
    client: Client[Any],
    /,
    collections: Any,
    optimize_graph: bool = True,
    workers: str | Iterable[str] | None = None,
    allow_other_workers: bool = False,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    fifo_timeout: object = None,
    actors: object = None,
    timeout: Duration | None = None,
    **options: Any,
) -> Any:
    """Compute collections of dask and keep their parts on the workers.

    Returns at once; the parts are computed while the program goes on. They are kept as long as
    the new collections, or others that were made of them, exist.

    Args:
        collections: one, or a list, tuple or set of them.
        optimize_graph: False = leave the graphs as they are.
        workers: see `submit`; for every task of the collections.
        allow_other_workers: see `submit`.
        resources: see `submit`.
        retries: see `submit`.
        priority: see `submit`.
        fifo_timeout: see `submit`.
        actors: see `submit`.
        timeout: see `compute`.
        options: see `compute`.

    Returns:
        A collection of the same kind and size, with futures in its graph; for several a list.

    Raises:
        TypeError: `collections` are not all collections of dask.
        NotSupported: the version of dask is too old, or an annotation cannot be honoured.

    Example:
        >>> import dask
        >>> x = client.persist(dask.delayed(pow)(2, 10))
        >>> (x + x).compute()                           # x is not computed again
        2048
    """
    from .submitted_graphs import submit_graph

    check_unsupported(fifo_timeout=fifo_timeout, actors=actors)
    is_one = not isinstance(collections, _CONTAINERS)
    found = [collections] if is_one else list(collections)
    for item in found:
        if not is_collection(item):
            raise _no_collection(item, "persist")
    if not found:
        return []
    _expressions("persist")
    options.update(
        workers=workers,
        allow_other_workers=allow_other_workers,
        resources=resources,
        retries=retries,
        priority=priority,
        timeout=timeout,
    )
    places = _by_kind(found, optimize_graph)
    expression = _expression_of([found[i] for i in places], optimize_graph).optimize()
    keys = [_flat(each) for each in expression.__dask_keys__()]
    futures = submit_graph(client, expression, keys, options, as_futures=True)
    results = [None] * len(found)
    for i, names, parts in zip(places, keys, futures, strict=True):
        rebuild, arguments = found[i].__dask_postpersist__()
        results[i] = rebuild(dict(zip(names, parts, strict=True)), *arguments)
    return results[0] if is_one else results


# --- Graphs ---------------------------------------------------------------------------------------


@waits
def get(
    client: Client[Any],
    /,
    dsk: Any,
    keys: Any,
    *,
    sync: bool = True,
    asynchronous: bool | None = None,
    direct: bool | None = None,
    **options: Any,
) -> Any:
    """Run a graph on the cluster, as `weft.get` does in this process, and gather some values.

    Args:
        dsk: {key: task}, or a graph of dask: nodes, expressions, a HighLevelGraph. Futures in
            it, also in the place of a task, stand for their results.
        keys: a key, or a list of keys and of such lists. Only tasks that these need are run.
        sync: if False, return futures in place of the values.
        asynchronous: see `gather`.
        direct: see `gather`.
        options: those of `submit`, for every task: workers, resources, retries, priority,
            timeout, allow_other_workers. Annotations of `dask.annotate` take precedence. And
            `order`, {key: number} or a function that makes that of a graph, like
            `dask.order.order`: the lowest number runs first. Others are ignored, as dask's own
            schedulers do, unless they look misspelt.

    Returns:
        The value of the key; for a list a list of values, nested like the list.

    Raises:
        GraphError: `dsk` is not a graph, a key is missing, or tasks need each other.
        SerializationError: a task cannot be pickled; the text names it.
        NotSupported, UnknownOption: an annotation or an option cannot be honoured.

    Example:
        >>> graph = {"x": 1, "y": (pow, "x", 2), "z": (sum, ["x", "y"])}
        >>> client.get(graph, ["y", "z"])
        [1, 2]
    """
    from .submitted_graphs import submit_graph

    check_unsupported(
        fifo_timeout=options.pop("fifo_timeout", None), actors=options.pop("actors", None)
    )
    # Names that were chosen by hand matter only where futures show them.
    futures = submit_graph(client, dsk, keys, options, keeps_names=not sync)
    if not sync:
        return futures
    check_unsupported(direct=direct)
    return values_of(client, futures, asynchronous)


def get_for_dask(client: Client[Any], /, dsk: Any, keys: Any, **options: Any) -> Any:
    """Do what `get` does, for dask, which wants values at once wherever it computes."""
    options.setdefault("asynchronous", False)
    return client.get(dsk, keys, **options)


def run_graph(
    client: Client[Any],
    dsk: Any,
    read: Callable[[Mapping[Any, Any], type[GraphTask], FindOutside], Graph],
) -> Any:
    """See `ClusterClient`."""
    from .submitted_graphs import run_submitted

    return values_of(client, run_submitted(client, dsk, read))


def run_in_blocks(
    client: Client[Any],
    graph: Graph,
    n_slots: int | None = None,
    *,
    workers: list[str] | None = None,
    **options: Any,
) -> Any:
    """See `graphs.blocks.driver`; by default the blocks may use all threads of the cluster."""
    from ...graphs.blocks import driver
    from ..blocks.host import ClientHost

    if n_slots is None:
        n_slots = max(1, sum(client.nthreads().values()))
    return driver.run_in_blocks(ClientHost(client, workers), graph, n_slots, **options)


def values_of(client: Client[Any], outputs: Any, asynchronous: bool | None = None) -> Any:
    """Gather the outputs of a graph: futures, and literals, which may be any objects."""
    gathering = Gathering(client._usable(), outputs, "raise", takes_values=True)
    if client.asynchronous if asynchronous is None else asynchronous:
        return gathering.awaited()
    with short_tracebacks:
        result, error = gathering.run()
    if error is not None:
        __tracebackhide__ = True
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame
    return result


def _no_collection(item: object, call: str) -> TypeError:
    if isinstance(item, Future):
        advice = "; a future needs no such call: its task runs already"
    elif call == "compute":
        advice = "; for a function use submit"
    else:
        advice = ""
    return TypeError(f"{call} takes collections of dask, not {type(item).__name__}{advice}")


def _expressions(call: str) -> Any:
    """Return dask's module of expressions.

    Raises:
        NotSupported: this version of dask has none.
    """
    join_dask()
    try:
        from dask import _expr

        _expr.FinalizeCompute, _expr.HLGExpr  # noqa: B018 - looked up for the error
    except (ImportError, AttributeError):
        version = getattr(sys.modules.get("dask"), "__version__", "?")
        raise NotSupported(
            f"client.{call} needs dask 2025.4 or later, and this is dask {version}: update dask"
        ) from None
    return _expr


def _expression_of(collections: list[Any], optimize_graph: bool) -> Any:
    return sys.modules["dask.base"].collections_to_expr(collections, optimize_graph)


def _by_kind(collections: list[Any], optimize_graph: bool) -> list[int]:
    """Return the places of collections in an order in which equal kinds are neighbours.

    dask merges the graphs of each kind, and gives the keys of all in the order of the kinds: those
    of an array between two frames would be taken for the second frame's.
    """
    if len(collections) == 1:
        return [0]
    operands = _expression_of(collections, optimize_graph).operands
    graph_class = sys.modules["dask._expr"].HLGExpr
    kinds: dict[Any, list[int]] = {}
    for i, operand in enumerate(operands):
        kind = operand.low_level_optimizer if isinstance(operand, graph_class) else None
        kinds.setdefault(kind, []).append(i)
    return [i for same in kinds.values() for i in same]


def _flat(keys: Any) -> list[Any]:
    """Return the keys in nested lists."""
    if not isinstance(keys, list):
        return [keys]
    return [key for each in keys for key in _flat(each)]
