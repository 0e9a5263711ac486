"""Put an engine in the place of dask's own, wherever dask would use one of those.

These are replaced, before any collection is imported:

    dask.get, dask.local.get_sync, names "sync", "synchronous", "single-threaded"   weft.get
    dask.threaded.get, names "threads", "threading"                     weft.threaded.get
    dask.multiprocessing.get, names "processes", "multiprocessing"      weft.multiprocessing.get
    dask.local.get_async, which scheduler=<executor> goes to            weft.get(executor=...)

and, once the collections exist, the default scheduler of each: Array, DataFrame, Bag, Delayed.
For comparison the same can be done with dask's own engines, which replaces only the defaults.

With `cluster`, a client of a cluster takes all these places but the last (`scheduler=<executor>`
stays dask's own). Collections come to it in another way, as with users: it is open.

Every engine is called through a function that counts the graphs it ran, so that a run can show
that the engine under test did the work. Must never be imported by weft itself.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cluster_engine import OpenCluster

Get = Callable[..., Any]


@dataclass(frozen=True)
class Engine:
    """One way to run the tests."""

    #: "weft" or "dask": whose engines are used.
    provider: str
    #: The default scheduler of every collection: "threads", "sync", "processes", "cluster".
    default: str
    #: Whether weft is given `order=dask.order.order`, by which dask's own engines always go.
    is_ordered: bool = False


ENGINES: dict[str, Engine] = {
    "threaded": Engine("weft", "threads"),
    "sync": Engine("weft", "sync"),
    "ordered": Engine("weft", "sync", is_ordered=True),
    "processes": Engine("weft", "processes"),
    "cluster": Engine("weft", "cluster"),
    "dask-threaded": Engine("dask", "threads"),
    "dask-sync": Engine("dask", "sync"),
    "dask-processes": Engine("dask", "processes"),
}

#: {kind of engine: graphs run}, in this process; a cluster counts its own.
graphs_run: Counter[str] = Counter()
_cluster = OpenCluster()

#: Modules of dask that hold an engine by name, as the tests import it.
_HOLDERS = {
    "sync": (("dask", "get"), ("dask.local", "get_sync")),
    "threads": (("dask.threaded", "get"),),
    "processes": (("dask.multiprocessing", "get"),),
    "executor": (("dask.local", "get_async"),),
}
_NAMES = {
    "sync": ("sync", "synchronous", "single-threaded"),
    "threads": ("threads", "threading"),
    "processes": ("processes", "multiprocessing"),
}
#: Every class whose instances dask.compute takes, in the modules that define them.
_COLLECTIONS = (
    ("dask.array.core", "Array"),
    ("dask.bag.core", "Bag"),
    ("dask.bag.core", "Item"),
    ("dask.dataframe.dask_expr._collection", "FrameBase"),
    ("dask.delayed", "Delayed"),
)


def install(engine: str) -> None:
    """Make dask run its graphs on `engine`. Once in a process, before collections are imported."""
    early = [name for name in ("dask.array", "dask.bag", "dask.dataframe") if name in sys.modules]
    assert not early, f"{early} hold dask's engines already: load this plugin with -p"
    # Where dask.distributed is installed there are more tests, of its client.
    sys.modules["distributed"] = None  # type: ignore[assignment]

    chosen = ENGINES[engine]
    if chosen.default == "cluster":
        gets = dict.fromkeys(("sync", "threads", "processes", "cluster"), _cluster.get)
        gets["executor"] = _dask_engines()["executor"]
        _replace(gets, "cluster")
        return
    gets = _dask_engines() if chosen.provider == "dask" else _weft_engines(chosen.is_ordered)
    gets = {kind: _counted(kind, get) for kind, get in gets.items()}
    if chosen.provider == "dask":
        # The others end up in get_async too, and would be counted twice.
        gets["executor"] = gets["executor"].__wrapped__
    _replace(gets, chosen.default)
    _hide_frames(chosen.provider)


def start(engine: str) -> None:
    """Start what the engine needs in a process that runs tests: for `cluster` a cluster."""
    if ENGINES[engine].default == "cluster":
        _cluster.start()


def stop(engine: str) -> None:
    """Undo `start`."""
    if ENGINES[engine].default == "cluster":
        _cluster.close()


def take_count() -> int:
    """Return how many graphs were run in this process since the last call."""
    n_graphs = graphs_run.total()
    graphs_run.clear()
    return n_graphs + _cluster.take_count()


def _replace(gets: dict[str, Get], default: str) -> None:
    """Put the engines in all places."""
    import dask.base

    for kind, holders in _HOLDERS.items():
        for module, attribute in holders:
            setattr(importlib.import_module(module), attribute, gets[kind])
    for kind, names in _NAMES.items():
        for name in names:
            assert name in dask.base.named_schedulers
            dask.base.named_schedulers[name] = gets[kind]
    for module, name in _COLLECTIONS:
        collection = getattr(importlib.import_module(module), name)
        assert "__dask_scheduler__" in vars(collection)
        collection.__dask_scheduler__ = staticmethod(gets[default])


def _weft_engines(is_ordered: bool) -> dict[str, Get]:
    import dask.order

    import weft.multiprocessing
    import weft.threaded

    def get_async(submit: Any, num_workers: int, dsk: Any, keys: Any, **options: Any) -> Any:
        # dask hands over `executor.submit`, weft takes the executor.
        return weft.get(dsk, keys, executor=submit.__self__, num_workers=num_workers, **options)

    gets = {
        "sync": weft.get,
        "threads": weft.threaded.get,
        "processes": weft.multiprocessing.get,
        "executor": get_async,
    }
    if is_ordered:
        gets = {k: functools.partial(get, order=dask.order.order) for k, get in gets.items()}
    return gets


def _dask_engines() -> dict[str, Get]:
    import dask.local
    import dask.multiprocessing
    import dask.threaded

    return {
        "sync": dask.local.get_sync,
        "threads": dask.threaded.get,
        "processes": dask.multiprocessing.get,
        "executor": dask.local.get_async,
    }


def _counted(kind: str, get: Get) -> Get:
    @functools.wraps(get)
    def counting(*args: Any, **options: Any) -> Any:
        graphs_run[kind] += 1
        return get(*args, **options)

    return counting


def _hide_frames(provider: str) -> None:
    """Add the engine's and this module's frames to those that dask leaves out of tracebacks."""
    import dask.config

    folders = [__file__]
    if provider == "weft":
        for name in ("weft.graphs", "weft.multiprocessing", "weft.deploy.local"):
            module = importlib.import_module(name)
            folders += getattr(module, "__path__", [module.__file__])
    shorten = dask.config.get("admin.traceback.shorten")
    dask.config.set({"admin.traceback.shorten": [*shorten, *map(re.escape, folders)]})
