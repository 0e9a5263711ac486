"""Users of actors, whether people or tasks: what they call, and what must hold of their calls.

A handle keeps its actor, and a call keeps its handle until it has an answer. What is asserted:

- A call begins at most once, on the actor that its handle names, and those of one holder begin in
  the order in which they were made, whatever connections they went over.
- A call that has an answer was done, and the answer is what that execution gave: its result or its
  exception. A call that is lost was never begun, and never is.
- Each call of a process that lives has an end.
- Where only connections and schedulers fail, an actor whose handle somebody has stays alive, and so
  does a future in the arguments or the result of a call, which its giver keeps until it is taken:
  unless the call is in doubt, since an actor may still do it later, or the task of the future has
  failed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from weft.client.core.events import Confirm
from weft.client.core.features.actor_calls import ActorCall
from weft.client.core.tasks import FutureState, Watcher
from weft.protocol.values.actors import Actor, ActorInfo
from weft.protocol.wire.failure import Failure
from weft.protocol.wire.messages import call_text
from weft.protocol.wire.payload import Blob

from .client_node import ClientNode, Future
from .graphs import ACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .actors import ActorNode
    from .client_process import ClientProcess
    from .simulation import Simulation


class Handle:
    """A handle of an actor, which holds the future of it: the `_hold` of `Actor`."""

    def __init__(self, process: ClientProcess, info: ActorInfo) -> None:
        self.process = process
        self.actor = Actor(info, self)
        (self._state,) = process.hold([info.key])
        self.n_open = 0
        self.is_dropped = False

    def drop(self) -> None:
        """Let go of it: the calls keep it until they have ended."""
        self.is_dropped = True
        if not self.n_open:
            self.process.let_go([self._state])


class Confirmed(Watcher):
    """Calls `then` once, when the scheduler has read what it was to, or never will."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(wants_data=False)
        self._then: Callable[[], None] | None = then

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        then, self._then = self._then, None
        if then is not None:
            then()


class UserCall(ActorCall):
    """A call, with what is known of it everywhere."""

    __slots__ = ("begun", "given", "handle", "info", "number", "outcome", "when_done")

    def __init__(
        self,
        handle: Handle,
        name: str,
        number: int,
        given: list[FutureState],
        when_done: Callable[[], object] | None,
    ) -> None:
        super().__init__(handle.actor, name, b"%d" % number, given)
        #: The futures in the arguments.
        self.given = given
        self.handle = handle
        self.info: ActorInfo = handle.actor._info
        self.number = number
        self.when_done = when_done
        self.begun = False
        #: What its execution gave: a result, or a failure.
        self.outcome: tuple[Blob | None, Failure | None] = (None, None)

    @property
    def id(self) -> str:
        """The text by which the scheduler knows it, once it is sent."""
        return call_text(self.handle.process.client_id, self.connection, self.request)

    def __repr__(self) -> str:
        return f"<call {self.number} of {self.info.key} by {self.handle.process!r}>"


