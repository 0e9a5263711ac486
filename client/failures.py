"""Failures, as messages carry them, into the exceptions that users meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol.errors import (
    ClientClosed,
    CommClosed,
    DataLost,
    LocalProtocolError,
    NoWorker,
    RemoteProtocolError,
    TaskCancelled,
    TaskErred,
    WorkerDied,
)
from ..protocol.failure import Failure
from .tasks import FutureState


def _from_exception(failure: Failure) -> BaseException:
    from ..protocol.exceptions import unpack_exception

    return unpack_exception(failure[2:])


#: {kind: failure -> exception}. `protocol.failure` has the kinds that travel; the others are made
#: by the client's core.
_MAKERS: dict[str, Callable[[list[Any]], BaseException]] = {
    "exception": _from_exception,
    "worker-died": lambda f: WorkerDied(f[1], f[2], f[3], f[4]),
    "no-worker": lambda f: NoWorker(f[1], f[2]),
    "data-lost": lambda f: DataLost(f[1], f[2]),
    "cancelled": lambda f: TaskCancelled(f[1], f[2]),
    "key-conflict": lambda f: ValueError(
        f"key {f[1]!r} belongs to a task of another function or of other arguments, which somebody "
        "still holds; choose another key"
    ),
    "connection-lost": lambda f: CommClosed(f[2]),
    "client-closed": lambda _: ClientClosed(),
    "not-sent": lambda f: LocalProtocolError(f"task {f[1]!r} was not sent: {f[2]}"),
}


def exception_of(state: FutureState) -> BaseException:
    """Return why a failed state has no result: a new exception each time."""
    failure = state.failure
    assert failure is not None
    kind, key = failure[0], failure[1]
    maker = _MAKERS.get(kind)
    try:
        made = maker(failure) if maker else TaskErred(key, str(kind), " ".join(map(str, failure)))
    except (LookupError, TypeError, ValueError, RemoteProtocolError) as error:
        # Of another version perhaps. What is certain: this task has no result.
        made = TaskErred(state.key, str(kind), f"[not readable here: {error}]")
    if key and key != state.key:
        _add_note(made, f"weft: task {state.key} depends on {key}, which failed")
    return made


def traceback_of(state: FutureState) -> Any:
    """Return the traceback object of a failed state's exception, None if it has none."""
    return exception_of(state).__traceback__


def _add_note(exc: BaseException, note: str) -> None:
    if hasattr(exc, "add_note"):
        exc.add_note(note)
    else:  # Python 3.10 does not print notes, but keeps them
        exc.__notes__ = [*getattr(exc, "__notes__", ()), note]
