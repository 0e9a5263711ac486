"""The options of the `get` functions: checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict

from ..protocol.errors import ConfigError, UnknownOption
from ..protocol.wording import did_you_mean
from .dask_graphs import configured, has_configuration
from .drivers.executors import as_executor, is_client
from .drivers.observing import CallbackTuple

#: {key: number}, or a function of the graph, like `dask.order.order`; the lowest runs first.
Order: TypeAlias = "Mapping[Any, Any] | Callable[[Mapping[Any, Any]], Mapping[Any, Any]]"


class GetOptions(TypedDict, total=False):
    """The options of the `get` functions, as users give them; each may be None."""

    #: Any `concurrent.futures.Executor`, a `multiprocessing.pool.Pool`, or a `weft.Client`.
    executor: Any
    #: dask's name for the same.
    pool: Any
    num_workers: int | None
    chunksize: int | Literal["auto"] | None
    initializer: Any
    rerun_exceptions_locally: bool | None
    cache: Any
    callbacks: Any
    order: Any


_NAMES = GetOptions.__annotations__.keys()
_EXECUTOR_NAMES = frozenset({"executor", "pool"})
_NOT_FOR_CLIENTS: Final = (
    "cache",
    "callbacks",
    "initializer",
    "num_workers",
    "rerun_exceptions_locally",
)
#: Options that the same graph may have on a cluster.
_OF_CLUSTERS = frozenset(
    {
        "actor",
        "actors",
        "allow_other_workers",
        "fifo_timeout",
        "priority",
        "resources",
        "restrictions",
        "retries",
        "timeout",
        "workers",
    }
)
_N_CALLBACKS = 5


@dataclass(slots=True)
class ResolvedOptions:
    """The options of one call of a `get` function."""

    #: None: the one of the function.
    executor: Executor | None = None
    #: A `weft.Client` that was given as the executor.
    client: Any = None
    #: At least 1. None: as many as the executor has, or the machine.
    n_workers: int | None = None
    #: Tasks in a chunk for a worker process, or -1: spread evenly. None: by their duration.
    chunksize: int | None = None
    #: The tasks travel to the cluster of a client in such chunks, not one by one.
    in_blocks: bool = False
    #: For weft's own worker processes.
    initializer: Callable[[], object] | None = None
    rerun_exceptions_locally: bool = False
    cache: MutableMapping[Any, Any] | None = None
    #: None: those that are active in dask.
    callbacks: list[CallbackTuple] | None = None
    order: Order | None = None


def read_options(given: GetOptions) -> ResolvedOptions:
    """Check the user's options, and complete them from dask's configuration.

    Raises:
        UnknownOption: there is no such option.
        ConfigError: a value cannot be used.
        WrongExecutor: the object is not an executor.
    """
    get = given.get
    executor, pool = get("executor"), get("pool")
    if not given.keys() <= _NAMES:
        _refuse(sorted(given.keys() - _NAMES)[0])
    if executor is not None and pool is not None and executor is not pool:
        raise ConfigError("it is the same option as executor: give one of them", "pool")
    executor = executor if executor is not None else pool
    client = executor if is_client(executor) else None
    if client is not None:
        executor = None
        _check_for_client(given)
    if not has_configuration() and len(given) <= 1:  # nothing else to read
        checked = None if executor is None else as_executor(executor)
        if given.keys() <= _EXECUTOR_NAMES:
            return ResolvedOptions(checked, client)
    return ResolvedOptions(
        executor=None if executor is None else as_executor(executor),
        client=client,
        n_workers=_count(_or_configured(given, "num_workers"), "num_workers"),
        chunksize=None if get("chunksize") == "auto" else _chunksize(given),
        in_blocks=get("chunksize") is not None,
        initializer=_initializer(get("initializer"), executor),
        rerun_exceptions_locally=bool(_or_configured(given, "rerun_exceptions_locally")),
        cache=_cache(_or_configured(given, "cache")),
        callbacks=_callbacks(get("callbacks")),
        order=checked_order(get("order")),
    )


def use_configured_executor(options: ResolvedOptions) -> None:
    """Take the pool of dask's configuration if none was given.

    Raises:
        WrongExecutor: it is not an executor.
    """
    if options.executor is None and options.client is None:
        pool = configured("pool")
        if is_client(pool):
            options.client = pool
        elif pool is not None:
            options.executor = as_executor(pool)


def _check_for_client(given: GetOptions) -> None:
    """Refuse options that would be ignored; those of dask's configuration are for its engines."""
    in_blocks = given.get("chunksize") is not None
    for name in ("initializer",) if in_blocks else _NOT_FOR_CLIENTS:
        value = given.get(name)
        if value or (name == "cache" and value is not None):
            text = "the tasks of a weft.Client run on its workers: leave it out"
            if name != "initializer":
                text += ", or give chunksize='auto' too, so that they run in blocks"
            raise ConfigError(text, name)


