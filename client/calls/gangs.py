"""`Client.submit_gang`: calls that run at the same time on different places, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, overload

from ...protocol.amounts import BESIDE, CORES
from ...protocol.errors import InvalidAmount
from ...protocol.wire.columns import MAX_TAG_CHARS
from ...protocol.wire.options import MAX_GANG, TaskOptions
from ...protocol.wire.payload import blob_nbytes
from ..core.tasks import TaskRecord
from ..future import Future
from .annotations import AnnotatedOptions, conditions_of_keywords, options_of_keywords
from .call_options import NOT_GIVEN, check_keywords, printing
from .calling import admit
from .categories import Category
from .conditions import check_futures, check_not_held, held_at_once, keep
from .detaching import accepted
from .encoding import check_key, spec_hash
from .foreign_futures import encode

if TYPE_CHECKING:
    from ...protocol.wire.keys import Key
    from ..client import Client
    from ..modes import Mode, T
    from ..shell.engine import Engine
    from .retries import Retries

#: Characters of the content's hash that stands for a long key in the name of a gang.
_DIGEST_SIZE: Final = 16
_CATEGORY: Final = "category"


class GangFuture(Future):
    """The future of one call of a gang: while it lives, so do the results of all."""

    __slots__ = ("_others",)

    def __init__(self, engine: Engine, state: Any, others: tuple[Future, ...]) -> None:
        super().__init__(engine, state)
        #: Futures of all calls, shared by those that users have. They end with the last of these.
        self._others = others

    def release(self) -> None:
        """Release the result now, as far as no other future of the gang is alive."""
        self._others = ()
        super().release()


@overload
def submit_gang(
    client: Client[Mode],
    func: Callable[..., Coroutine[Any, Any, T]],
    n: int,
    /,
    *args: Any,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    output: Any = NOT_GIVEN,
    **kwargs: Any,
) -> list[Future[T, Mode]]: ...
@overload
def submit_gang(
    client: Client[Mode],
    func: Callable[..., T],
    n: int,
    /,
    *args: Any,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    output: Any = NOT_GIVEN,
    **kwargs: Any,
) -> list[Future[T, Mode]]: ...
def submit_gang(
    client: Client[Mode],
    func: Callable[..., Any],
    n: int,
    /,
    *args: Any,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    output: Any = NOT_GIVEN,
    **kwargs: Any,
) -> list[Future[Any, Any]]:
    """Run `func(*args, **kwargs)` n times at the same time, each in a place of its own.

    All begin together, or none does: they wait until n places are free at one moment. In the
    function, `weft.get_gang()` returns the rank of the call, and where the others run. If one ends
    with a failure or its worker is lost, all are ended; they run again together if the call has
    `retries=` left, or a worker was lost. See docs/jobs.md.

    Args:
        func: the function to run, a process of MPI or DDP for instance.
        n: how many; at most 1024.
        args: its positional arguments, the same for all.
        key: the beginning of the keys, which end in "-0", "-1" and so on.
        workers: see `submit`, as for the next four.
        resources: what each of them takes.
        retries: how often all run again if one raises.
        priority: from -9999 to 9999; among gangs that wait, too.
        allow_other_workers: prefer `workers`, but use others if these cannot hold all.
        timeout: how long an attempt may run; see `submit`, as for all that follow.
        meta: plain data that says what the calls are for.
        after: others that are to have ended before.
        start_at: when they may begin.
        start_after: ... in how long.
        ttl: all are cancelled if they have not begun after so long.
        deadline: all are cancelled that have not ended by then.
        detached: they are recorded before this returns, and run without this client.
        no_worker_timeout: all fail if the connected workers could not hold them for so long.
        cores: the threads of its worker that each takes, 1 by default.
        memory: the bytes of its worker's limit that each takes.
        output: where what each of them prints goes.
        kwargs: its keyword arguments, the same for all.

    Returns:
        The futures in the order of the ranks. While one of them lives, the results of all do.

    Raises:
        TypeError: a `category=` is given: all begin together, and a category gives memory one by
            one. Give `memory=` and `timeout=`.
        InvalidAmount: `n` is no whole number from 1 to 1024, or another amount is none.
        SerializationError: the function or an argument cannot be pickled; the text names it.

    Example:
        >>> client.gather(client.submit_gang(lambda: weft.get_gang().rank, 2))
        [0, 1]
    """
    engine = client._running()
    if not callable(func):
        raise TypeError(f"submit_gang needs a function, not {type(func).__name__}")
    if type(n) is not int or not 1 <= n <= MAX_GANG:
        raise InvalidAmount(f"{n!r:.80} is not a number of calls from 1 to {MAX_GANG}", "n")
    if isinstance(kwargs.get(_CATEGORY), Category):
        raise held_at_once([f"{_CATEGORY}="], "a gang")
    times = (start_at, start_after, ttl, deadline)
    given = (after, *times, detached, no_worker_timeout, cores, memory, NOT_GIVEN, NOT_GIVEN)
    conditions = conditions_of_keywords(func, kwargs, given)
    options = options_of_keywords(
        func,
        kwargs,
        timeout,
        meta,
        priority,
        retries,
        workers,
        allow_other_workers,
        resources,
        conditions,
    )
    if output is not NOT_GIVEN:
        func = printing(func, kwargs, output)
    check_futures(engine, conditions)
    futures = _submit_all(client, engine, func, args, kwargs, n, key, options)
    return accepted(client, keep(engine, futures, conditions), conditions)


def _submit_all(
    client: Client[Any],
    engine: Engine,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    n: int,
    key: Key | None,
    options: TaskOptions | AnnotatedOptions,
) -> list[Future[Any, Any]]:
    """Submit the same call once for each rank."""
    if kwargs:
        check_keywords(func, kwargs)
    encoder = client._encoder
    function = encoder.function(func)
    (blob, dependencies, shared), borrowing = encode(
        engine, encoder.call, function, args, kwargs, False
    )
    if not engine.core.is_linked:
        admit(engine, n * blob_nbytes(blob))
    common = encoder.number_key(function.name) if key is None else check_key(key)
    keys = [f"{common}-{rank}" for rank in range(n)]
    common_options = options.of(keys[0]) if isinstance(options, AnnotatedOptions) else options
    check_not_held(common_options, "a gang")
    # A reused key may have other inputs, of which its hash is made. The size is a part of the call.
    digest = None if key is None else spec_hash(function.id, blob, [*dependencies, f"gang of {n}"])
    states, replaced = engine.attach(keys, None if digest is None else [digest] * n)
    shared_futures: list[Future[Any, Any]] = []
    for state in states:
        engine.table.share(state)
        shared_futures.append(Future(engine, state))
    others = tuple(shared_futures)
    futures: list[Future[Any, Any]] = [GangFuture(engine, state, others) for state in states]
    if shared is not None:
        shared.submit(engine, lambda _: common_options.priority, states, [dependencies] * n)
    failed = {state.key: state for state in replaced}
    for rank, state in enumerate(states):
        own = common_options.changed(
            gang=[_name_of(common), str(rank), str(n)], resources=_with_cores(common_options)
        )
        record = TaskRecord(
            state, function, blob, [*dependencies], own, digest, failed.get(state.key)
        )
        engine.post_submission(record) if borrowing is None else borrowing.post(record)
    engine.check_open()
    return futures


def _name_of(key: str) -> str:
    """Return the name of a gang with keys that begin so: the same for the same key."""
    if len(key) <= MAX_TAG_CHARS:
        return key
    return blake2b(key.encode(), digest_size=_DIGEST_SIZE).hexdigest()


def _with_cores(options: TaskOptions) -> dict[str, float]:
    """Return what a member asks for: its cores in any case, so that its worker counts them."""
    asked = dict(options.resources)
    if CORES not in asked and BESIDE not in asked:
        asked[CORES] = 1
    return asked
