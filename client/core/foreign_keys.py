"""Submissions that read keys of other clients: they wait until the scheduler has those keys.

A part of the core.

Each client has its own connection, so the scheduler might read a call before the submission that
it depends on. A `Borrow` therefore waits until each of its loans is settled: the lending client
reports that the scheduler has read its submissions (`Lent`), or `LOAN_TIMEOUT_S` pass, and then the
calls that read those keys fail.

Invariant: a submission waits iff one of its loans is not settled, or one of its inputs waits. All
other operations are handled at once; those about a state that waits keep their order nevertheless:

- A submission that reads the state, and a `Confirm` about it, wait behind it, in their order.
- Releases are counted at once, but a submission that waits counts as a future of its states and of
  its inputs. So none of them is released before the submission was sent.
- Watchers are filed at the state as at any other one. `Want` needs no message for its key.
- `Cancel` fails the state, and then the submissions that read it, at once; they are never sent.

The waits form no circle, because a state depends only on states that were made before it, in this
client or in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from .events import Borrow, Confirm, Loan
from .tasks import ERROR, NEW, NOT_LENT, FutureState, TaskColumns, TaskRecord
from .watching import fail

if TYPE_CHECKING:
    from .state import ClientState

#: Time that a loan may take while there is a connection.
LOAN_TIMEOUT_S: Final = 10.0


class Waiting:
    """An operation that waits: a submission, or a `Confirm`."""

    __slots__ = ("loans", "operation", "shared", "since", "states")

    def __init__(
        self, operation: TaskRecord | TaskColumns | Confirm, loans: list[Loan], now: float
    ) -> None:
        self.operation = operation
        self.loans = loans
        self.since = now
        #: The states that it submits.
        self.states: list[FutureState] = [state for state, _ in _rows_of(operation)]
        #: The states for which it counts as a future: these and their inputs.
        self.shared: list[FutureState] = []

    @property
    def open_loans(self) -> list[Loan]:
        """The loans that it waits for."""
        return [loan for loan in self.loans if not loan.is_settled]


def _rows_of(operation: Any) -> Iterator[tuple[FutureState, list[str]]]:
    """Yield each state that an operation submits, with the keys that its task reads."""
    if operation.__class__ is TaskRecord:
        yield operation.state, operation.dependencies
    elif operation.__class__ is TaskColumns:
        yield from zip(operation.states, operation.dependencies or repeat([]), strict=False)


def must_wait(core: ClientState, operation: Any) -> bool:
    """Return whether an operation reads or confirms a state that waits."""
    cls = operation.__class__
    if cls is Borrow:
        operation = operation.task
    elif cls is Confirm:
        states = operation.states
        return bool(core.waiting_states) if states is None else _do_wait(core, states)
    table = core.table.states
    return any(
        _do_wait(core, (table[key] for key in keys if key in table))
        for _, keys in _rows_of(operation)
    )


def _do_wait(core: ClientState, states: Iterable[FutureState]) -> bool:
    # A task that was cancelled meanwhile does not wait; nor one that an equal call has submitted.
    return any(state in core.waiting_states and state.phase == NEW for state in states)


def keep_waiting(core: ClientState, operation: Any) -> None:
    """Keep an operation until `take_ready` returns it."""
    loans = []
    if operation.__class__ is Borrow:
        operation, loans = operation.task, operation.loans
    waiting = Waiting(operation, loans, core.now)
    table = core.table.states
    inputs = [table[key] for _, keys in _rows_of(operation) for key in keys if key in table]
    states = dict.fromkeys([*waiting.states, *inputs])
    waiting.shared = [state for state in states if core.table.share(state)]
    _append(core, waiting)


def _append(core: ClientState, waiting: Waiting) -> None:
    core.waiting.append(waiting)
    core.waiting_states.update(dict.fromkeys(waiting.states))


def take_ready(core: ClientState) -> list[Waiting]:
    """Remove and return the operations that need not wait any more, in order."""
    ready: list[Waiting] = []
    all_waiting = core.waiting[:]
    core.waiting.clear()
    core.waiting_states.clear()
    for waiting in all_waiting:
        if waiting.open_loans or must_wait(core, waiting.operation):
            _append(core, waiting)
        else:
            ready.append(waiting)
    return ready


def settle_late_loans(core: ClientState) -> bool:
    """Fail the calls whose loans are not settled in time; return whether there were any."""
    found = False
    for waiting in core.waiting:
        if not core.is_linked:
            # The lending client is likely to be without a connection as well.
            waiting.since = core.now
        elif core.now - waiting.since >= LOAN_TIMEOUT_S and waiting.open_loans:
            _fail_late(core, waiting)
            found = True
    return found


def _fail_late(core: ClientState, waiting: Waiting) -> None:
    lenders = {key: loan.lender for loan in waiting.open_loans for key in loan.keys}
    for state, keys in _rows_of(waiting.operation):
        missing = next((key for key in keys if key in lenders), None)
        if missing is not None and state.phase == NEW:  # else it was cancelled, say
            fail(core, state, ERROR, [NOT_LENT, state.key, missing, lenders[missing]])
    _settle(waiting)


def settle_all_loans(core: ClientState) -> None:
    """Wait for no loan any more: the client is at its end."""
    for waiting in core.waiting:
        _settle(waiting)


def _settle(waiting: Waiting) -> None:
    for loan in waiting.loans:
        loan.is_settled = True