def _refuse(name: str) -> None:
    here = f"here are {', '.join(sorted(_NAMES))}"
    if name in _OF_CLUSTERS:
        raise UnknownOption(
            f"option {name!r} needs a cluster: use the get of a weft.Client; {here}"
        )
    hint = did_you_mean(name, _NAMES)
    raise UnknownOption(f"there is no option {name!r}{hint and f' ({hint})'}; {here}")


def _or_configured(given: GetOptions, name: str) -> Any:
    value = given.get(name)
    return value if value is not None else configured(name)


def _chunksize(given: GetOptions) -> int | None:
    return _count(_or_configured(given, "chunksize"), "chunksize", least=-1)


def _count(value: Any, name: str, least: int = 1) -> int | None:
    if value is None:
        return None
    try:
        count = int(value.__index__())
    except (AttributeError, TypeError):
        count = 0
    if isinstance(value, bool) or count < least or count == 0:
        wanted = "a whole number, at least 1" + (", or -1" if least < 0 else "")
        raise ConfigError(f"it must be {wanted}, not {value!r}", name)
    return count


def _initializer(given: Any, executor: object) -> Any:
    value = given if given is not None else configured("multiprocessing.initializer")
    if value is None or callable(value):
        if given is not None and executor is not None:
            text = "an executor that is given has its own initializer, if any: give it one there"
            raise ConfigError(text, "initializer")
        return value
    raise ConfigError(f"it must be a function without arguments, not {value!r}", "initializer")


def _cache(value: Any) -> Any:
    # Like dask, accept any object that behaves like a mapping.
    if value is None or (hasattr(value, "__setitem__") and hasattr(value, "keys")):
        return value
    raise ConfigError(f"it must be a mutable mapping, not {value!r}", "cache")


def _callbacks(given: Any) -> list[CallbackTuple] | None:
    if given is None:
        return None
    if hasattr(given, "_callback") or (
        isinstance(given, tuple) and given and all(one is None or callable(one) for one in given)
    ):
        given = [given]
    found = []
    for one in given if isinstance(given, (list, tuple, set, frozenset)) else [given]:
        callback = getattr(one, "_callback", one)
        if not isinstance(callback, tuple) or len(callback) != _N_CALLBACKS:
            text = "dask Callback objects or tuples of five functions"
            raise ConfigError(f"they are {text}, not {one!r}", "callbacks")
        found.append(callback)
    return found


def checked_order(given: Any) -> Order | None:
    """Return the option `order`.

    Raises:
        ConfigError: it is neither a mapping nor a function.
    """
    if given is None or callable(given) or isinstance(given, Mapping):
        return given  # type: ignore[no-any-return]
    text = "it must be {key: number}, or a function that returns that for a graph"
    raise ConfigError(f"{text}, not {given!r}", "order")


def priorities_of(order: Order, dsk: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the numbers by which tasks of a graph are to run.

    Raises:
        ConfigError: `order` returned something else.
    """
    priorities = order(dsk) if callable(order) else order
    if isinstance(priorities, Mapping) and all(
        isinstance(number, (int, float)) for number in priorities.values()
    ):
        return priorities
    raise ConfigError(f"it must return {{key: number}}, not {priorities!r:.80}", "order")
