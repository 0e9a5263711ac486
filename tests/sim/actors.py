"""The actors of one worker: they do calls in their order, and wait now and then.

They take calls as `worker/actors/actors.py` does, over connections apart from those for data, and
do them as `worker/actors/actor_thread.py` does: one after the other, or with coroutines, which
begin in their order and end in any. A wait, for tasks or for another actor, ends in any case, as if
it had a reason to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.client.core.events import Confirm
from weft.client.core.tasks import FutureState
from weft.protocol.values.actors import ActorInfo
from weft.protocol.wire.failure import Failure, actor_lost
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    ActorCalls,
    ActorFailures,
    ActorResults,
    ActorResultsTaken,
    call_text,
)
from weft.protocol.wire.payload import Blob
from weft.worker.actors.core.actor_calls import HandedOver, HolderConnections
from weft.worker.core.features.actor_waits import ActorBlocked, ActorResumes

from .actor_calls import Confirmed
from .graphs import ACTOR
from .links import Link

if TYPE_CHECKING:
    from weft.worker.core.tasks import WorkerTask

    from .worker_node import WorkerNode

#: As in `worker/actors/actors.py`.
LOOK_S = 0.005
OVER_S = 60.0
HAND_OVER_S = 60.0
#: As in `client/in_tasks.py`.
CONFIRM_S = 10.0


@dataclass(eq=False)
class Execution:
    """One call that has begun."""

    link: Link
    holder: str
    connection: int
    request: int
    blob: Blob | None = None
    failure: Failure | None = None
    #: The futures in the result.
    futures: list[FutureState] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The text that names the call."""
        return call_text(self.holder, self.connection, self.request)


