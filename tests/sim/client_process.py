"""A process with the core of a client in it: that of a user, or that of a worker's tasks.

Operations go through one queue, as in `client/shell/engine.py`: the table is changed at once, by
the thread that calls, and the core sees the operation a little later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final

from weft.client.core.events import (
    AnswersReceived,
    ClientEvent,
    ClientTick,
    Connected,
    Disconnected,
    FetchFrom,
    Operations,
    ResultsFetched,
    ResultsNotFetched,
    Want,
)
from weft.client.core.features import FEATURES
from weft.client.core.features.puts import PutAt, PutEnded
from weft.client.core.state import ClientState
from weft.client.core.table import FutureTable
from weft.client.core.tasks import NEW, FunctionRecord, FutureState, TaskColumns, TaskRecord
from weft.client.core.validate import validate
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import GetData, Heartbeat, KeysData, Put, RegisterClient
from weft.protocol.wire.options import TaskOptions
from weft.protocol.wire.roles import Role
from weft.protocol.wire.session import Policy

from .actor_connections import ActorConnectionsNode
from .graphs import INDEX, PUT, Constants, Spec, function_id
from .puts import put
from .session import SimulatedSession

if TYPE_CHECKING:
    from .simulation import Simulation


NOT_RUN = (PUT, INDEX)


#: {client: its user}; the others have none
USERS: Final = {"c1": "ann", "c2": "ann"}


class ClientProcess:
    """The process: its core, its table of futures and its session."""

    role: ClassVar[Role] = Role.CLIENT

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim = sim
        self.world = sim.world
        self.name = name
        self.client_id = sim.new_id("client")
        self.table = FutureTable(nullcontext())
        self.core = ClientState(self.table, FEATURES, Constants())
        self.is_alive = True
        self.user = USERS.get(name, "")
        self._operations: list[Any] = []
        self._is_woken = False
        self._functions: dict[str, FunctionRecord] = {}
        #: Returns the first messages of each session.
        self.first_messages: Callable[[], list[Message]] = list
        self.actor_connections = ActorConnectionsNode(self)
        self.session = SimulatedSession(sim, self, self.role, Policy())
        self.world.at(1.0, self._on_tick, is_work=False)

    def __repr__(self) -> str:
        return self.client_id

    def when_awake(self, what: Any, *args: Any) -> bool:
        """See `SessionOwner`: the process of a user is never stopped."""
        return self.is_alive

    # -- operations -------------------------------------------------------------------------------
    def function(self, name: str) -> FunctionRecord:
        """Return the record of a function."""
        record = self._functions.get(name)
        if record is None:
            blob = b"" if name in NOT_RUN else name.encode()
            record = FunctionRecord(function_id(name), blob, name)
            self._functions[name] = record
        return record

    def post_tasks(self, specs: list[Spec], attempt: int = 0) -> list[FutureState]:
        """Submit tasks, on behalf of an attempt that runs here; return the states of futures."""
        columns = self.world.chance(0.5)
        is_graph = columns and len(specs) % 2 == 0  # rows of several functions, with their ranks
        batches: list[list[Spec]] = []
        for spec in specs:
            last = batches[-1] if batches else None
            if (
                spec.function not in NOT_RUN
                and columns
                and last is not None
                and _alike(last[-1], spec, is_graph)
            ):
                last.append(spec)
            else:
                batches.append([spec])
        made: list[FutureState] = []
        for batch in batches:
            keys = [spec.key for spec in batch]
            hashes = [spec.spec_hash for spec in batch if spec.spec_hash is not None] or None
            states, replaced = self.table.attach(keys, hashes)
            made += states
            spec = batch[0]
            options = self.conditioned(batch, options_of(spec).for_attempt(attempt))
            function = self.function(spec.function)
            dependencies = [[d.key for d in spec.dependencies] for spec in batch]
            if columns and spec.function not in NOT_RUN:
                has_any = any(dependencies)
                args = [spec.args for spec in batch]
                names = list(dict.fromkeys(spec.function for spec in batch))
                self.post(
                    TaskColumns(
                        states,
                        function,
                        args,
                        dependencies if has_any else [],
                        options,
                        hashes,
                        replaced,
                        [self.function(name) for name in names],
                        [names.index(spec.function) for spec in batch] if is_graph else [],
                        list(range(len(batch))) if is_graph else [],
                    )
                )
            else:
                self.post(
                    TaskRecord(
                        states[0],
                        function,
                        spec.args,
                        dependencies[0],
                        options,
                        spec.spec_hash,
                        replaced[0] if replaced else None,
                    )
                )
        return made

    def conditioned(self, _specs: list[Spec], options: TaskOptions) -> TaskOptions:
        """Return the options of tasks, perhaps with conditions."""
        return options

    def post(self, operation: Any) -> None:
        """Hand an operation to the core."""
        self._operations.append(operation)
        if not self._is_woken:
            self._is_woken = True
            self.world.at(self.world.rng.random() * 0.0005, self.flush_operations)

    def is_posted(self, kind: type[Any]) -> bool:
        """Return whether the core has not seen an operation of this kind yet."""
        return any(isinstance(operation, kind) for operation in self._operations)

    def flush_operations(self) -> None:
        """Let the core see the operations so far."""
        if not self.when_awake(self.flush_operations):
            return
        self._is_woken = False
        operations, self._operations = self._operations, []
        if operations:
            self.handle(Operations(operations))

    def hold(self, keys: list[str]) -> list[FutureState]:
        """Make futures of keys that came in a pickle; return their states."""
        states = [self.table.find_or_make(key) for key in keys]
        for state in states:
            if state.phase == NEW:
                self.post(Want([state]))
        return states

    def let_go(self, states: list[FutureState]) -> None:
        """Release a future of each of these states."""
        if self.is_alive:
            for state in states:
                self.post(state)

    # -- the session ------------------------------------------------------------------------------
    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        return RegisterClient(
            client_id=self.client_id,
            name=self.name,
            session=number,
            last_epoch=last_epoch,
            facts={"python": "3.11"},
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        return [Heartbeat()]

    def on_welcome(self) -> None:
        """See `SessionOwner`."""
        if self.core.epoch not in (0, self.session.machine.epoch):
            self.world.probes["client meets a new scheduler"] += 1
        if first := self.first_messages():
            self.session.send(first)
        self.handle(Connected(self.session.machine.epoch))
        self.world.probes["kept"] += len(self.core.kept)

    def on_messages(self, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        self.world.note(f"{self!r} <-", messages)
        self.handle(AnswersReceived(messages))

    def on_lost(self) -> None:
        """See `SessionOwner`."""
        self.handle(Disconnected())

    def _on_tick(self) -> None:
        if self.when_awake(self._on_tick):
            self.handle(ClientTick())
            self.world.at(1.0, self._on_tick, is_work=False)

    # -- the core ---------------------------------------------------------------------------------
    def handle(self, event: ClientEvent) -> None:
        """Let the core handle an event, and do what it leaves."""
        core = self.core
        core.handle(event, self.world.now)
        self.world.touched[self] = None
        before, core.before = core.before, []
        for notify in before:
            notify.watcher.on_ready(notify.items)
        if core.to_scheduler and self.session.is_open:
            messages, core.to_scheduler = core.to_scheduler, []
            self.session.send(messages)
        after, core.after = core.after, []
        for action in after:
            if isinstance(action, FetchFrom):
                self._fetch(action)
            elif isinstance(action, PutAt):
                self._put(action)

    def _fetch(self, action: FetchFrom) -> None:
        def on_answer(answer: KeysData | None) -> None:
            if not self.when_awake(on_answer, answer):
                return
            if answer is None:
                self.handle(ResultsNotFetched(action.request, "lost"))
            else:
                self.handle(ResultsFetched(action.request, answer.keys, answer.results))

        request = GetData(request=action.request, keys=action.keys)
        self.sim.ask(self, action.holder, request, on_answer)

    def _put(self, action: PutAt) -> None:
        def on_end(reason: str) -> None:
            if self.when_awake(on_end, reason):
                self.handle(PutEnded(action.request, reason))

        message = Put(
            request=action.request,
            keys=[action.key],
            attempts=[action.attempt],
            values=[action.value],
        )
        put(self.sim, self, action.holder, message, on_end)

    # -- checks -----------------------------------------------------------------------------------
    def check(self) -> None:
        """Validate the core, and what those who use it believe to hold."""
        validate(self.core)
        self.sim.objects.check(self)


def _alike(one: Spec, other: Spec, is_graph: bool) -> bool:
    """Return whether two tasks may be rows of one `map`, or of one graph."""
    return (
        (one.function == other.function or (is_graph and one.function not in NOT_RUN))
        and (one.spec_hash is None) == (other.spec_hash is None)
        and (one not in other.dependencies or is_graph)
        and options_of(one) == options_of(other)
    )


def options_of(spec: Spec) -> TaskOptions:
    """Return the options with which a task is submitted."""
    return TaskOptions(
        priority=spec.priority,
        retries=spec.retries,
        pauses=spec.pauses,
        workers=spec.workers,
        allow_other_workers=spec.allow_other_workers,
        resources=spec.resources,
        scattered=spec.scattered,
        part_index=spec.function == INDEX,
        timeout_us=spec.timeout_us,
        gang=spec.gang,
        category=spec.category,
    )


__all__ = ["ClientProcess", "options_of"]
