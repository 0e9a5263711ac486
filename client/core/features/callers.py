"""Attempts on whose behalf the client in a worker's tasks submits. A part of the core.

Each of its submissions names an attempt that runs (`scheduler/core/members/delegation.py`), and is
refused when that has ended. But its tasks share the states of keys: one may wait for what another
one has submitted, which has ended since, or was dropped. So the last attempts that have submitted a
key that was known already are kept until its result is here, or it has failed. If the key is
refused to one of them, it is submitted on behalf of another. An input is submitted again on behalf
of the task that reads it. What reads a refused call has failed by then, and is submitted again
behind it. A refused input whose result is here is kept as one that the scheduler lacks, for the
next task that reads it.

A task's thread takes a future of a known key before the core hears of that. So what is refused to
all that are known, and has several futures, fails only after a tick: an attempt that joins it until
then submits it.

Outside of tasks no submission names an attempt, and nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import Failure, refused_attempt
from ....protocol.wire.options import TaskOptions
from ..feature import ClientFeature
from ..lineage import release_temporary, submit_with_inputs
from ..recipes import has_recipe
from ..releasing import guard, release
from ..submitting import close_submissions
from ..tasks import ERROR, KEPT, SENT, UNSENT, FutureState, is_unreadable
from ..transitions import move
from ..watching import fail

if TYPE_CHECKING:
    from ..state import ClientState


#: Attempts that are kept of one key: the last ones, most of which run.
MAX_CALLERS: Final = 64


class Callers:
    """The attempts that have submitted known keys, and what was refused. Empty outside of tasks."""

    def __init__(self) -> None:
        #: {state: {(attempt, actor): None}} that have submitted a known key that may be submitted
        #: again, or might have been at the last tick
        self.by_state: dict[FutureState, dict[tuple[int, str], None]] = {}
        #: {state without an end here: its failure, and whether a tick has passed since}
        self.refused: dict[FutureState, tuple[Failure, bool]] = {}
        #: {key: {reader: None}} refused, with the keys of what read it and was submitted again
        #: since, until the scheduler has read what was sent after that, at the latest at the next
        #: tick: what reads it may have been sent before
        self.missing: dict[str, dict[str, None]] = {}


def _has_ended(state: FutureState) -> bool:
    """Return whether a state has its result here or has failed; a task elsewhere may be lost."""
    return state.has_data or state.failure is not None


def on_joined(core: ClientState, state: FutureState, options: TaskOptions) -> None:
    """Note that an attempt has submitted a key that is known."""
    if _has_ended(state) or state.spec is None:
        return
    known = core.record(Callers)
    if state in known.refused:
        failure, _ = known.refused.pop(state)
        if refused_attempt(failure) != options.attempt:
            if not _submit_for(core, state, options.caller):
                fail(core, state, ERROR, failure)
            return
        known.refused[state] = failure, False
    callers = known.by_state.setdefault(state, {})
    callers[options.caller] = None
    if len(callers) > MAX_CALLERS:
        del callers[next(iter(callers))]


def _on_ticked(core: ClientState) -> None:
    """Forget those of what has ended here; fail what was refused to all."""
    known = core.record(Callers)
    if known.refused:
        refused, known.refused = known.refused, {}
        for state, (failure, is_old) in refused.items():
            if _has_ended(state) or state.phase != SENT:
                continue
            if is_old:
                fail(core, state, ERROR, failure)
            else:
                known.refused[state] = failure, True
    if known.missing:
        known.missing = {
            key: readers
            for key, readers in known.missing.items()
            if key in core.let_go or key in core.barriers
        }
    if known.by_state:
        known.by_state = {
            state: callers
            for state, callers in known.by_state.items()
            if not _has_ended(state) and core.table.states.get(state.key) is state
        }


def on_erred(core: ClientState, key: str, state: FutureState | None, failure: Failure) -> bool:
    """Submit again what was refused to one attempt only, and what has failed because of that."""
    known = core.record(Callers)
    if failure[0] == "not-permitted":
        known.missing[key] = {}
        if state is None:
            _keep_result(core, key)
            return False
        return _submit_for_another(core, state, failure)
    readers = known.missing.get(failure[1]) if failure[0] == "data-lost" else None
    if state is None or readers is None or key in readers or not has_recipe(core, state):
        return False
    readers[key] = None  # once: what it reads may never be taken, or have failed for all
    return _submit_for(core, state, next(reversed(known.by_state.get(state, {})), None))


def _keep_result(core: ClientState, key: str) -> None:
    """Note that the scheduler lacks a result that is here: it goes along with what reads it."""
    state = core.table.states.get(key)
    if state is None or state.phase != SENT or key in core.barriers or not has_recipe(core, state):
        return
    if state.has_data or is_unreadable(state):
        move(core, state, KEPT)
        release(core, [key])  # it may be wanted since before, and later messages are about that


def _submit_for_another(core: ClientState, state: FutureState, failure: Failure) -> bool:
    known = core.record(Callers)
    if not has_recipe(core, state):
        return False
    core.let_go[state.key] = None  # later messages may be about the row that was refused
    callers = known.by_state.get(state, {})
    refused = refused_attempt(failure)
    for caller in [caller for caller in callers if caller[0] == refused]:
        del callers[caller]
    if callers:
        return _submit_for(core, state, next(reversed(callers)))
    known.by_state.pop(state, None)
    if state.n_references < 2:
        return False
    known.refused[state] = failure, False
    return True


def _submit_for(
    core: ClientState, state: FutureState, caller: tuple[int, str] | None = None
) -> bool:
    """Submit a call again on behalf of this attempt; False if an input has failed meanwhile.

    None = on behalf of the same one.
    """
    guard(core, [state.key])
    move(core, state, UNSENT)
    if submit_with_inputs(core, state, caller) is not None:
        return False
    close_submissions(core)
    if core.temporary:
        release_temporary(core)
    return True


FEATURE: Final = ClientFeature(
    name="callers",
    records=(Callers,),
    joined=(on_joined,),
    erred=(on_erred,),
    ticked=(_on_ticked,),
)
