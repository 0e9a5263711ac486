"""Futures of one client as arguments of another one's calls.

Each client has its own connection, so the scheduler might read such a call before the
submission that the call depends on, or after the release of it. Hence a `Loan`:

- The lender is asked at once to confirm that the scheduler has read its submissions. Until it has,
  the borrower's queue stops before the call; no thread waits. The request is in the
  lender's queue before the loan is in the borrower's, so two clients that borrow from each other
  never wait in a circle.
- The futures are held until the scheduler has read the call as well. From then on the call itself
  keeps its dependencies.

A lender that is closed, or that gives up, ends the wait: a dependency that the scheduler does not
have then is an error of the call. While there is one client in the process, none of this is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol.errors import ForeignFuture
from ..protocol.values.serialize import futures_met
from .core.events import Confirm
from .core.tasks import Watcher
from .future import Future

if TYPE_CHECKING:
    from .shell.engine import Engine

T = TypeVar("T")


class Loan:
    """The futures of other clients that the calls of one submission use."""

    __slots__ = ("_borrower", "_futures", "_unconfirmed")

    def __init__(self, borrower: Engine, futures: list[Future]) -> None:
        self._borrower = borrower
        self._futures = futures
        #: {lender: None} of those that have not confirmed yet. Each is removed once, by any thread.
        self._unconfirmed: dict[Engine, None] = {}

    @property
    def is_ready(self) -> bool:
        """True once each lender has confirmed, or never will."""
        return not self._unconfirmed

    def post(self, submission: Any) -> None:
        """Hand the borrower a submission that waits for this, and with it all later operations."""
        lenders = {f._engine: None for f in self._futures if f.status == "pending"}
        self._unconfirmed = dict(lenders)
        for lender in lenders:
            lender.post(Confirm(_Confirmation(self, lender)))
            if lender.is_closed:  # perhaps the request came too late to be handled
                self.confirmed(lender)
        self._borrower.post(self)
        self._borrower.post(submission)
        self._borrower.post(Confirm(_Keeper(self._futures)))

    def confirmed(self, lender: Engine) -> None:
        """Note that `lender` has confirmed; any thread."""
        self._unconfirmed.pop(lender, None)
        if not self._unconfirmed:
            self._borrower.go_on()


class _Confirmation(Watcher):
    """The watcher in the lender's core that waits for its confirmation."""

    __slots__ = ("_lender", "_loan")

    def __init__(self, loan: Loan, lender: Engine) -> None:
        super().__init__(wants_data=False)
        self._loan = loan
        self._lender = lender

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._loan.confirmed(self._lender)


class _Keeper(Watcher):
    """A watcher in the borrower's core that holds the futures until it is notified."""

    __slots__ = ("_futures",)

    def __init__(self, futures: list[Future]) -> None:
        super().__init__(wants_data=False)
        self._futures = futures

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._futures = []


def encode(engine: Engine, encoder: Callable[..., T], *args: Any) -> tuple[T, Loan | None]:
    """Return `encoder(*args)`, and the futures of other clients that it found.

    Raises:
        ForeignFuture: one of them belongs to another cluster.
    """
    if engine.is_alone():
        return encoder(*args), None
    with futures_met() as met:
        encoded = encoder(*args)
    return encoded, _borrow(engine, met)


def encode_each(engine: Engine, items: Iterator[T]) -> Iterator[tuple[T, Loan | None]]:
    """Do as `encode` for each item of an iterator that encodes."""
    while True:
        with futures_met() as met:
            item = next(items, None)
        if item is None:
            return
        yield item, _borrow(engine, met)


def _borrow(engine: Engine, met: list[Future]) -> Loan | None:
    foreign = {future._state: future for future in met if future._engine is not engine}
    if not foreign:
        return None
    held = []
    for state, future in foreign.items():
        lender = future._engine
        if not _is_same_cluster(engine, lender):
            raise ForeignFuture(
                f"the future of {state.key!r} is an argument of a call for the cluster at "
                f"{_address(engine)}, and belongs to the cluster at {_address(lender)}; give its "
                "result, or submit both calls to one cluster"
            )
        if not lender.is_closed:
            # A future of this client's own, because the other one may be released at any moment.
            if not lender.table.share(state):
                raise ValueError(f"the future of {state.key!r} was released")
            held.append(Future(lender, state))
    return Loan(engine, held)


def _is_same_cluster(engine: Engine, other: Engine) -> bool:
    ours, theirs = engine.link, other.link
    if ours is None or theirs is None or not (ours.cluster_id and theirs.cluster_id):
        return True  # not known yet
    # A scheduler that was restarted has another identity at the same address, and not every client
    # has reconnected to it.
    return ours.cluster_id == theirs.cluster_id or ours.address == theirs.address


def _address(engine: Engine) -> str:
    return engine.link.address if engine.link is not None else ""
