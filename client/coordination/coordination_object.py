"""The base of locks, events, queues and variables: a name, a client, and calls.

A method builds its call and a function that reads the answer. A blocking client waits for it in the
thread, which gives the slot of its task up meanwhile, and an asynchronous one returns a coroutine.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import (
    AlreadyHeld,
    ClientClosed,
    DatasetExists,
    DatasetNotFound,
    HeldClosed,
    HeldError,
    HoldLost,
    NotHeld,
    NotPermitted,
    OtherLimit,
    TooLarge,
    UnsupportedRequest,
    ValueNotRecorded,
    WaitingCycle,
    WeftError,
)
from ...protocol.wire.columns import MAX_KEY_CHARS
from ...protocol.wire.messages import Denied, Operated, Unsupported
from ...protocol.wire.messages.coordination import (
    ALREADY_HELD,
    CLOSED,
    CYCLE,
    DURABLE,
    EXISTS,
    HOLD_LOST,
    LATE,
    NOT_HELD,
    NOT_RECORDED,
    OTHER_LIMIT,
    TOO_LARGE,
    UNKNOWN_NAME,
)
from ..core.features.coordination import NO_ANSWER, AnswerTaken, CallAbandoned, ObjectCall
from ..dask.absent_names import ABSENT, answer_for
from ..insight.asking import error_of_end
from ..modes import Mode, OfMode, T
from ..shell.both_ways import blocks_here, result_of, wait, waiter_here
from ..shell.current import find_current
from ..shell.in_task import owner_here

if TYPE_CHECKING:
    from ...protocol.wire.payload import Blob
    from ..client import Client
    from ..shell.engine import Engine
    from ..shell.watchers import Waiter

#: A time limit is counted by the scheduler. A call whose answer is so much later, because the
#: scheduler is held up, has waited long enough. (The core ends calls while it is away.)
_PATIENCE_S: Final = 10.0

_ERRORS: Final[dict[str, Callable[[str], WeftError]]] = {
    CYCLE: WaitingCycle,
    ALREADY_HELD: AlreadyHeld,
    NOT_HELD: NotHeld,
    HOLD_LOST: HoldLost,
    CLOSED: HeldClosed,
    OTHER_LIMIT: OtherLimit,
    TOO_LARGE: TooLarge,
    NOT_RECORDED: ValueNotRecorded,
    EXISTS: DatasetExists,
    UNKNOWN_NAME: DatasetNotFound,
}

#: Operations that return False when their time is over.
_ASKING: Final = frozenset({"acquire", "wait"})

Read: TypeAlias = "Callable[[Engine, Operated], T]"
_Object = TypeVar("_Object", bound="CoordinationObject[Any]")


class _Later:
    """Stands for the client of an object that comes from a pickle: that of its first use."""

    def __reduce__(self) -> str:
        return "LATER"


LATER: Final[Any] = _Later()
#: Stands for a default that was not given.
NO_DEFAULT: Final[Any] = object()


class CoordinationObject(OfMode[Mode]):
    """The base class of all coordination objects.

    Args:
        name: of the object; objects of one class and name are the same, wherever they are made.
            None: a new name, for an object that is passed on in arguments.
        client: through which it is used; None = the current one where it is used.
    """

    _KIND: ClassVar[str]
    #: The arguments that it is made with, in their order, separated by blanks.
    _MADE_OF: ClassVar[str] = "name client"
    #: It is made at the scheduler, with its limit, before its first use.
    _IS_MADE: ClassVar[bool] = False
    #: What a restart of the scheduler loses that `get` may wait for.
    _LOST: ClassVar[str] = "what clients that are gone had set"
    #: The operation that waits for what a client has set; "" = there is none.
    _AWAITS: ClassVar[str] = ""
    #: No others are started in the place of a task that waits, if many wait already.
    _MAY_PARK: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if cls.__name__ in ABSENT:
            # By name: a checker that saw it would take any attribute for granted.
            setattr(cls, "__getattr__", answer_for(cls.__name__))  # noqa: B010

    def __init__(self, name: str | None = None, client: Client[Mode] | None = None) -> None:
        if name is None:
            name = f"{self._KIND}-{uuid.uuid4().hex}"
        check_name(name, type(self).__name__)
        if not (client is None or client is LATER or hasattr(type(client), "as_current")):
            raise TypeError(f"client= is a weft.Client, not {type(client).__name__}")
        self.name = name
        self._is_given = client is not None and client is not LATER
        self._client = _client_here() if client is None else client if self._is_given else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Become an object of the same name, used through the reader's client."""
        of = [LATER if name == "client" else getattr(self, name) for name in self._MADE_OF.split()]
        return type(self), tuple(of)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shown(self.name)}>"

    def __await__(self: _Object) -> Generator[Any, None, _Object]:
        """Return this object, which is known to the scheduler then if it has a limit."""

        async def made() -> _Object:
            if self._IS_MADE:
                await self._do("create", nothing)
            return self

        return made().__await__()

    @property
    def client(self) -> Client[Mode] | None:
        """The client through which it is used here; None = there is none."""
        if self._is_given or (self._client is not None and self._client.status != "closed"):
            return self._client
        return _client_here()

    # --- Calls ------------------------------------------------------------------------------------

    def _engine(self) -> Engine:
        client = self._client
        if client is None or (client.status == "closed" and not self._is_given):
            self._client = find_current()
        assert self._client is not None
        return self._client._running()

    def _call(
        self,
        operation: str,
        read: Read[T],
        arguments: dict[str, Any] | None = None,
        *,
        timeout: Duration | None = None,
        values: list[Blob | None] | None = None,
        keys: list[str] | None = None,
    ) -> T:
        """Do an operation: `read` makes the result from its answer. Awaitable if the client is."""
        return result_of(
            self._engine(),
            lambda: self._do(operation, read, arguments, timeout, values=values, keys=keys),
        )

    def _do(
        self,
        operation: str,
        read: Read[T],
        arguments: dict[str, Any] | None = None,
        timeout: Duration | None = None,
        *,
        values: list[Blob | None] | None = None,
        keys: list[str] | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Do an operation in a coroutine, whatever the client."""
        call, limit_s = self._made(operation, arguments, timeout, values, keys)
        return self._wait(self._engine(), call, limit_s, read)

    def _made(
        self,
        operation: str,
        arguments: dict[str, Any] | None,
        timeout: Duration | None,
        values: list[Blob | None] | None,
        keys: list[str] | None,
    ) -> tuple[ObjectCall, float | None]:
        timeout_s = seconds_or_none(timeout, "timeout")
        given = {**(arguments or {}), **self._limits()}
        owner = owner_here()
        if owner:
            given.setdefault("owner", owner)  # who waits, for explanations
        if timeout_s is not None:
            given["timeout"] = timeout_s
        call = ObjectCall(None, self._KIND, self.name, operation, given, values or [], keys or [])
        call.awaits_set = operation == self._AWAITS
        if timeout_s is None:
            return call, None
        call.due = time.monotonic() + timeout_s
        return call, timeout_s + _PATIENCE_S

    async def _wait(
        self, engine: Engine, call: ObjectCall, limit_s: float | None, read: Read[T]
    ) -> T:
        if self._MAY_PARK and blocks_here():
            call.arguments["blocks"] = True  # the worker does not report each such wait
        call.watcher = waiter = waiter_here()
        is_done = False
        try:
            await wait(engine, waiter, call, limit_s, may_park=self._MAY_PARK)
            answer = self._answer(engine, waiter)
            is_done = answer.problem != NO_ANSWER
        finally:
            if not is_done:
                _abandon(engine, call)
        return self._read(engine, call, answer, read)

    def _answer(self, engine: Engine, waiter: Waiter) -> Operated:
        """Return the answer that came, or one that says that there is none in time.

        Raises:
            WeftError: there will be none.
        """
        answer = waiter.answer
        what = f"{self._KIND} {self.name!r}"
        if isinstance(answer, Operated):
            return answer
        if isinstance(answer, Denied):
            raise NotPermitted(f"the use of {what}", answer.needed, answer.level)
        if isinstance(answer, Unsupported):
            raise UnsupportedRequest(f"the use of {what}", "the scheduler")
        if waiter.n_left > 0:
            return Operated(request=0, problem=NO_ANSWER)
        raise error_of_end(engine)

    def _read(self, engine: Engine, call: ObjectCall, answer: Operated, read: Read[T]) -> T:
        if answer.problem == NO_ANSWER and call.operation in _ASKING:
            answer = Operated(request=0)  # neither granted nor set
        if answer.problem:
            limit_s = call.arguments.get("timeout", 0.0)
            if answer.problem == NO_ANSWER:
                done = "" if call.operation == "get" else "; it is not known whether it was done"
                raise TimeoutError(
                    f"the scheduler is away, and did not answer {call.operation} of {self._KIND} "
                    f"{self.name!r} within {limit_s:g} s{done}"
                )
            if answer.problem == LATE:
                text = f"{self._late_text(call.operation)} within {limit_s:g} s"
                if call.is_after_restart and call.operation == "get":
                    text += (
                        "; the scheduler was started again since this client connected, and "
                        f"{self._LOST} is lost"
                    )
                raise TimeoutError(text)
            raise _ERRORS.get(answer.problem, HeldError)(answer.text)
        try:
            return read(engine, answer)
        finally:
            if answer.keys:
                engine.post(AnswerTaken(call, has_futures=True))
            elif call.request:
                engine.post_later(AnswerTaken(call))

    def _note(self, operation: str) -> None:
        """Do an operation, if there is a client, without waiting: a later one shows what failed."""
        client = self._client
        if client is not None and client.status == "running":
            call, _ = self._made(operation, None, None, None, None)
            client._running().post(call)

    # --- What kinds differ in ---------------------------------------------------------------------

    def _limits(self) -> dict[str, Any]:
        """Return the arguments of all calls."""
        return {}

    def _late_text(self, operation: str) -> str:
        return f"{operation} of {self._KIND} {self.name!r} was not possible"


def shown(name: str) -> str:
    """Return a name as the reprs of objects have it: in one line."""
    return name if name.isprintable() else repr(name)


def nothing(_engine: Engine, _answer: Operated) -> None:
    """Read an answer that says no more than that it was done."""


def count_in(_engine: Engine, answer: Operated) -> int:
    """Read an answer that is a number."""
    return int(answer.info["n"])


def durable_if(durable: bool) -> dict[str, Any]:
    """Return the arguments of a call that sets or puts something, durable or not."""
    return {DURABLE: True} if durable else {}


def check_flag(name: str, value: object) -> None:
    """Check a flag that an object is made with, or that one of its calls has.

    Raises:
        TypeError: it is none.
    """
    if type(value) is not bool:
        raise TypeError(f"{name}= is True or False, not {type(value).__name__}")


def check_int(name: str, value: object, least: int, most: int, why: str = "") -> None:
    """Check a number that an object is made with, or that one of its calls has.

    Raises:
        TypeError, ValueError: it is none, or out of range; `why` is said of the least one.
    """
    if type(value) is not int:
        raise TypeError(f"{name}= is an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name}= is from {least}{why} to {most}, not {value}")


def check_name(name: object, of: str) -> None:
    """Check the name of an object.

    Raises:
        TypeError, ValueError: it is no text, empty, or too long.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a {of} is a str, not {type(name).__name__}")
    if not 1 <= len(name) <= MAX_KEY_CHARS:
        raise ValueError(f"the name of a {of} has 1 to {MAX_KEY_CHARS} characters, not {len(name)}")
    check_text(name, f"the name of a {of}")


def check_text(text: str, what: str) -> None:
    """Check that a text can be sent.

    Raises:
        ValueError: it has a surrogate without its other half, which is no character.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} is no valid Unicode: {text[error.start]!r} at position {error.start} is a "
            "surrogate, as in names of files that cannot be decoded; leave it out, or replace it"
        ) from None


def names_in(names: object, of: str) -> list[str]:
    """Return the names of objects that a caller has given: one, or several.

    Raises:
        TypeError, ValueError: one is no text, empty, or too long.
    """
    if isinstance(names, str):
        found = [names]
    elif isinstance(names, Iterable) and not isinstance(names, (bytes, bytearray)):
        found = list(names)
    else:
        raise TypeError(
            f"the name of a {of} is a str, and several are a list of str, not "
            f"{type(names).__name__}"
        )
    for name in found:
        check_name(name, of)
    return found


def _client_here() -> Client[Any] | None:
    try:
        return find_current()
    except ClientClosed:
        return None


def _abandon(engine: Engine, call: ObjectCall) -> None:
    if not engine.is_gone:
        engine.post(CallAbandoned(call))