class ActorNode:
    """One actor: its inbox, and what its thread does."""

    def __init__(self, actors: WorkerActors, key: str, attempt: int) -> None:
        self._actors = actors
        self._node = actors.node
        self._world = actors.node.world
        self.key = key
        self.attempt = attempt
        worker = self._node
        self.info = ActorInfo(
            key, worker.address, worker.name, f"secret of {attempt}", "List", frozenset({"do"})
        )
        self._has_coroutines = self._world.chance(0.3)
        #: Calls, and None for the end.
        self._inbox: deque[tuple[Link, ActorCalls] | None] = deque()
        self._rows: deque[tuple[Link, ActorCalls, int]] = deque()
        #: {call: None} of those that have begun and not ended.
        self._open: dict[Execution, None] = {}
        #: {holder: its last call that has begun}
        self._begun: dict[str, str] = {}
        self._done: list[Execution] = []
        #: Futures in the state of the object.
        self._kept: list[FutureState] = []
        self.is_blocked = False
        #: Nothing in the inbox is done any more.
        self.is_over = False

    def __repr__(self) -> str:
        return f"<actor {self.key} of attempt {self.attempt} on {self._node!r}>"

    def put(self, mail: tuple[Link, ActorCalls] | None) -> None:
        """Put calls into the inbox, or the end behind them."""
        self._inbox.append(mail)
        self._world.at(self._world.rng.random() * 0.0001, self._go_on)

    def _go_on(self) -> None:
        """Begin calls, as many as may run at a time."""
        if not self._node.when_awake(self._go_on):
            return
        while not self.is_blocked and (self._has_coroutines or not self._open):
            if not self._rows:
                if not self._inbox:
                    break
                mail = self._inbox.popleft()
                if mail is None:
                    self._end()
                    break
                link, message = mail
                self._rows += [(link, message, i) for i in range(len(message.requests))]
                continue
            self._begin(*self._rows.popleft())

    def _begin(self, link: Link, message: ActorCalls, i: int) -> None:
        call = Execution(link, message.holder, message.connection, message.requests[i])
        arguments = message.arguments[i]
        assert isinstance(arguments, bytes)
        self._open[call] = None
        self._begun[call.holder] = call.id
        user_call = self._node.sim.actor_users.on_begin(self.info.secret, int(arguments))
        call.blob, call.failure = user_call.outcome
        process = self._node.client_of_tasks()
        given = process.hold([state.key for state in user_call.given])  # as the arguments are read
        if message.names[i] == "keep":
            self._kept += given
        elif message.names[i] == "echo" and call.failure is None:
            call.futures = given
        else:
            process.let_go(given)
        if message.names[i] == "give" and self._kept and call.failure is None:
            state = self._world.rng.choice(self._kept)
            if process.table.share(state):
                call.futures = [state]
            if self._world.chance(0.5):
                self._kept.remove(state)
                process.let_go([state])
        seconds = self._world.rng.choice([0.0, 0.00001, 0.001, 0.2]) * self._world.rng.random()

        def finish() -> None:
            self._world.at(seconds, self._finish, call)

        if given:  # what gave them lets go of them with the answer
            confirmed = Confirmed(finish)
            process.post(Confirm(confirmed))
            self._world.at(CONFIRM_S, confirmed.on_ready, [])
        else:
            finish()

    def _finish(self, call: Execution) -> None:
        if not self._node.when_awake(self._finish, call) or call not in self._open:
            return
        del self._open[call]
        self._done.append(call)
        if self._has_coroutines or not self._rows or self._world.chance(0.2):
            self.answer()
        else:
            self._world.at(LOOK_S, self._answer_late)
        self._go_on()

    def _answer_late(self) -> None:
        if self._node.when_awake(self._answer_late):
            self.answer()

    def answer(self) -> None:
        """Send the answers of the calls that are done."""
        done, self._done = self._done, []
        for link in {call.link: None for call in done}:
            ours = [call for call in done if call.link is link]
            results = [call for call in ours if call.failure is None]
            failed = [call for call in ours if call.failure is not None]
            messages: list[Message] = []
            if results:
                keys: list[list[str]] = []
                if any(call.futures for call in results):
                    self._actors.hand_over(link, results)
                    keys = [[state.key for state in call.futures] for call in results]
                requests = [call.request for call in results]
                blobs = [call.blob for call in results]
                messages.append(ActorResults(requests=requests, results=blobs, keys=keys))
            if failed:
                requests = [call.request for call in failed]
                failures = [call.failure for call in failed if call.failure is not None]
                messages.append(ActorFailures(requests=requests, failures=failures))
            link.send(1, messages)

    def _end(self) -> None:
        """Do nothing any more; coroutines are cancelled."""
        self.is_over = True
        process = self._node.client_of_tasks()
        for call in self._open:
            process.let_go(call.futures)
            call.blob, call.futures = None, []
            call.failure = ["exception", self.key, "CancelledError", ""]
            self._done.append(call)
        self._open.clear()
        self.answer()
        process.let_go(self._kept)
        for mail in self._inbox:
            if mail is not None:
                self._actors.refuse(*mail, "has ended")

    def begun(self) -> list[str]:
        """Return the last call of each holder that has begun."""
        return [*self._begun.values()]

    def open(self) -> list[str]:
        """Return the calls that have begun and not ended."""
        return [call.id for call in self._open]

    def resume(self) -> None:
        """End a wait."""
        self.is_blocked = False
        self._go_on()

    def forget(self, holder: str) -> None:
        """Forget a holder whose connection has ended."""
        self._begun.pop(holder, None)


