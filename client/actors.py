"""Actors: `submit(cls, actor=True)`, the futures of their calls, and their handles in pickles.

A call does not go through the scheduler: `shell/actor_connections.py` sends it to the actor's
worker, from this process, in batches. Everything here runs in the thread of the caller.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from ..protocol.durations import Duration, seconds_or_none
from ..protocol.errors import ClientClosed, WaitingCycle
from ..protocol.host.blocking import TaskWait, awaited, blocked
from ..protocol.values.actors import Actor, HandleCalls, reduce_future_of_actor, set_handle_calls
from ..protocol.values.pickling import PROTOCOL
from ..protocol.values.serialize import dumps, futures_met, loads
from ..protocol.wire.message import MAX_TEXT_CHARS
from ..protocol.wire.messages import ACTOR_FUNCTION
from ..protocol.wire.messages.actors import call_text
from ..protocol.wire.payload import Blob, Payload
from .calls.annotations import AnnotatedOptions
from .calls.call_options import check_no_option_of_ray
from .calls.conditions import check_not_held
from .calls.encoding import Encoder, check_key, check_keys, spec_hash
from .calls.foreign_futures import encode
from .core.features.actor_calls import ActorCall
from .core.tasks import NO_VALUE, FutureState, TaskRecord
from .dask.absent_names import ABSENT, answer_by_name, missing_attribute
from .future import Future
from .modes import Mode, Result, Waited, as_result, waits
from .results.failures import exception_from, exception_of
from .shell.current import bind_future, find_current
from .shell.in_task import check_not_own_calls, is_in_task
from .shell.interruptible import acquire
from .shell.watchers import call_in, settle

if TYPE_CHECKING:
    import asyncio

    from ..protocol.wire.keys import Key
    from ..protocol.wire.options import TaskOptions
    from .shell.engine import Engine

__all__ = ["Actor", "ActorFuture"]

_PLAIN_TYPES: Final = frozenset({bool, bytes, float, int, str, type(None)})
#: A call of a task that is answered within this time does not give the slot up.
_SOON_S: Final = 0.002
_NOT_LOADED: Final = object()


class ActorFuture(ActorCall, Waited[Result, Mode]):
    """The result of a call of an actor. It can be awaited in any client."""

    __slots__ = ("_value", "engine")

    def __init__(
        self, engine: Engine, actor: Actor, name: str, arguments: Blob | None, kept: Any
    ) -> None:
        super().__init__(actor, name, arguments, kept)
        self.engine = engine
        self._value: Any = _NOT_LOADED

    @property
    def key(self) -> str:
        """The actor's key and the name of the method."""
        return f"{self.actor_key}.{self.name}"

    @property
    def status(self) -> str:
        """One of "pending", "finished" and "error". Never waits."""
        return "pending" if not self.is_done else "finished" if self.failure is None else "error"

    def done(self) -> bool:
        """Return whether the call has been answered, or has failed."""
        return self.is_done

    @waits
    def result(self, timeout: Duration | None = None) -> Result:
        """Return what the call returned, or raise what it raised.

        Args:
            timeout: time to wait, in seconds or as "30s", ...; None = for ever.

        Raises:
            TimeoutError: the call was not answered in time; it goes on.
            ActorLost: the actor is gone; the call has not run.
            ActorCallInDoubt: the actor's worker was lost, or the connection to it; the call may
                have run.
        """
        timeout_s = None if timeout is None else seconds_or_none(timeout, "timeout")
        if self.engine.is_asynchronous:
            return as_result(self._result_async(timeout_s))  # type: ignore[no-any-return]
        if not self.is_done:
            self._wait(timeout_s)
        return self._load()  # type: ignore[no-any-return]

    @waits
    def exception(self, timeout: Duration | None = None) -> BaseException | None:
        """Wait until the call is answered; return what it raised, or None."""
        timeout_s = None if timeout is None else seconds_or_none(timeout, "timeout")
        if self.engine.is_asynchronous:
            return as_result(self._exception_async(timeout_s))
        if not self.is_done:
            self._wait(timeout_s)
        return self._error()

    def add_done_callback(self, fn: Callable[[ActorFuture[Result, Mode]], object]) -> None:
        """Call `fn(self)` when the call is answered, in a thread of the client or in its loop."""
        engine = self.engine
        if not self.notify(lambda: engine.call_back(fn, self)):
            engine.call_back(fn, self)

    def __await__(self) -> Generator[Any, None, Result]:
        """Wait for the result, in any event loop."""
        return self._result_async(None).__await__()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ABSENT["ActorFuture"]]

    def __repr__(self) -> str:
        return f"<ActorFuture: {self.status}, {self.key}>"

    @property
    def id(self) -> str:
        """The text by which the scheduler knows the call: see `ActorsBlocked`."""
        return call_text(self.engine.actor_connections().holder, self.connection, self.request)

    # What `wait`, `as_completed` and `gather` look at, as in futures of tasks and their states.
    _is_released: ClassVar[bool] = False
    value: ClassVar[Any] = NO_VALUE

    @property
    def _engine(self) -> Engine:
        return self.engine

    @property
    def _state(self) -> ActorFuture[Result, Mode]:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"the future of the call {self.key} cannot be pickled: pass its result, or the actor"
        )

    # --- Waiting ----------------------------------------------------------------------------------

    def notify(self, callback: Callable[[], object]) -> bool:
        """Have `callback` called when the call is done; False if it is done already."""
        with self.engine.actor_connections().lock:
            if self.is_done:
                return False
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)
            return True

    def forget(self, callback: Callable[[], object]) -> bool:
        """Do not call `callback`; False if it was called, or will be at once."""
        with self.engine.actor_connections().lock:
            if self._callbacks is None or callback not in self._callbacks:
                return False
            self._callbacks.remove(callback)
            return True

    def _wait(self, timeout_s: float | None) -> None:
        if self.engine.is_own_thread:
            raise RuntimeError(
                f"a call of {self.key} cannot be waited for in the thread of the client's event "
                "loop: await it"
            )
        check_not_own_calls([self])
        lock = threading.Lock()
        lock.acquire()
        wake = lock.release
        if not self.notify(wake):
            return
        is_done = False
        try:
            if is_in_task():
                is_done = self._acquire_in_task(lock, wake, timeout_s)
            else:
                is_done = acquire(lock, timeout_s)
        finally:
            if not is_done:  # also when interrupted
                self.forget(wake)
        if not is_done:
            raise self._late(timeout_s)

    def _acquire_in_task(
        self, lock: threading.Lock, wake: Callable[[], object], timeout_s: float | None
    ) -> bool:
        """Wait without the slot of the task, unless the answer comes soon."""
        if timeout_s is None or timeout_s > _SOON_S:
            if lock.acquire(timeout=_SOON_S):
                return True
            timeout_s = None if timeout_s is None else timeout_s - _SOON_S
        problems: list[str] = []

        def fail(text: str) -> None:
            if self.forget(wake):
                problems.append(text)
                lock.release()

        wait = None if timeout_s is not None else TaskWait([], fail, [self.actor_key], [self.id])
        with blocked(wait):
            is_done = acquire(lock, timeout_s)
        if problems:
            raise WaitingCycle(problems[0])
        return is_done

    async def _wait_async(self, timeout_s: float | None) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        wake = partial(call_in, loop, settle, future)
        if not self.notify(wake):
            return
        problems: list[str] = []

        def fail(text: str) -> None:
            if self.forget(wake):
                problems.append(text)
                wake()

        wait = None if timeout_s is not None else TaskWait([], fail, [self.actor_key], [self.id])
        try:
            with awaited(wait):
                if timeout_s is None:
                    await future
                else:
                    await asyncio.wait([future], timeout=max(timeout_s, 0.0))
        finally:
            if not future.done() or future.cancelled():
                self.forget(wake)
        if problems:
            raise WaitingCycle(problems[0])
        if not future.done():
            assert timeout_s is not None, "else it is done"
            raise self._late(timeout_s)

    async def _result_async(self, timeout_s: float | None) -> Any:
        if not self.is_done:
            await self._wait_async(timeout_s)
        return self._load()

    async def _exception_async(self, timeout_s: float | None) -> BaseException | None:
        if not self.is_done:
            await self._wait_async(timeout_s)
        return self._error()

    def _late(self, timeout_s: float | None) -> TimeoutError:
        return TimeoutError(f"no result of {self.key} within {timeout_s:g} s; the call goes on")

    def _error(self) -> BaseException | None:
        return None if self.failure is None else exception_from(self.failure, self.key)

    def _load(self) -> Any:
        error = self._error()
        if error is not None:
            raise error
        blob = self.blob  # first: another thread sets the value before it clears this
        if self._value is _NOT_LOADED:
            assert blob is not None, "it has been answered"
            value = loads(blob)
            if self._value is _NOT_LOADED:
                self._value = value
            self.blob = b""
            self.kept = None
        return self._value


