"""`Future`: a user's handle of one result. Several may share a key; the last one releases it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..protocol.durations import Duration, seconds_or_none
from ..protocol.values.actors import Actor, StoredActor
from ..protocol.values.serialize import loads, reduce_future
from ..protocol.wire.keys import Key, key_of
from .core.events import Cancel, Loaded, Watch
from .core.recipes import SMALL_NBYTES
from .core.tasks import KEPT, NO_VALUE, FutureState, Watcher
from .dask.absent_names import ABSENT, answer_by_name
from .display import describing
from .modes import Mode, Result, Waited, as_result, waits
from .results.failures import exception_of, unreadable
from .shell.both_ways import result_of, settled, wait_for
from .shell.short_tracebacks import short_tracebacks
from .shell.watchers import unready

if TYPE_CHECKING:
    from types import TracebackType

    from ..protocol.values.printed import CallOutput
    from .client import Client
    from .insight.attempts import AttemptEnd
    from .insight.explaining import Explanation
    from .insight.measured import Measured
    from .insight.reproducing import Debugger
    from .shell.engine import Engine

# IPython and pytest leave out frames with a local variable `__tracebackhide__`. What raises the
# exception of a task sets it: the user's frames and those of the task say what has happened.

#: What a timeout means for the task.
_GOES_ON: Final = "; its task continues"


class _Reference:
    """The base class of `Future` until dask is loaded, with the layout of the one after that."""

    __slots__ = ("key",)


class Future(_Reference, Waited[Result, Mode]):
    """The result of a task, which may not have finished yet.

    Made by `Client.submit` and `Client.map`. In an asynchronous client `result`, `exception`,
    `traceback`, `attempts` and `cancel` return awaitables; a future can be awaited in any client.
    """

    __slots__ = ("__weakref__", "_engine", "_is_released", "_state")

    #: dask takes it for a reference to a key: see `join_dask`.
    __dask_future__ = True
    # Futures of one key are different objects; dask's references of one key are equal.
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __str__ = object.__str__

    def __init__(self, engine: Engine, state: FutureState) -> None:
        self._engine = engine
        self._state = state
        self._is_released = False

    # --- Looking ----------------------------------------------------------------------------------

    @property
    def key(self) -> Key:
        """The name of the task, unique in the cluster: a tuple if it was given as one."""
        return key_of(self._state.key)

    @property
    def status(self) -> str:
        """One of "pending", "finished", "error", "cancelled" and "lost". Never waits."""
        status = self._state.status
        if status == "pending":
            self._engine.note_look()
        return status

    @property
    def client(self) -> Client[Mode] | None:
        """The client that this future belongs to; None if it was collected."""
        return self._engine.client()  # type: ignore[no-any-return]

    #: dask's other name for `client`.
    executor = client

    def done(self) -> bool:
        """Return whether the task has finished, failed, or was cancelled or lost.

        Example:
            >>> future = client.submit(pow, 2, 10)
            >>> done, _ = weft.wait(future)
            >>> future.done(), future.status
            (True, 'finished')
        """
        return self.status != "pending"

    def cancelled(self) -> bool:
        """Return whether the task was cancelled."""
        return self._state.status == "cancelled"

    @property
    def type(self) -> type | None:
        """The type of the result, if that is in this process; None otherwise."""
        state = self._state
        if not state.has_data or self._load_error() is not None:
            return None
        return type(load(state, self._engine))

    # --- Waiting ----------------------------------------------------------------------------------

    @waits
    def result(self, timeout: Duration | None = None) -> Result:
        """Return the result, or raise the task's exception.

        Args:
            timeout: time to wait, in seconds or as "30s", ...; None = for ever.

        Raises:
            TimeoutError: the task was not done in time; it continues.

        Example:
            >>> client.submit(pow, 2, 10).result(timeout="1 min")
            1024
        """
        timeout_s = None if timeout is None else seconds_or_none(timeout, "timeout")
        engine = self._engine
        if engine.may_be_asynchronous and engine.is_asynchronous:
            return as_result(self._result_async(timeout_s))  # type: ignore[no-any-return]
        state = self._state
        # Another thread may have it run again before this one has seen its failure.
        while state.blob is None and state.value is NO_VALUE and state.failure is None:
            self._check_usable()
            with short_tracebacks:
                is_done = self._engine.wait_for([state], timeout_s, wants_data=True)
            if not is_done:
                late = partial(self._late, "no result of {}", timeout_s)
                raise result_of(engine, late, asynchronous=False)
        if state.failure is not None:
            __tracebackhide__ = True
            raise exception_of(state)
        return load(state, self._engine)  # type: ignore[no-any-return]

    async def _result_async(self, timeout_s: float | None = None) -> Any:
        if timeout_s is None:
            return await self
        state = self._state
        while unready([state]):
            self._check_usable()
            if not await self._engine.wait_for_async([state], timeout_s, wants_data=True):
                raise await self._late("no result of {}", timeout_s)
        if state.failure is not None:
            __tracebackhide__ = True
            raise exception_of(state)
        return load(state, self._engine)

    async def _late(self, what: str, timeout_s: float | None) -> TimeoutError:
        from .results.lateness import too_late

        assert timeout_s is not None
        text = f"{what.format(repr(self._state.key))} within {timeout_s:g} s"
        return await too_late(self._engine, text, [self._state], timeout_s, of_one=_GOES_ON)

    def __await__(self) -> Generator[Any, None, Result]:
        """Wait for the result, in any event loop."""
        state, engine = self._state, self._engine
        while state.blob is None and state.value is NO_VALUE and state.failure is None:
            self._check_usable()
            if asyncio._get_running_loop() is engine.loop:
                yield from engine.awaiting.wait(state)
            else:
                yield from engine.wait_for_async([state], None, wants_data=True).__await__()
        if state.failure is not None:
            __tracebackhide__ = True
            raise exception_of(state)
        return load(state, engine)  # type: ignore[no-any-return]

    @waits
    def exception(self, timeout: Duration | None = None) -> BaseException | None:
        """Wait until the task is done; return its exception, or None if it finished.

        A result that cannot be pickled, or not be unpickled here, is an error too. For a small
        result this is known at once. A result that stays on its worker is not fetched for this
        call, because it may be larger than this process can hold: its error becomes known, to
        `exception` and `status` too, when a call fetches the result.

        Example:
            >>> client.submit(int, "ten").exception()
            ValueError("invalid literal for int() with base 10: 'ten'")
        """
        timeout_s = None if timeout is None else seconds_or_none(timeout, "timeout")
        if self._state.status != "pending" and not self._engine.is_asynchronous:
            return self._load_error()
        with short_tracebacks:
            return result_of(self._engine, lambda: self._exception(timeout_s))

    async def _exception(self, timeout_s: float | None) -> BaseException | None:
        state = self._state
        if state.status == "pending":
            self._check_usable()
            if not await wait_for(self._engine, [state], timeout_s, wants_data=False):
                raise await self._late("{} was not done", timeout_s)
        return self._load_error()

    def _load_error(self) -> BaseException | None:
        """Return the error in place of a result, None if there is none, as far as known here."""
        state = self._state
        if state.failure is None and state.has_data:
            try_load(state, self._engine)
        if state.failure is not None:
            return exception_of(state)
        if self._is_released and not state.has_data:
            raise _released(state)
        return None

    @waits
    def traceback(self, timeout: Duration | None = None) -> TracebackType | None:
        """Return the traceback of the task's exception, None if it finished."""
        timeout_s = seconds_or_none(timeout, "timeout")

        async def traceback() -> TracebackType | None:
            error = await self._exception(timeout_s)
            return None if error is None else error.__traceback__

        with short_tracebacks:
            return result_of(self._engine, traceback)

    @waits
    def attempts(self) -> list[AttemptEnd]:
        """Return how the attempts to run the task ended: `[(worker, end), ...]`, oldest first.

        The scheduler remembers attempts that raised, whose worker died, or whose result was lost,
        of the latest 10 000 such tasks; and how attempts were ended that took too long, or whose
        task was cancelled with `running`. An attempt under way is not listed. After a restart of
        the scheduler less is known, see docs/client.md.

        Example:
            >>> future = client.submit(int, "ten", retries=1)
            >>> done, _ = weft.wait(future)
            >>> len(future.attempts())
            2
        """
        from .insight.attempts import attempts_of

        self._check_usable()
        return result_of(self._engine, lambda: attempts_of(self._engine, self._state.key))

    @waits
    def output(self, timeout: Duration | None = None) -> CallOutput:
        """Wait until the task is done; return what its last attempt has printed.

        That of a call with `output="keep"`, or of a `weft.Command`, also if it has failed.

        Args:
            timeout: time to wait, in seconds or as "30s", ...; None = for ever.

        Raises:
            KeyError: nothing is kept of it; the text says why that may be.
            TimeoutError: the task was not done in time; it continues.
        """
        from .insight.outputs import output_of

        timeout_s = seconds_or_none(timeout, "timeout")

        async def output() -> CallOutput:
            if self._state.status == "pending":
                await self._exception(timeout_s)
            return await output_of(self)

        return result_of(self._engine, output)

    @waits
    def measured(self) -> Measured:
        """Return what the last attempt of the task has used that has ended.

        The scheduler remembers the latest 10 000 tasks; tiny ones are not measured. An awaitable in
        an asynchronous client.

        Returns:
            A `Measured`: `wall_s` and `cpu_s` in seconds, `peak_rss`, `read_bytes` and
            `written_bytes`, and `is_shared`; None for what is not known.
        """
        from .insight.measured import measured_of

        self._check_usable()
        return result_of(self._engine, lambda: measured_of(self._engine, self._state.key))

    @waits
    def explain(self) -> Explanation:
        """Explain why the task does not run or is not done, and where its time went.

        Returns:
            An `Explanation`; printed, it is a text. An awaitable in an asynchronous client.
        """
        self._check_usable()
        return self._engine.client().explain(self)  # type: ignore[no-any-return]

    @waits
    def reproduce(self, debugger: Debugger = False) -> Result:
        """Run the task here, with its inputs, to look at its failure; see `Client.reproduce`.

        Args:
            debugger: True = enter pdb where the exception was raised; or a function of a traceback.
        """
        self._check_usable()
        return self._engine.client().reproduce(self, debugger)  # type: ignore[no-any-return]

    def add_done_callback(self, fn: Callable[[Future[Result, Mode]], object]) -> None:
        """Call `fn(self)` when the future is done, in a thread of the client.

        The callbacks of a client run one after another, and have one more second when the program
        ends. In an asynchronous client `fn` is called by the event loop, and must not block.

        Example:
            >>> import queue
            >>> ended = queue.Queue()
            >>> client.submit(pow, 2, 10).add_done_callback(ended.put)
            >>> ended.get().result()
            1024
        """
        self._check_usable()
        self._engine.post(Watch(_Callback(self, fn), [self._state]))
        self._engine.check_open()

    # --- Releasing --------------------------------------------------------------------------------

    @waits
    def cancel(
        self,
        reason: str | None = None,
        msg: str | None = None,
        force: bool = False,
        asynchronous: bool | None = None,
        running: bool = False,
    ) -> None:
        """Cancel the task if it is not done. One that runs goes on unseen, unless `running`.

        Args:
            reason: the text of the error that waiting callers get.
            msg: added to `reason`.
            force: even if other clients want its result.
            asynchronous: return an awaitable; None = if the client is asynchronous.
            running: interrupt it if it runs: see docs/ending.md.

        Example:
            >>> waiting = client.submit(weft.Event("never set").wait)
            >>> waiting.cancel(running=True, reason="no longer needed")
            >>> waiting.cancelled()
            True
        """
        self._check_usable()
        why, runs = cancel_reason(reason, msg), checked_running(running)
        self._engine.post(Cancel([self._state], force, why, runs))
        return settled(self._engine, asynchronous)

    @waits
    def retry(self, asynchronous: bool | None = None) -> None:
        """Run the task again if it has failed, with those of its inputs that failed.

        The future is pending again, as all futures of this key in this client.

        Args:
            asynchronous: return an awaitable; None = if the client is asynchronous.

        Raises:
            ValueError: the task was cancelled, or did not fail by itself; submit its call again.

        Example:
            >>> import pathlib
            >>> read = client.submit(pathlib.Path("text.txt").resolve().read_text)
            >>> type(read.exception()).__name__
            'FileNotFoundError'
            >>> pathlib.Path("text.txt").write_text("found")
            5
            >>> read.retry()
            >>> read.result()
            'found'
        """
        from .cluster.retrying import retry_states

        self._check_usable()
        return retry_states(self._engine, [self._state], asynchronous)

    def release(self) -> None:
        """Release the result now, without waiting for this object to be collected."""
        if not self._is_released:
            self._is_released = True
            state = self._state
            # This object may live on; it must not keep the copy of the result alive.
            self._state = FutureState(state.key)
            self._state.status = state.status
            self._engine.post_later(state)

    def __del__(self) -> None:
        # Without __init__ (an interrupt) there is nothing to release. No lock, no log here: this
        # runs at any point of any thread.
        try:
            if not self._is_released:
                self._is_released = True
                self._engine.post_later(self._state)
        except AttributeError:
            return

    def _check_usable(self) -> None:
        if self._is_released:
            raise _released(self._state)
        self._engine.check_open()

    # --- Being passed around ----------------------------------------------------------------------

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Become a dependency in the arguments of a task; elsewhere keep the key."""
        if self._is_released:
            raise _released(self._state)
        return reduce_future(self._state.key, self)

    def before_leaving(self) -> None:
        """Make sure that the scheduler has the task before a reader of the pickle asks for it."""
        if self._state.status == "pending" or self._state.phase == KEPT:
            self._engine.confirm(self._state)

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        # dask uses an existing expression for an equal token: it may have futures of another
        # client, or released ones.
        return "weft.Future", self._state.key, id(self)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ABSENT["Future"]]

    def __repr__(self) -> str:
        return f"<Future: {self._state.status}, key: {self._state.key}>"

    def _repr_html_(self) -> str:
        return describing.of_future(self)


answer_by_name(Future)


def join_dask() -> None:
    """Make futures references of dask, if it is loaded: `dask.delayed(future)` asks for the class.

    The class of references has one slot, as `_Reference` has, so that one can take the place of the
    other. If a version of dask has another layout, dask still knows futures by `__dask_future__`.
    """
    spec = sys.modules.get("dask._task_spec")
    reference = getattr(spec, "TaskRef", None)  # None while another thread imports it
    if reference is not None and not issubclass(Future, reference):
        with contextlib.suppress(TypeError):
            Future.__bases__ = (reference, *Future.__bases__[1:])


def cancel_reason(reason: str | None, msg: str | None) -> str:
    """Return the reason for the errors of cancelled tasks.

    Raises:
        TypeError: it is not a text.
    """
    for name, text in (("reason", reason), ("msg", msg)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name}= is a text, not {text!r}")
    return ": ".join(text for text in (reason, msg) if text)


def checked_running(running: object) -> bool:
    """Return the option `running` of `cancel`.

    Raises:
        TypeError: it is not a bool.
    """
    if type(running) is not bool:
        raise TypeError(f"running= is True (interrupt what runs) or False, not {running!r}")
    return running


def _released(state: FutureState) -> ValueError:
    return ValueError(f"the future of {state.key!r} was released; submit its call again")


class _Callback(Watcher):
    """A watcher that keeps the future alive until its callback is called."""

    __slots__ = ("_fn", "_future")

    def __init__(self, future: Future[Any, Any], fn: Callable[[Any], object]) -> None:
        super().__init__(wants_data=False)
        self._future = future
        self._fn = fn

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._future._engine.call_back(self._fn, self._future)


def load(state: FutureState, engine: Engine) -> Any:
    """Return the result of a finished state whose data is here; unpickled once.

    Raises the exception of unpickling, which is the failure of the state from then on, except for
    MemoryError, which may not happen again.
    """
    blob = state.blob
    value = state.value
    if value is not NO_VALUE:
        return value
    # `value` or `failure` is set before `blob` is cleared, and `value` was read after it.
    if blob is not None:
        try:
            value = loads(blob)
        except MemoryError:
            raise
        except Exception as error:
            engine.fail_unreadable(state, unreadable(state, error))
        else:
            if type(value) is StoredActor and value.key == state.key:
                # Not kept as the value: the future in the handle would keep the future alive.
                return Actor(value._info, _another(state, engine))
            state.value = value
            if state.spec is not None:
                state.blob = None  # from its record it is computed again
            elif blob.__class__ is not bytes or len(blob) >= SMALL_NBYTES:
                engine.post_later(Loaded(state))
            return value
    if state.failure is not None:
        raise exception_of(state)
    value = state.value  # another thread was faster
    if value is NO_VALUE:
        raise _released(state)
    return value


def _another(state: FutureState, engine: Engine) -> Future:
    """Return one more future of a state."""
    if not engine.table.share(state):
        raise _released(state)
    return Future(engine, state)


def try_load(state: FutureState, engine: Engine) -> bool:
    """Load a result if that is possible; False if the state failed, perhaps just now."""
    if state.failure is None:
        try:
            load(state, engine)
        except Exception:
            if state.failure is None:
                raise
    return state.failure is None