class WorkerActors:
    """The actors of one worker, and the connections over which they are called."""

    def __init__(self, node: WorkerNode) -> None:
        self.node = node
        self._world = node.world
        #: {attempt that made one: the actor}
        self.by_attempt: dict[int, ActorNode] = {}
        self._by_secret: dict[str, ActorNode] = {}
        self._connections: HolderConnections[Link] = HolderConnections()
        self._handed: HandedOver[Link] = HandedOver()
        #: Connections of holders.
        self.links: dict[Link, None] = {}

    def made(self, task: WorkerTask) -> None:
        """Let an actor begin to live, and perhaps wait later."""
        actor = ActorNode(self, task.key, task.attempt)
        self.by_attempt[task.attempt] = self._by_secret[actor.info.secret] = actor
        self.node.sim.actor_users.on_made(actor)
        self._plan_wait(actor)

    def dropped(self, attempt: int) -> None:
        """End the actor that was made by this attempt, if one was: nothing keeps it alive."""
        actor = self.by_attempt.pop(attempt, None)
        if actor is not None:
            del self._by_secret[actor.info.secret]
            self.node.sim.actor_users.on_dropped(actor)
            actor.put(None)

    def open_links(self) -> list[Link]:
        """Return the connections of holders."""
        return [link for link in self.links if not link.is_broken]

    def die(self) -> None:
        """End with the process."""
        for link in self.links:
            link.break_()

    # -- calls ------------------------------------------------------------------------------------
    def on_messages(self, link: Link, messages: list[Message]) -> None:
        """See `End`."""
        if not self.node.when_awake(self.on_messages, link, messages):
            return
        for message in messages:
            if isinstance(message, ActorResultsTaken):
                self._let_go(self._handed.taken(link, message.requests))
                continue
            assert isinstance(message, ActorCalls)
            if not self._connections.accept(link, message.holder, message.connection):
                self._world.probes["actor connection: given up"] += 1
                continue
            actor = self._by_secret.get(message.actor)
            if actor is None or actor.is_over:
                self.refuse(link, message, "is not on this worker")
            else:
                actor.put((link, message))

    def refuse(self, link: Link, message: ActorCalls, text: str) -> None:
        """Answer calls that are not done."""
        self._world.probes["actor call: refused"] += 1
        failures = [actor_lost("", text)] * len(message.requests)
        link.send(1, [ActorFailures(requests=message.requests, failures=failures)])

    def on_closed(self, link: Link) -> None:
        """See `End`."""
        if not self.node.when_awake(self.on_closed, link):
            return
        self.links.pop(link, None)
        if ended := self._connections.end(link):
            for actor in self._by_secret.values():
                actor.forget(ended[0])
            self._world.at(OVER_S, self._connections.forget, *ended, is_work=False)
        if futures := self._handed.end(link):
            self._world.probes["actor call: futures not taken"] += 1
            self._world.at(HAND_OVER_S, self._let_go, futures)

    def hand_over(self, link: Link, results: list[Execution]) -> None:
        """Keep the futures in results until they are taken."""
        self._handed.add(link, [(call.request, call.futures) for call in results if call.futures])
        if link.sides[1].is_closed:  # just now
            self._let_go(self._handed.end(link))

    def _let_go(self, futures: list[FutureState]) -> None:
        if self.node.when_awake(self._let_go, futures):
            self.node.client_of_tasks().let_go(futures)

    # -- waits ------------------------------------------------------------------------------------
    def _plan_wait(self, actor: ActorNode) -> None:
        if self._world.chance(self.node.sim.plan.p_block):
            self._world.at(self._world.rng.random(), self._block, actor)

    def _block(self, actor: ActorNode) -> None:
        node, rng = self.node, self._world.rng
        if not node.when_awake(self._block, actor) or actor.attempt not in self.by_attempt:
            return
        # Where waits of tasks are checked, it waits for something that the scheduler does not know.
        is_alone = not node.sim.plan.p_calls
        tasks = [key for key in node.core.by_key if is_alone and key != actor.key]
        keys = rng.sample(tasks, k=min(len(tasks), rng.randint(0, 2)))
        actors = [spec.key for spec in node.sim.graph.specs if is_alone and spec.function == ACTOR]
        called = rng.sample(actors, k=min(len(actors), rng.randint(0, 2)))
        calls = [call_text("holder", 1, rng.randint(0, 9)) for _ in called]
        actor.answer()
        actor.is_blocked = True
        node._handle(
            ActorBlocked(actor.key, actor.attempt, keys, called, calls, actor.begun(), actor.open())
        )
        self._world.probes["actor waits"] += 1
        seconds = rng.choice([0.1, 1.0, 5.0]) * rng.random()
        self._world.at(seconds, self._resume, actor)

    def _resume(self, actor: ActorNode) -> None:
        if self.node.when_awake(self._resume, actor):
            self.node._handle(ActorResumes(actor.attempt))
            actor.resume()
            self._plan_wait(actor)