class ActorUsers:
    """All handles and calls of one run."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        #: {key: actors that were made for it, the last one last}
        self._made: dict[str, list[ActorNode]] = {}
        self._by_attempt: dict[int, ActorNode] = {}
        self.calls: list[UserCall] = []
        self._handles: dict[ClientProcess, list[Handle]] = {}
        #: {(process, secret): the number of the last call that has begun}
        self._last: dict[tuple[ClientProcess, str], int] = {}
        #: {secret: calls that have begun}
        self._n_begun: Counter[str] = Counter()
        #: {key of a future in arguments: None} that need not be there when the actor reads them
        self.may_be_gone: dict[str, None] = {}

    # -- what they do -----------------------------------------------------------------------------
    def act(self) -> None:
        """Let a user take or drop a handle, or call some actors."""
        rng = self.sim.world.rng
        alive = [client for client in self.sim.clients if client.is_alive]
        if not alive:
            return
        client = rng.choice(alive)
        handles = self._handles.setdefault(client, [])
        found = [
            future.spec.key
            for future in client.futures
            if future.spec.function == ACTOR and future.state.status == "finished"
        ]
        if found and (not handles or rng.random() < 0.2):
            # The user may have got the handle of an actor that is gone by now.
            made = self._made[rng.choice(found)]
            actor = made[-1] if rng.random() < 0.8 else rng.choice(made)
            handles.append(Handle(client, actor.info))
        elif handles and rng.random() < 0.1:
            handles.pop(rng.randrange(len(handles))).drop()
        for _ in range(rng.choice([1, 1, 3, 20]) if handles else 0):
            handle = rng.choice(handles)
            if handle._state.failure is not None:  # a call would raise it
                self.sim.world.probes["actor call: raises"] += 1
                handles.remove(handle)
                handle.drop()
                break
            self._call(handle)

    def _call(self, handle: Handle) -> None:
        """Let a user call, with a future in the arguments or not."""
        rng, client = self.sim.world.rng, handle.process
        assert isinstance(client, ClientNode), "it is a user"
        name = rng.choice(["do", "do", "do", "keep", "echo", "give"])
        if name not in ("keep", "echo"):
            self.send(self.make(handle, name))
            return
        ours = [
            future.state
            for future in client.futures
            if future.spec.function != ACTOR and future.state.failure is None
        ]
        given = [state for state in ours[-1:] if client.table.share(state)]
        handle.n_open += 1

        def send() -> None:
            handle.n_open -= 1
            if client.is_alive:
                self.send(self.make(handle, name, given))

        # As `Future.before_leaving`: its reader may ask for it at once.
        client.post(Confirm(Confirmed(send), given))

    def handle_in_task(self, process: ClientProcess, attempt: int) -> Handle:
        """Return a handle for a task that has the actor made by `attempt` as an input."""
        return Handle(process, self._by_attempt[attempt].info)

    def _call_again(self, handle: Handle) -> None:
        """Let a user call again, perhaps, who does not know whether a call was done."""
        sim = self.sim
        is_held = handle in self._handles.get(handle.process, []) and handle._state.failure is None
        if is_held and not sim.is_healed and sim.world.chance(sim.plan.p_call_again):
            sim.world.probes["actor call: again"] += 1
            self.send(self.make(handle, "do"))

    def knows(self, attempt: int) -> bool:
        """Return whether this attempt has made an actor."""
        return attempt in self._by_attempt

    def make(
        self,
        handle: Handle,
        name: str,
        given: Sequence[FutureState] = (),
        when_done: Callable[[], object] | None = None,
    ) -> UserCall:
        """Make a call that is to be sent at once: calls are sent in the order of their numbers."""
        call = UserCall(handle, name, len(self.calls), [*given], when_done)
        call._callbacks = [lambda: self._on_done(call)]
        self.calls.append(call)
        handle.n_open += 1
        return call

    def send(self, call: UserCall) -> None:
        """Call an actor."""
        call.handle.process.actor_connections.send(call)

    def finish(self) -> None:
        """Let all users drop their handles."""
        for handles in self._handles.values():
            for handle in handles:
                handle.drop()
        self._handles.clear()

    # -- what is seen of it -----------------------------------------------------------------------
    def on_made(self, actor: ActorNode) -> None:
        """Note that an actor lives."""
        self._made.setdefault(actor.key, []).append(actor)
        self._by_attempt[actor.attempt] = actor

    def on_dropped(self, actor: ActorNode) -> None:
        """Check, where no worker fails, that nobody had a handle of an actor that ends."""
        sim = self.sim
        # Of one that has given way in a full memory, its worker may hear before its holders.
        gave_way = actor.key in sim.exceeded
        if not sim.plan.executes_once or actor.key in sim.cancelled or gave_way:
            return
        holders = [
            handle
            for handles in self._handles.values()
            for handle in handles
            if handle.actor._info == actor.info and handle._state.failure is None
        ]
        assert not holders, f"{actor!r} ends, and {holders[0].process!r} has its handle"

    def on_begin(self, secret: str, number: int) -> UserCall:
        """Check that a call may begin; decide what its execution gives, and return the call."""
        call, world = self.calls[number], self.sim.world
        assert secret == call.info.secret, f"{call!r} is done by another actor: {secret}"
        assert not call.begun, f"{call!r} is done twice"
        assert call.failure is None or call.failure[0] == "actor-in-doubt", (
            f"{call!r} is done, and its holder was told {call.failure}"
        )
        if call.failure is not None:
            world.probes["actor call: done in doubt"] += 1
        last = self._last.get((call.handle.process, secret), -1)
        assert last < number, f"{call!r} is done behind call {last}, which is a later one"
        self._last[call.handle.process, secret] = number
        call.begun = True
        self._note_given(call)
        self._n_begun[secret] += 1
        if world.chance(0.1):
            call.outcome = None, ["exception", call.info.key, "type", f"of call {number}"]
        else:
            call.outcome = b"%d, call %d" % (self._n_begun[secret], number), None
        return call

    def _note_given(self, call: UserCall) -> None:
        """Note which futures in the arguments their giver may not keep until they are taken."""
        in_doubt = call.failure is not None and call.failure[0] == "actor-in-doubt"
        for state in call.given:
            if in_doubt or state.failure is not None:
                self.may_be_gone[state.key] = None

    def _on_done(self, call: UserCall) -> None:
        kind = "result" if call.failure is None else call.failure[0]
        self.sim.world.probes[f"actor call: {kind}"] += 1
        if kind == "result":
            assert call.begun, f"{call!r} has a result and was not done"
            assert call.blob == call.outcome[0], f"{call!r} has the answer {call.blob!r}"
        elif kind == "exception":
            assert call.failure is not None
            assert call.begun, f"{call!r} has an exception and was not done"
            is_ended = call.failure[2] == "CancelledError"
            assert call.failure == call.outcome[1] or is_ended, f"{call!r}: {call.failure}"
            assert not is_ended or self._may_have_ended(call), f"{call!r} was cancelled"
        elif kind == "actor-lost":
            assert not call.begun, f"{call!r} was done, and its holder is told {call.failure}"
        else:
            assert kind == "actor-in-doubt", f"{call!r}: {call.failure}"
        self._note_given(call)
        handle = call.handle
        self._take(handle.process, call.kept or [])
        handle.process.let_go(call.given)
        handle.n_open -= 1
        if kind == "actor-in-doubt":
            self._call_again(handle)
        if handle.is_dropped:
            handle.drop()
        if call.when_done is not None:
            call.when_done()

    def _take(self, process: ClientProcess, states: list[FutureState]) -> None:
        """Take futures that have come in an answer."""
        if not isinstance(process, ClientNode) or not process.is_alive:
            process.let_go(states)
            return
        for state in states:
            self.sim.world.probes["actor call: a future comes"] += 1
            spec = self.sim.graph.by_key[state.key]
            future = Future(state, spec, is_borrowed=True, came_in_answer=True)
            process.futures.append(future)
            process.watch([future], wants_data=self.sim.world.chance(0.7))

    def _may_have_ended(self, call: UserCall) -> bool:
        """Return whether an actor may end while somebody waits for this call of it."""
        sim = self.sim
        return not sim.plan.executes_once or call.info.key in sim.cancelled

    # -- checks -----------------------------------------------------------------------------------
    def check_at_rest(self) -> None:
        """Assert that all calls of processes that live have ended."""
        left = [call for call in self.calls if not call.is_done and call.handle.process.is_alive]
        assert not left, f"calls of actors that never end: {left}"
