"""`fire_and_forget`: tasks go on, although their futures are released and their client is closed.

The scheduler takes them over (`scheduler/core/coordination/background.py`). Until it has answered,
a watcher holds futures of its own, so that none is released before. A client that is closed waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ..protocol.wire.messages import Operated
from ..protocol.wire.messages.coordination import BACKGROUND
from .core.events import Confirm
from .core.features.coordination import ObjectCall
from .core.tasks import FutureState, Watcher
from .future import Future
from .results.future_arguments import futures_in

if TYPE_CHECKING:
    from .shell.engine import Engine

logger: Final = logging.getLogger("weft.client")

#: Keys of one message.
_MAX_KEYS: Final = 10_000


def fire_and_forget(obj: Any) -> None:
    """Let tasks run to their end, although no client holds their futures.

    The scheduler keeps each until it has finished or failed; then its result is dropped, unless a
    client still wants it. This call does not wait for the scheduler: `client.close` does, and so
    does the end of the calling task. A scheduler that is started again knows nothing of it.

    Args:
        obj: a future, or containers and other iterables of futures.

    Raises:
        TypeError: there are other objects among them.
        ValueError: a future was released.
        ClientClosed: the client of a future is closed.

    Example:
        >>> weft.fire_and_forget(client.submit(abs, -1))
    """
    found: dict[Engine, dict[FutureState, None]] = {}
    for future in futures_in(obj, "fire_and_forget"):
        if future._is_released:
            raise ValueError(f"the future of {future.key!r} was released; submit its call again")
        future._engine.check_open()
        if future.status == "pending":
            found.setdefault(future._engine, {})[future._state] = None
    for engine, states in found.items():
        wanted = [*states]
        for i in range(0, len(wanted), _MAX_KEYS):
            _Handover(engine, wanted[i : i + _MAX_KEYS]).begin()


class _Handover(Watcher):
    """Holds futures until the scheduler has taken their tasks over."""

    __slots__ = ("__weakref__", "_engine", "_futures", "_is_confirmed", "_keys")

    def __init__(self, engine: Engine, states: list[FutureState]) -> None:
        super().__init__(wants_data=False)
        self._engine = engine
        self._futures: list[Future] = []
        for state in states:
            if not engine.table.share(state):
                raise ValueError(f"the future of {state.key!r} was released; submit its call again")
            self._futures.append(Future(engine, state))
        self._keys = [state.key for state in states]
        #: The scheduler has read the submissions.
        self._is_confirmed = False
        engine.loan_begins(self)

    def begin(self) -> None:
        """Send the keys."""
        call = ObjectCall(self, BACKGROUND, "all", "keep", {}, [], self._keys)
        self._engine.post(call)
        if self._engine.is_closed:  # perhaps that came too late to be handled
            self._end()

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        answer = items[-1]
        if isinstance(answer, Operated) and answer.info.get("n_unknown"):
            # A call may wait in this client for what it borrows, or have been cancelled.
            left = [f for f in self._futures if f.status == "pending"]
            if left and not self._is_confirmed:
                self._is_confirmed = True
                self._futures = left
                self._keys = [f._state.key for f in left]
                self._engine.post(Confirm(_Resumption(self), [f._state for f in left]))
                return
            if left:
                logger.warning(
                    "%d tasks that were to go on in the background are unknown to the scheduler, "
                    "for instance %.200s",
                    answer.info["n_unknown"],
                    answer.info.get("unknown"),
                )
        elif answer is not None and not (isinstance(answer, Operated) and not answer.problem):
            text = getattr(answer, "text", "") or "the token of this client does not permit it"
            logger.warning("tasks cannot go on in the background: %s", text)
        self._end()

    def _end(self) -> None:
        self._futures = []
        self._engine.loan_ends(self)


class _Resumption(Watcher):
    """Asks again when the scheduler has read the submissions."""

    __slots__ = ("_handover",)

    def __init__(self, handover: _Handover) -> None:
        super().__init__(wants_data=False)
        self._handover = handover

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._handover.begin()
