"""Calls of actors over one connection to a worker: what is sent when, and how each call ends.

A part of the core beside `ClientState`: calls do not touch the scheduler. Several threads call
these methods under one lock, which the shell has (`shell/actor_connections.py`). It is reentrant:
within any of them the collector may run a finalizer of the user that makes a call, and calls `add`.
So a call is noted as sent before anything is made of it, and is never only in a variable.

Invariant: a call that was added waits, was sent, or is done. Requests count up in the order in
which calls were added, `sent` has lower ones than `waiting`, and both are in that order. A call is
sent once: when the connection ends, those that were sent are in doubt, and those that wait were not
done. Neither is sent again, so a call that comes later cannot overtake them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.wire.failure import Failure, actor_lost
from ....protocol.wire.messages import ActorCalls, ActorFailures, ActorResults
from ....protocol.wire.payload import Blob, blob_nbytes

if TYPE_CHECKING:
    from ....protocol.values.actors import Actor

#: At most so many calls, and bytes of arguments, are under way over one connection.
MAX_SENT: Final = 8192
MAX_SENT_NBYTES: Final = 16 << 20

#: Callables of those who wait for calls; to be called without the lock.
Callbacks: TypeAlias = "list[Callable[[], object]]"


class ActorCall:
    """One call of an actor: what is sent, and its answer. The base of `ActorFuture`."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "actor",
        "actor_key",
        "arguments",
        "blob",
        "connection",
        "failure",
        "is_done",
        "kept",
        "name",
        "nbytes",
        "request",
    )

    def __init__(self, actor: Actor, name: str, arguments: Blob | None, kept: Any) -> None:
        #: None when the call is done: until then it keeps the actor alive.
        self.actor: Actor | None = actor
        self.actor_key = actor.key
        self.name = name
        #: None = an attribute is read, or the call was sent
        self.arguments = arguments
        self.nbytes = 0 if arguments is None else blob_nbytes(arguments)
        #: The futures in the arguments; then those in the result, until that is unpickled.
        self.kept = kept
        #: Numbers: of the connection over which it is sent, and its own there.
        self.connection = 0
        self.request = 0
        self.blob: Blob | None = None
        self.failure: Failure | None = None
        self.is_done = False
        self._callbacks: Callbacks | None = None

    def finish(self, blob: Blob | None, failure: Failure | None, kept: Any = None) -> Callbacks:
        """Set the answer; return the callbacks."""
        self.blob = blob
        self.failure = failure
        self.kept = kept
        self.actor = self.arguments = None
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        return callbacks or []


class ConnectionCalls:
    """The calls over one connection, from the first one to the end of the connection."""

    __slots__ = ("_holder", "_n_requests", "_number", "_sent_nbytes", "is_over", "sent", "waiting")

    def __init__(self, holder: str, number: int) -> None:
        """Begin with the connection `number` of `holder`; each has a higher one than the last."""
        self._holder = holder
        self._number = number
        #: Calls to be sent.
        self.waiting: deque[ActorCall] = deque()
        #: {request: call} of those that were sent and have no answer.
        self.sent: dict[int, ActorCall] = {}
        self._sent_nbytes = 0
        self._n_requests = 0
        self.is_over = False

    def add(self, call: ActorCall, *, can_send: bool) -> ActorCalls | None:
        """Take a call; return its message if it is alone and can be sent at once."""
        call.connection, call.request = self._number, self._n_requests
        self._n_requests += 1
        if not can_send or self.sent or self.waiting:
            self.waiting.append(call)
            return None
        self.sent[call.request] = call  # with no call since the look: see the module
        self._sent_nbytes += call.nbytes
        return self.message([call])

    def take_next(self) -> list[ActorCall]:
        """Note the next calls as sent that may be: of one actor, as many as may be under way."""
        waiting, sent = self.waiting, self.sent
        calls: list[ActorCall] = []
        secret = None
        while (
            waiting and len(sent) < MAX_SENT and (self._sent_nbytes < MAX_SENT_NBYTES or not sent)
        ):
            call = waiting[0]
            assert call.actor is not None, "it is kept until the answer"
            if secret is None:
                secret = call.actor._info.secret
            elif call.actor._info.secret != secret:
                break
            sent[call.request] = call
            self._sent_nbytes += call.nbytes
            calls.append(waiting.popleft())
        return calls

    def message(self, calls: list[ActorCall]) -> ActorCalls:
        """Return the message for calls of one actor that were noted as sent."""
        actor = calls[0].actor
        assert actor is not None, "it is kept until the answer"
        return ActorCalls(
            actor=actor._info.secret,
            holder=self._holder,
            connection=self._number,
            requests=[call.request for call in calls],
            names=[call.name for call in calls],
            arguments=[call.arguments for call in calls],
        )

    def put_back(self, call: ActorCall) -> None:
        """Have the call wait that `add` took last, and that could not be sent at once."""
        self._answered(call.request)
        self.waiting.appendleft(call)

    def fail_unsent(self, call: ActorCall, reason: str) -> Callbacks:
        """Fail a call whose message can never be sent."""
        self._answered(call.request)
        text = f"was not called: the arguments of {call.name}() cannot be sent: {reason}"
        return call.finish(None, actor_lost(call.actor_key, text))

    def on_results(
        self, message: ActorResults, hold: Callable[[list[str]], Any] | None = None
    ) -> Callbacks:
        """Take results; `hold` makes futures of the keys that are in one."""
        notify: Callbacks = []
        keys: Iterable[list[str]] = message.keys or repeat([], len(message.requests))
        for request, blob, wanted in zip(message.requests, message.results, keys, strict=True):
            call = self._answered(request)
            if call is not None:
                kept = hold(wanted) if wanted and hold is not None else None
                notify += call.finish(blob, None, kept)
        return notify

    def on_failures(self, message: ActorFailures) -> Callbacks:
        """Take failures."""
        notify: Callbacks = []
        for request, failure in zip(message.requests, message.failures, strict=True):
            call = self._answered(request)
            if call is not None:
                if failure[0] != "exception":
                    failure = [failure[0], call.actor_key, *failure[2:]]
                notify += call.finish(None, failure)
        return notify

    def _answered(self, request: int) -> ActorCall | None:
        call = self.sent.pop(request, None)
        if call is not None:
            self._sent_nbytes -= call.nbytes
        return call

    def fail_lost(self) -> Callbacks:
        """Fail the calls that were sent to actors that the scheduler has lost."""
        notify: Callbacks = []
        for call in list(self.sent.values()):
            hold = None if call.actor is None else call.actor._hold
            if hold is not None and hold._state.failure is not None:
                self._answered(call.request)
                notify += call.finish(None, _in_doubt(call, "its worker is lost"))
        return notify

    def end(self, unsent: str, sent: str) -> Callbacks:
        """Fail all calls, by whether they were sent."""
        self.is_over = True
        notify: Callbacks = []
        for call in self.sent.values():
            notify += call.finish(None, _in_doubt(call, sent))
        for call in self.waiting:
            notify += call.finish(None, actor_lost(call.actor_key, unsent))
        self.sent.clear()
        self.waiting.clear()
        return notify


def _in_doubt(call: ActorCall, reason: str) -> Failure:
    text = (
        f"may have run {call.name}(), or not: {reason} before the answer came. The call is not "
        "repeated; if the actor is alive, ask it, and call again if that is right"
    )
    return ["actor-in-doubt", call.actor_key, text]
