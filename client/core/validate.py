"""The invariants that the comments of `state` and `tasks` state, by name; features have others.

For tests and the simulator, between two calls of `handle`; O(everything). An invariant returns the
items that break it. A failure is a bug of weft, whatever the scheduler sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...protocol.errors import InvalidState
from . import fetching
from .tasks import FAILED, FINISHED, GONE, KEPT, SENT, UNSENT, FutureState, is_unreadable
from .watching import THROUGH_SCHEDULER

if TYPE_CHECKING:
    from .feature import Invariant
    from .state import ClientState


def validate(core: ClientState) -> None:
    """Check every invariant.

    Raises:
        InvalidState: one does not hold. The text names it, and describes the item that breaks it.
    """
    for name, invariant in (*INVARIANTS.items(), *core.features.invariants.items()):
        for found in invariant(core):
            story = found.describe() if isinstance(found, FutureState) else ()
            raise InvalidState(f"{name}; found {found!r}", story)


def _known(core: ClientState) -> Iterable[FutureState]:
    return core.table.states.values()


def _miscounted(core: ClientState) -> list[FutureState]:
    n = Counter(s.function for s in _known(core) if s.function is not None)
    return [
        s for s in _known(core) if s.function is not None and s.function.n_wanted != n[s.function]
    ]


def _misfiled_fetches(core: ClientState) -> list[FutureState]:
    n = Counter(state for fetch in core.fetches.values() for state in fetch.states)
    n.update(state for queue in core.fetch_queues.values() for state in queue)
    return [s for s in {**core.fetching, **n} if n[s] != 1 or s not in core.fetching]


def _requests(core: ClientState) -> list[int]:
    return [
        core.check,
        *core.fetches,
        *core.retries,
        *core.barriers.values(),
        *(number for _, number in core.confirmations),
        *(number for requests in core.features.requests for number in requests(core)),
    ]


def _waits_for_nothing(core: ClientState) -> list[object]:
    found: list[object] = []
    before: set[FutureState] = set()
    for waiting in core.waiting:
        if not waiting.open_loans and not before:
            found.append(waiting.operation)
        before.update(waiting.states)
    return found


def _unless(holds: bool, found: object) -> list[object]:
    return [] if holds else [found]


#: {what holds: what breaks it}.
INVARIANTS: Final[dict[str, Invariant]] = {
    # States.
    "states are filed by their key": lambda core: [
        state for key, state in core.table.states.items() if state.key != key
    ],
    "states in the table have futures": lambda core: [
        state for state in _known(core) if state.n_references <= 0
    ],
    "a state has a failure iff it failed": lambda core: [
        s for s in _known(core) if (s.failure is not None) != (s.status in FAILED)
    ],
    "only finished states have data": lambda core: [
        state for state in _known(core) if state.status != FINISHED and state.has_data
    ],
    "watchers wait for what is not here": lambda core: [
        s for s in _known(core) if s.watchers and (s.failure is not None or s.has_data)
    ],
    # Submissions.
    "no submission is open between events": lambda core: _unless(
        not (core.open or core.open_option or core.open_options or core.open_place)
        and not (core.open_functions or core.open_nbytes),
        core.open,
    ),
    "all unsent states are known": lambda core: [
        state for state in core.unsent if core.table.states.get(state.key) is not state
    ],
    "unsent are the states of that phase": lambda core: [
        state for state in _known(core) if (state.phase == UNSENT) != (state in core.unsent)
    ],
    "kept are the states of that phase": lambda core: [
        s
        for s in {**core.kept, **dict.fromkeys(_known(core))}
        if (s.phase == KEPT) != (s in core.kept and core.table.states.get(s.key) is s)
    ],
    "kept states are done": lambda core: [
        s for s in core.kept if not s.has_data and not is_unreadable(s)
    ],
    "the makers of results that are gone are forgotten": lambda core: [
        state for state in core.made if state.phase == GONE
    ],
    "no input is left to be released between events": lambda core: core.temporary,
    "nothing is unsent while linked": lambda core: core.unsent if core.is_linked else (),
    "only sent states count for functions": lambda core: [
        state for state in _known(core) if state.function is not None and state.phase != SENT
    ],
    "functions count their states": _miscounted,
    # Keys of other clients.
    "waiting states are those of waiting submissions": lambda core: _unless(
        core.waiting_states.keys() == {s for w in core.waiting for s in w.states},
        core.waiting_states,
    ),
    "what waits has a loan to wait for, or is behind one": _waits_for_nothing,
    "waiting submissions hold their states": lambda core: [
        s for w in core.waiting for s in w.shared if s.n_references <= 0
    ],
    "nothing waits for other clients at the end": lambda core: (
        () if core.end is None else core.waiting
    ),
    # The session.
    "a client at its end is not linked": lambda core: _unless(
        core.end is None or not core.is_linked, core.end
    ),
    "all is answered for while linked": lambda core: _unless(
        core.unanswered is None or not core.is_linked, core.unanswered
    ),
    "barriers are in order": lambda core: _unless(
        [*core.barriers.values()] == sorted(core.barriers.values()), core.barriers
    ),
    "what is let go has no barrier yet": lambda core: [
        k for k in core.let_go if k in core.barriers
    ],
    "requests are numbered": lambda core: [n for n in _requests(core) if n > core.last_request],
    # Fetching.
    "no fetch queue is empty": lambda core: [h for h, q in core.fetch_queues.items() if not q],
    "a state is fetched once": _misfiled_fetches,
    "requests are counted by holder": lambda core: _unless(
        Counter(fetch.holder for fetch in core.fetches.values()) == core.n_fetches, core.n_fetches
    ),
    "requests of a holder are few": lambda core: [
        n for n in core.n_fetches.values() if n > fetching.MAX_REQUESTS_PER_HOLDER
    ],
    "bytes in flight are counted": lambda core: _unless(
        core.nbytes_in_flight == sum(f.nbytes for f in core.fetches.values()), core.nbytes_in_flight
    ),
    "the scheduler is asked for data while linked": lambda core: _unless(
        core.is_linked or core.end is not None or THROUGH_SCHEDULER not in core.n_fetches,
        core.n_fetches,
    ),
    "reasons of holders are few": lambda core: [*core.unreachable_reasons][fetching.MAX_REASONS :],
    # Watchers.
    "no batch is left between events": lambda core: core.touched,
    "no confirmation is left to be asked for between events": lambda core: core.to_confirm,
    "confirmations are asked for while linked": lambda core: [
        watcher for watcher, n in core.confirmations if n == 0 and core.is_linked
    ],
}
