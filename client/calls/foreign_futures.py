"""Futures of one client as arguments of another one's calls.

Each client has its own connection, so the scheduler might read such a call before the
submission that the call depends on, or after the release of it. Hence a `Borrowing`:

- The lender is asked at once to confirm that the scheduler has read its submissions, unless that is
  known. Until it has, the call waits in the borrower's core, and so do the calls that read its
  result. No other call waits, and no thread: see `core.foreign_keys`, which limits the wait.
- The futures are held until the scheduler has read the call as well. From then on the call itself
  keeps its dependencies. A lender that is closed waits for that first, for at most 2 s.

A lender that is closed, that gives up, or whose event loop is closed, ends the wait: a dependency
that the scheduler does not have then is an error of the call. While there is one client in the
process, none of this is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol.errors import ForeignFuture
from ...protocol.values.serialize import futures_met
from ..core.events import Borrow, Confirm, Lent, Loan
from ..core.tasks import KEPT, FutureState, TaskColumns, TaskRecord, Watcher
from ..future import Future

if TYPE_CHECKING:
    from ..shell.engine import Engine

T = TypeVar("T")


class Borrowing:
    """The futures of other clients that the calls of one submission use."""

    __slots__ = ("_borrower", "_futures")

    def __init__(self, borrower: Engine, futures: list[Future]) -> None:
        self._borrower = borrower
        self._futures = futures

    def post(self, submission: TaskRecord | TaskColumns) -> None:
        """Hand the borrower a submission, which waits for the futures that it borrows."""
        borrower = self._borrower
        states = submission.states if isinstance(submission, TaskColumns) else [submission.state]
        borrowed: dict[Engine, list[FutureState]] = {}
        for future in self._futures:
            lender = future._engine
            is_known = lender.is_confirmed and future._state.phase != KEPT
            if not (is_known or lender.is_gone) and _is_to_confirm(future):
                borrowed.setdefault(lender, []).append(future._state)
        loans = {
            lender: Loan(lender.name, {state.key: None for state in lent})
            for lender, lent in borrowed.items()
        }
        keeper = _Keeper(self._futures)
        borrower.post(Borrow(submission, [*loans.values()]) if loans else submission)
        borrower.post(Confirm(keeper, states))
        if borrower.is_closed:  # perhaps the operations came too late to be handled
            keeper.on_ready([])
        for lender, loan in loans.items():
            lender.post(Confirm(_Confirmation(borrower, loan), borrowed[lender]))
            if lender.is_gone:
                borrower.post(Lent(loan))


def _is_to_confirm(future: Future) -> bool:
    """Return whether the scheduler may lack the task of a future, or its result."""
    lender = future._engine
    return future.status == "pending" or future._state.phase == KEPT or not lender.core.is_linked


class _Confirmation(Watcher):
    """The watcher in the lender's core that waits for its confirmation."""

    __slots__ = ("_borrower", "_loan")

    def __init__(self, borrower: Engine, loan: Loan) -> None:
        super().__init__(wants_data=False)
        self._borrower = borrower
        self._loan = loan

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._borrower.post(Lent(self._loan))


class _Keeper(Watcher):
    """A watcher in the borrower's core that holds the futures until the scheduler has the call."""

    __slots__ = ("__weakref__", "_futures")

    def __init__(self, futures: list[Future]) -> None:
        super().__init__(wants_data=False)
        self._futures = futures
        for lender in {future._engine for future in futures}:
            lender.loan_begins(self)

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        futures, self._futures = self._futures, []
        for lender in {future._engine for future in futures}:
            lender.loan_ends(self)


def encode(engine: Engine, encoder: Callable[..., T], *args: Any) -> tuple[T, Borrowing | None]:
    """Return `encoder(*args)`, and the futures of other clients that it found.

    Raises:
        ForeignFuture: one of them belongs to another cluster.
    """
    if engine.is_alone():
        return encoder(*args), None
    with futures_met() as met:
        encoded = encoder(*args)
    return encoded, borrow(engine, met)


def encode_each(engine: Engine, items: Iterator[T]) -> Iterator[tuple[T, Borrowing | None]]:
    """Do as `encode` for each item of an iterator that encodes."""
    while True:
        with futures_met() as met:
            item = next(items, None)
        if item is None:
            return
        yield item, borrow(engine, met)


def borrow(engine: Engine, met: list[Future]) -> Borrowing | None:
    foreign = {future._state: future for future in met if future._engine is not engine}
    if not foreign:
        return None
    futures = []
    for state, future in foreign.items():
        lender = future._engine
        check_cluster(engine, future, "an argument of a call")
        if not lender.is_closed:
            # A future of this client's own, because the other one may be released at any moment.
            if not lender.table.share(state):
                raise ValueError(f"the future of {state.key!r} was released; submit its call again")
            futures.append(Future(lender, state))
    return Borrowing(engine, futures)


def check_cluster(engine: Engine, future: Future, place: str) -> None:
    """Refuse a future of another cluster than that of `engine`.

    Args:
        engine: of the client whose call the future is in.
        future: of that client, or another one.
        place: of the future, for the error.

    Raises:
        ForeignFuture: it is of another one.
    """
    lender = future._engine
    if lender is not engine and not _is_same_cluster(engine, lender):
        raise ForeignFuture(
            f"the future of {future._state.key!r} is {place} for the cluster at "
            f"{_address(engine)}, and belongs to the cluster at {_address(lender)}; give its "
            "result, or submit both calls to one cluster"
        )


def _is_same_cluster(engine: Engine, other: Engine) -> bool:
    ours, theirs = engine.link, other.link
    if ours is None or theirs is None or not (ours.cluster_id and theirs.cluster_id):
        return True  # not known yet
    # A scheduler that was restarted has another identity at the same address, and not every client
    # has reconnected to it.
    return ours.cluster_id == theirs.cluster_id or ours.address == theirs.address


def _address(engine: Engine) -> str:
    return engine.link.address if engine.link is not None else ""
