"""Questions that the scheduler passes on to a worker or a supervisor, and the answers back.

A client reaches only the scheduler for sure, and only the scheduler can check a client's token: a
worker knows no higher one than its own. So questions to workers come this way, `run` among them.
What is kept is one record per question under way. It ends with the answer, with the connection of
the asked process, or with that of the asking peer. The content of blobs is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import MAX_RELAYED_BYTES
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER, UNKNOWN_QUESTION
from ....protocol.wire.payload import blob_nbytes
from ....protocol.wire.plain import MAX_ANSWER_DEPTH, is_flat
from ..records.peers import SupervisorHandle, WorkerHandle
from ..records.permissions import deny

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A process with so many unanswered questions is asked no more, lest they pile up for one that
#: hangs.
MAX_UNANSWERED: Final = 100

_TOO_DEEP: Final = f"maps and lists are nested in more than {MAX_ANSWER_DEPTH} others"

#: {question: the least level of token} of those that are passed on
PASSED: Final[dict[str, Level]] = {
    "held": Level.VIEW,
    "versions": Level.VIEW,
    "process": Level.VIEW,
    "reach": Level.VIEW,
    "call_stack": Level.CLIENT,
    "profile": Level.CLIENT,
    "logs": Level.CLIENT,
    "run": Level.CLIENT,
    "scale": Level.ADMIN,
}


@dataclass(slots=True)
class Passed:
    """A question under way."""

    peer: int  #: that asks
    request: int  #: of that peer
    name: str


class PassedOn(dict["WorkerHandle | SupervisorHandle", dict[int, Passed]]):
    """The questions under way: {asked process: {request to it: question}}; none is empty."""


def passed_of(state: SchedulerState) -> PassedOn:
    """Return the questions under way."""
    return state.record(PassedOn)


def on_ask_other(state: SchedulerState, peer: int, message: m.Ask, level: Level) -> None:
    """A peer asks the process `message.to`, with the rights of a level."""
    needed = PASSED.get(message.name)
    if needed is None:
        text = f"there is no question {message.name[:100]!r} to workers and supervisors"
        _fail(state, peer, message.request, UNKNOWN_QUESTION, text)
        return
    if needed > level:
        deny(state, peer, message, needed)
        return
    asked = _find(state, message.to)
    if asked is None or asked.peer not in state.roles:
        text = "it is not connected to the scheduler"
        _fail(state, peer, message.request, NO_ANSWER, text)
        return
    n_unanswered = len(passed_of(state).get(asked, ()))
    if n_unanswered >= MAX_UNANSWERED:
        text = f"{n_unanswered} questions to it are unanswered, so it is asked no more"
        _fail(state, peer, message.request, NO_ANSWER, text)
        return
    if not is_flat(message.arguments):
        _fail(state, peer, message.request, BAD_ARGUMENT, _TOO_DEEP)
        return
    if message.name == "reach" and not _is_of_workers(state, message.arguments.get("addresses")):
        # Else whoever may look at the cluster could make it connect to anything.
        text = "addresses= has one that is of no connected worker"
        _fail(state, peer, message.request, BAD_ARGUMENT, text)
        return
    nbytes = sum(blob_nbytes(blob) for blob in message.blobs if blob is not None)
    if nbytes > MAX_RELAYED_BYTES:
        text = f"{nbytes} bytes are more than the limit of {MAX_RELAYED_BYTES >> 20} MiB"
        _fail(state, peer, message.request, BAD_ARGUMENT, text)
        return
    request = state.new_request()
    passed = Passed(peer, message.request, message.name)
    passed_of(state).setdefault(asked, {})[request] = passed
    state.send(
        asked.peer,
        m.Ask(
            request=request,
            name=message.name,
            arguments=message.arguments,
            page=message.page,
            blobs=message.blobs,
        ),
    )


def on_answer(
    state: SchedulerState, asked: WorkerHandle | SupervisorHandle, message: m.Answer | m.AskFailed
) -> None:
    """An asked process answers."""
    passed = _take(state, asked, message.request)
    if passed is None:
        return  # the peer that asked is gone
    if isinstance(message, m.AskFailed):
        _fail(state, passed.peer, passed.request, message.kind, message.text)
        return
    if not is_flat(message.info):
        _fail(state, passed.peer, passed.request, NO_ANSWER, _TOO_DEEP)
        return
    nbytes = sum(blob_nbytes(blob) for blob in message.blobs if blob is not None)
    if nbytes > MAX_RELAYED_BYTES:
        text = (
            f"its answer of {nbytes} bytes is beyond the limit of {MAX_RELAYED_BYTES >> 20} MiB; "
            "submit a task, whose result comes straight from the worker"
        )
        _fail(state, passed.peer, passed.request, NO_ANSWER, text)
        return
    state.send(
        passed.peer,
        m.Answer(
            request=passed.request,
            info=message.info,
            next_page=message.next_page,
            blobs=message.blobs,
        ),
    )


def on_unsupported(state: SchedulerState, who: object, request: int) -> None:
    """An asked process does not know questions at all."""
    if isinstance(who, (WorkerHandle, SupervisorHandle)):
        passed = _take(state, who, request)
        if passed is not None:
            text = "it runs a version of weft that answers no questions"
            _fail(state, passed.peer, passed.request, UNKNOWN_QUESTION, text)


def end_questions_to(state: SchedulerState, asked: WorkerHandle | SupervisorHandle) -> None:
    """The connection of an asked process has ended: nothing it was asked will be answered."""
    for passed in passed_of(state).pop(asked, {}).values():
        text = "its connection to the scheduler ended before it answered"
        if passed.name == "run":
            text += "; whether the function has run there is not known"
        _fail(state, passed.peer, passed.request, NO_ANSWER, text)


def on_worker_away(state: SchedulerState, ws: WorkerHandle) -> None:
    """End the questions to a worker, if it is away because its connection has ended."""
    if ws.peer not in state.roles:
        end_questions_to(state, ws)


def end_questions_of(state: SchedulerState, peer: int) -> None:
    """The connection of a peer that may have asked has ended."""
    for asked, under_way in list(passed_of(state).items()):
        for request in [n for n, passed in under_way.items() if passed.peer == peer]:
            del under_way[request]
        if not under_way:
            del passed_of(state)[asked]


def _is_of_workers(state: SchedulerState, addresses: Any) -> bool:
    """Return whether these are data ports of workers of this cluster."""
    return isinstance(addresses, list) and all(
        isinstance(address, str) and address in state.workers_by_address for address in addresses
    )


def _find(state: SchedulerState, process: str) -> WorkerHandle | SupervisorHandle | None:
    found = state.workers_by_id.get(process)
    if found is not None:
        return found
    return next(iter(state.supervisors_by_id.get(process, {}).values()), None)


def _take(
    state: SchedulerState, asked: WorkerHandle | SupervisorHandle, request: int
) -> Passed | None:
    under_way = passed_of(state).get(asked)
    if under_way is None:
        return None
    passed = under_way.pop(request, None)
    if not under_way:
        del passed_of(state)[asked]
    return passed


def _fail(state: SchedulerState, peer: int, request: int, kind: str, text: str) -> None:
    state.send(peer, m.AskFailed(request=request, kind=kind, text=text))


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
PASSED_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "questions are passed on to registered processes": lambda s: [
        p
        for p in passed_of(s)
        if s.workers.get(p.peer) is not p and s.supervisors.get(p.peer) is not p
    ],
    "a process that was asked is connected": lambda s: [
        p for p in passed_of(s) if p.peer not in s.roles
    ],
    "the peer whose question is passed on is connected": lambda s: [
        q
        for under_way in passed_of(s).values()
        for q in under_way.values()
        if q.peer not in s.roles
    ],
    "an asked process has few questions, and at least one": lambda s: [
        p for p, under_way in passed_of(s).items() if not 0 < len(under_way) <= MAX_UNANSWERED
    ],
}