answer_by_name(ActorFuture)


def split(items: list[Any]) -> tuple[list[FutureState], list[ActorFuture]]:
    """Divide what is waited for: the states of tasks, and the calls of actors."""
    if {*map(type, items)} <= {FutureState}:
        return items, []
    calls = [item for item in items if isinstance(item, ActorFuture)]
    return [item for item in items if not isinstance(item, ActorFuture)], calls


# --- Calls of handles, see `protocol/values/actors.py` --------------------------------------------


def call(actor: Actor, name: str, *args: Any, **kwargs: Any) -> ActorFuture:
    """Call a method of an actor."""
    if not kwargs and _PLAIN_TYPES.issuperset(map(type, args)):
        return _send(actor, name, pickle.dumps(args, PROTOCOL), None)
    with futures_met() as met:
        blob = dumps([args, kwargs] if kwargs else args, f"the arguments of {actor.key}.{name}")
    if blob.__class__ is Payload and blob.buffers:
        blob = blob.detached()  # the caller may change its arrays at once
    # Futures and handles among them must live until the actor has its own.
    return _send(actor, name, blob, met or None)


def read(actor: Actor, name: str) -> Any:
    """Return an attribute of an actor; for an asynchronous client an awaitable."""
    if len(name) > MAX_TEXT_CHARS:
        raise AttributeError(f"no attribute has a name of {len(name)} characters", obj=actor)
    future = _send(actor, name, None, None)
    return future if future.engine.is_asynchronous else future.result()


