"""The client's core: its futures, the tasks that it submitted, and the watchers that wait for them.

Owns every decision of the client and no I/O: one record, one entry point, `handle(event, now)`, and
out-boxes for the shell (`engine`) to empty after each event: `before`, `to_scheduler`, `after`.
Only the loop thread calls it. User threads hand in operations through one queue, in order; so a
submission comes before the release of its future, reference counts are exact, and neither needs a
lock here. The fields that user threads read without a lock (`status` and content of a
`FutureState`) are written only here, content first. `FutureTable` is the one structure that both
sides change; its module explains how.

The functions over this record are in modules by subject: `operations` (of users), `answers` (the
scheduler's messages), `sessions` (the connection), `submitting`, `borrowing` (keys of other
clients), `fetching`, `watching`, and `reconciling`: after the loss of a connection the client sends
the keys that it wants, instead of repeating its messages. `transitions` has the moves of a state,
`validate` the invariants. What is not about tasks is in features, each with records of its own: see
`feature`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from ...protocol.seam import joined
from ...protocol.wire.failure import Failure
from ...protocol.wire.message import Message
from ...protocol.wire.messages import SubmitTasks
from ...protocol.wire.options import TaskOptions
from .answers import ANSWERS
from .events import ClientAction, ClientEvent, Notify
from .feature import ClientFeature
from .fetching import FETCHING, FetchUnderWay, issue
from .foreign_keys import Waiting
from .operations import OPERATIONS
from .recipes import LIMIT_NBYTES, RECIPES, ConstantMaker, Recipes, spill
from .reconciling import go_on
from .sessions import SESSIONS
from .table import FutureTable
from .tasks import FutureState, Watcher

Record = TypeVar("Record")

#: What the kernel declares itself. No feature can have an event, operation or message of it.
_KERNEL: Final = ClientFeature(
    name="the kernel", handlers={**FETCHING, **RECIPES, **SESSIONS, **OPERATIONS, **ANSWERS}
)


class ClientState:
    """The state of a client; see the module's docstring."""

    def __init__(
        self,
        table: FutureTable,
        features: Sequence[ClientFeature],
        constants: ConstantMaker | None = None,
        limit_nbytes: int = LIMIT_NBYTES,
    ) -> None:
        self.table = table
        #: What the kernel and all features declare.
        self.features = joined(_KERNEL, features)
        #: {type of events, operations and messages: what handles them}
        self.handlers = self.features.handlers
        self._records: dict[type, Any] = {kind: kind() for kind in self.features.records}
        #: Of the event that is being handled.
        self.now = 0.0
        #: From which tasks are submitted again.
        self.recipes = Recipes(limit_nbytes, constants)
        #: Actions that must be visible to users' threads before the messages leave.
        self.before: list[Notify] = []
        #: Messages, in order.
        self.to_scheduler: list[Message] = []
        #: Actions that are done when the messages are sent, or kept.
        self.after: list[ClientAction] = []

        #: Submissions and releases may be sent: there is a session, and all wanted keys were
        #: answered for.
        self.is_linked = False
        #: Why no submission can succeed any more; None while one can, and then only is it linked.
        self.end: Failure | None = None
        #: No request has a higher number.
        self.last_request = 0

        #: The message that is being filled, the options of its last row and their place there;
        #: {options: their place}, empty while all rows have the first ones; {function id: its
        #: place there}, and the bytes of its blobs. None, 0 and empty between events.
        self.open: SubmitTasks | None = None
        self.open_option: TaskOptions | None = None
        self.open_place = 0
        self.open_options: dict[str, int] = {}
        self.open_functions: dict[bytes, int] = {}
        self.open_nbytes = 0
        #: {state: None} in phase unsent, in order. Empty while linked.
        self.unsent: dict[FutureState, None] = {}
        #: {state: None} in phase kept.
        self.kept: dict[FutureState, None] = {}
        #: {key: None} without a future, submitted for the tasks that read them, and to be released
        #: after these. Empty between events.
        self.temporary: dict[str, None] = {}
        #: {state: the attempt that made its result} of unique results that are known to exist, or
        #: to have existed. None is gone.
        self.made: dict[FutureState, int] = {}
        #: The epoch of the last scheduler.
        self.epoch = 0
        #: {state: None} finished, and borrowed by other clients while there was no connection.
        self.lent: dict[FutureState, None] = {}

        #: {key: None} wanted in this session and not answered for. None while linked, and without
        #: a session.
        self.unanswered: dict[str, None] | None = None
        #: Its length at the last tick that saw an answer, and when that was.
        self.n_unanswered_before = 0
        self.last_answer = 0.0

        #: {key: None} released or cancelled since the last check, or not sent yet; the scheduler
        #: may not have read of it, so it is sent again in the next session.
        self.unacknowledged: dict[str, None] = {}
        #: Keys that were unacknowledged before the check under way, and its request.
        self.checked: dict[str, None] = {}
        self.check = 0
        #: {key: None} released or cancelled since the last barrier: messages about this key may
        #: be about the task that was released.
        self.let_go: dict[str, None] = {}
        #: {key: request}: messages about this key before the answer to that request are about an
        #: earlier task of the same name. Requests never decrease; no key is in `let_go` as well.
        self.barriers: dict[str, int] = {}

        #: {state: None}: all and only states in a queue or a request, each in one.
        self.fetching: dict[FutureState, None] = {}
        #: {holder: {state: None} to request from it}; none is empty.
        self.fetch_queues: dict[str, dict[FutureState, None]] = {}
        #: {request: fetch} under way; through the scheduler only while linked.
        self.fetches: dict[int, FetchUnderWay] = {}
        #: {holder: number of its requests}; no zeros, at most MAX_REQUESTS_PER_HOLDER.
        self.n_fetches: dict[str, int] = {}
        #: Sum over the requests.
        self.nbytes_in_flight = 0
        #: {state: rounds that failed so far}, of those that wait or are requested again.
        self.fetch_rounds: dict[FutureState, int] = {}
        #: {state: None} to be asked about at the next tick.
        self.fetch_later: dict[FutureState, None] = {}
        #: {holder: None} that could not be reached directly; tried again after a reconnect.
        self.unreachable: dict[str, None] = {}
        #: {holder: why it could not be reached the last time}; at most MAX_REASONS.
        self.unreachable_reasons: dict[str, str] = {}

        #: Operations that wait for keys of other clients, in order, and {state that they submit:
        #: None}. See `borrowing`.
        self.waiting: list[Waiting] = []
        self.waiting_states: dict[FutureState, None] = {}
        #: A loan was settled, or an input has failed, in this event: some may go on.
        self.may_go_on = False

        #: Watchers whose batch is not empty; empty between events.
        self.touched: list[Watcher] = []
        #: {request: states} that failed and are to run again; the scheduler has not answered yet.
        self.retries: dict[int, list[FutureState]] = {}
        #: [(watcher, request)] of `Confirm`; 0 = not asked yet, for want of a connection.
        self.confirmations: list[tuple[Watcher, int]] = []
        #: Watchers of `Confirm` in this event, to be asked for when all its submissions are sent.
        self.to_confirm: list[Watcher] = []

    def handle(self, event: ClientEvent, now: float) -> None:
        """Apply an event; the resulting work is in `before`, `to_scheduler` and `after`."""
        self.now = now
        self.handlers[event.__class__](self, event)
        if self.unanswered is not None and not self.unanswered:
            go_on(self)
        if self.fetch_queues:
            issue(self)
        if self.recipes.nbytes > self.recipes.limit_nbytes:
            spill(self)
        if self.touched:
            for watcher in self.touched:
                self.before.append(Notify(watcher, watcher.batch))
                watcher.batch = []
            self.touched = []

    def next_request(self) -> int:
        """Return a request number that no other request has."""
        self.last_request += 1
        return self.last_request

    def record(self, kind: type[Record]) -> Record:
        """Return the record of a feature. The modules of features have functions that do."""
        return cast("Record", self._records[kind])
