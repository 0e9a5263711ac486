"""Makes the exceptions that users get from failures, as messages carry them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Final

from ...protocol.death_facts import DeathFacts
from ...protocol.errors import (
    ActorCallInDoubt,
    ActorLost,
    AllotmentExceeded,
    ClientClosed,
    CommClosed,
    CommError,
    DataLost,
    ForeignFuture,
    GangEnded,
    JobNotRecorded,
    LocalProtocolError,
    MemoryExceeded,
    NotPermitted,
    NoWorker,
    RemoteProtocolError,
    RowsFailed,
    TaskCancelled,
    TaskErred,
    TaskError,
    TaskTimedOut,
    UnsupportedRequest,
    UserLimit,
    WorkerDied,
)
from ...protocol.wire.failure import (
    ALLOTMENT_EXCEEDED,
    GANG_ENDED,
    MAX_RELAYED_BYTES,
    MEMORY_EXCEEDED,
    TIMED_OUT,
    Failure,
)
from ...protocol.wire.keys import key_of
from ..calls.call_options import meant_option
from ..core.features.notices import notices_of
from ..core.foreign_keys import LOAN_TIMEOUT_S
from ..core.tasks import NOT_LENT, UNREADABLE, FutureState

if TYPE_CHECKING:
    from ..core.state import ClientState

#: Tasks that are looked at for the reason of a timeout.
_MAX_INPUTS: Final = 10_000


def _from_exception(failure: Failure) -> BaseException:
    from ...protocol.values.exceptions import N_PACKED, add_note, unpack_exception

    packed, attempts = failure[2 : 2 + N_PACKED], failure[2 + N_PACKED :]
    made = unpack_exception(packed, failure[1])
    if attempts:
        add_note(made, f"weft: attempt {attempts[0]} of {attempts[0]}: each one raised")
    if isinstance(made, TypeError) and (option := meant_option(str(made))):
        add_note(made, f"weft: did you mean {option}?")
    elif isinstance(made, PicklingError) and "not the same object as __main__." in str(made):
        add_note(
            made,
            "weft: with processes=False, multiprocessing in a task cannot send the script's "
            "functions and classes: use worker processes, or move them into a module",
        )
    return made


def _timed_out(failure: Failure) -> TaskTimedOut:
    _, key, function, timeout_us, worker, can_end, n_failed, *category = failure
    text = "it was interrupted, and its process is ended if it goes on all the same"
    if not can_end:
        text = (
            "it was interrupted; if it goes on all the same, it keeps its thread, because its "
            "process is that of a program (processes=False), or has no supervisor"
        )
    if n_failed > 1:
        text += f" (attempt {n_failed} of {n_failed}: each one failed)"
    return TaskTimedOut(key, function, timeout_us / 1e6, worker, text, *category)


def _allotment_exceeded(failure: Failure) -> AllotmentExceeded:
    _, key, category, allotted, used, worker, is_own = failure
    limit = "its max_memory=" if is_own else "the memory of the largest worker"
    return AllotmentExceeded(key, category, allotted, used, worker, limit)


def _gang_ended(failure: Failure) -> GangEnded:
    _, key, rank, size, kind, *fields = failure
    cause = exception_from([kind, key, *fields], key)
    made = GangEnded(key, rank, size, f"{type(cause).__name__}: {cause}")
    made.__cause__ = cause
    return made


#: {kind: failure -> exception}. `protocol.wire.failure` has the kinds that travel; the others are
#: made by the client's core.
_MAKERS: dict[str, Callable[[list[Any]], BaseException]] = {
    "exception": _from_exception,
    UNREADABLE: _from_exception,
    "worker-died": lambda f: WorkerDied(f[1], f[2], f[3], f[4], DeathFacts.from_items(f[5:])),
    "actor-lost": lambda f: ActorLost(f[1], f[2]),
    "actor-in-doubt": lambda f: ActorCallInDoubt(f[1], f[2]),
    "data-lost": lambda f: DataLost(f[1], f[2]),
    MEMORY_EXCEEDED: lambda f: MemoryExceeded(f[1], f[2]),
    ALLOTMENT_EXCEEDED: _allotment_exceeded,
    "unreachable": lambda f: CommError(
        f"the result of task {f[1]!r} is on a worker that cannot be reached from here ({f[2]}), "
        f"and the scheduler does not pass it on; its limit is {MAX_RELAYED_BYTES >> 20} MiB",
        f[3],
    ),
    TIMED_OUT: _timed_out,
    "cancelled": lambda f: TaskCancelled(f[1], f[2]),
    "key-conflict": lambda f: ValueError(
        f"key {f[1]!r} belongs to a task of another function or of other arguments, or of other "
        "times (cron=), which a client still holds; choose another key"
    ),
    "not-understood": lambda f: UnsupportedRequest(
        f"the option {f[2]} of task {f[1]!r}", "the scheduler"
    ),
    GANG_ENDED: _gang_ended,
    "no-worker": lambda f: NoWorker(f[1], f[2] / 1000, f[3]),
    "rows-failed": lambda f: RowsFailed(*f[1:5]),
    "user-limit": lambda f: UserLimit(*f[1:7]),
    "unrecorded": lambda f: JobNotRecorded(f[1], f[2]),
    "not-permitted": lambda f: NotPermitted(f[2], f[3], f[4]),
    "connection-lost": lambda f: CommClosed(f[2]),
    "client-closed": lambda _: ClientClosed(),
    NOT_LENT: lambda f: ForeignFuture(
        f"task {f[1]!r} was not submitted: its argument {f[2]!r} is a future of the client {f[3]}, "
        f"which did not confirm within {LOAN_TIMEOUT_S:g} s that the scheduler has it; that "
        "client's event loop is blocked or has ended, or it has no connection. Do not block that "
        "loop, or wait for the future first and pass its result"
    ),
    "not-sent": lambda f: LocalProtocolError(f"task {f[1]!r} was not sent: {f[2]}"),
}


def exception_from(failure: Failure, of: str) -> BaseException:
    """Make the exception of a failure of `of`, a task or a call of an actor."""
    kind, key = failure[0], failure[1]
    maker = _MAKERS.get(kind)
    try:
        return maker(failure) if maker else TaskErred(key, str(kind), " ".join(map(str, failure)))
    except (LookupError, TypeError, ValueError, RemoteProtocolError) as error:
        # It is perhaps of another version; but certainly there is no result.
        return TaskErred(of, str(kind), f"[not readable here: {error}]")


def exception_of(state: FutureState) -> BaseException:
    """Return why a failed state has no result: a new exception each time."""
    failure = state.failure
    assert failure is not None
    key = failure[1]
    made = exception_from(failure, state.key)
    if isinstance(made, TaskError) and made.key == key:
        # As the user gave it: other processes know only its text.
        made.key = key_of(key)
        made.args = (made.key, *made.args[1:])
    notes = []
    if key and key != state.key:
        notes.append(f"weft: task {state.key} depends on {key}, which failed")
    shown = getattr(state, "shown", {})
    if shown:
        given = ", ".join(f"{name} {value!r}" for name, value in shown.items())
        notes.append(f"weft: task {state.key} was submitted with {given}")
    if notes:
        from ...protocol.values.exceptions import add_note

        for note in notes:
            add_note(made, note)
    return made


def last_notice(core: ClientState, states: Iterable[FutureState]) -> str:
    """Return what the scheduler reported of tasks that no worker can run, for texts of timeouts."""
    reports = notices_of(core).unrunnable
    if not reports:
        return ""
    for state in _with_inputs(states):
        reason = reports.get(state.key)
        if reason is not None:
            return (
                f". The scheduler's last notice was that {state.key!r} waits for a worker that can "
                f"run it: {reason}"
            )
    return ""


def _with_inputs(states: Iterable[FutureState]) -> Iterator[FutureState]:
    """Yield states, the inputs of their tasks, the inputs of these, and so on."""
    met = dict.fromkeys(states)
    left = deque(met)
    while left:
        state = left.popleft()
        yield state
        spec = state.spec  # the loop's thread may clear it at any time
        if spec is not None and len(met) < _MAX_INPUTS:
            new = [each for each in spec.row(state.key).lineage if each not in met]
            met.update(dict.fromkeys(new))
            left.extend(new)


def unreadable(state: FutureState, error: Exception) -> Failure:
    """Make the failure of a result whose unpickling raised `error`."""
    from ...protocol.values.exceptions import name_packed, pack_exception

    note = f"weft: the result of task {state.key} could not be read here"
    packed = pack_exception(error, state.key, "")
    return [UNREADABLE, state.key, *name_packed(packed, state.key, note)]