def _send(actor: Actor, name: str, arguments: Blob | None, kept: Any) -> ActorFuture:
    hold = actor._hold
    if hold is None:  # a copy in the store of a worker
        engine = find_current()._running()
    else:
        engine = hold._engine
        state = hold._state
        if state.failure is not None:
            raise exception_of(state)
    if engine.is_closed:
        raise ClientClosed(engine.closed_text)
    future = ActorFuture(engine, actor, name, arguments, kept)
    engine.actor_connections().send(future)
    return future


def kept(found: Actor) -> Actor:
    """Return a handle that keeps its actor alive, of one from the store of this worker."""
    hold = None
    with contextlib.suppress(ClientClosed):  # the program has no client of its own: see `_send`
        hold = bind_future(found.key)
    return Actor(found._info, hold, found._cell)


def future_of_actor(plain: Future) -> FutureOfActor:
    """Return the future of an actor for another future of the same key."""
    state = plain._state
    plain._is_released = True  # its reference goes over to the new one
    return FutureOfActor(plain._engine, state)


CALLS: Final = HandleCalls(call, read, kept, future_of_actor)
set_handle_calls(lambda: CALLS)


class FutureOfActor(Future):
    """The future of an actor; as an argument of a task it becomes a handle."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reduce_future_of_actor(_Plain(self))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or name in ABSENT["Future"]:
            raise missing_attribute("Future", name)
        raise AttributeError(
            f"the future of an actor has no attribute {name!r}: its result() is the actor, which "
            "has those of the class",
            name=name,
            obj=self,
        )


class _Plain:
    """Pickles a future of an actor as any other."""

    __slots__ = ("_future",)

    def __init__(self, future: Future) -> None:
        self._future = future

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Future.__reduce__(self._future)


# --- Making them ----------------------------------------------------------------------------------


def check_actor(actor: object, func: Callable[..., Any]) -> None:
    """Refuse anything but True for `actor=`, which might be meant for the function."""
    if actor is not True:
        name = getattr(func, "__name__", repr(func))
        raise TypeError(
            f"actor={actor!r} is not True or False: actor=True makes an object of {name} that "
            "lives on one worker; an argument of this name is given by position"
        )


def submit_actor(
    engine: Engine,
    encoder: Encoder,
    cls: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: Key | None,
    options: TaskOptions | AnnotatedOptions,
) -> Future:
    """Submit the making of one actor; see `Client.submit`."""
    check_no_option_of_ray(cls, kwargs)
    function = encoder.own_function(ACTOR_FUNCTION, "actor")
    given = (cls, *args)
    (blob, dependencies, shared), borrowing = encode(
        engine, encoder.call, function, given, kwargs, True
    )
    name = encoder.number_key(getattr(cls, "__name__", "actor")) if key is None else check_key(key)
    if isinstance(options, AnnotatedOptions):
        options = options.of(name)
    check_not_held(options, "an actor")
    digest: bytes | None = None
    replaced: list[FutureState] | None = None
    if key is None:
        state = FutureState(name)
        engine.table.add_one(state)
    else:
        digest = spec_hash(function.id, blob, dependencies)
        (state,), replaced = engine.attach([name], [digest])
    future = FutureOfActor(engine, state)
    if shared is not None:
        shared.submit(engine, lambda _: options.priority, [state], [dependencies])
    failed = replaced[0] if replaced else None
    record = TaskRecord(state, function, blob, dependencies, options, digest, failed)
    engine.post_submission(record) if borrowing is None else borrowing.post(record)
    engine.check_open()
    return future


def map_actors(
    engine: Engine,
    encoder: Encoder,
    cls: Callable[..., Any],
    rows: Iterable[tuple[Any, ...]],
    kwargs: dict[str, Any],
    key: str | Iterable[Key] | None,
    options: TaskOptions | AnnotatedOptions,
) -> list[Future]:
    """Submit the making of one actor for each row; see `Client.map`."""
    calls = list(rows)
    found: Any = None if key is None else check_keys(key)
    keys = [f"{found}-{i}" for i in range(len(calls))] if isinstance(found, str) else found
    if keys is not None and len(keys) != len(calls):
        raise ValueError(f"{len(keys)} keys were given for {len(calls)} calls; give one per call")
    return [
        submit_actor(engine, encoder, cls, args, kwargs, None if keys is None else keys[i], options)
        for i, args in enumerate(calls)
    ]
