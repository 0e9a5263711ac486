"""The kit for the tests of the scheduler's core: a board to play events on, and graphs.

Nothing is mocked: `Board` holds the real core, turns short calls into events, drains the out-boxes
after each, and validates the core. A test reads: build, one event, compare what went out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, ClassVar, Final

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import ROLE_LEVELS, Role
from weft.scheduler.core.actions import Action, CloseConnection
from weft.scheduler.core.events import Event, PeerClosed, PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.records.settings import KernelSettings
from weft.scheduler.core.records.tasks import SchedulerTask
from weft.scheduler.core.state import SchedulerState

#: What a peer is sent with its registration and as time passes, which no test has to look at.
REGULAR: Final = (m.Welcome, m.Heartbeat, m.ClusterChanged, m.RecordTimes)


class Out(dict[int, list[Message]]):
    """The messages that went out after an event, by peer; it notes which of them a test looks at.

    A test that looks at some of them has to look at all: at the messages of each peer, or at those
    of each kind with `of`. See `Board.rest`.
    """

    def __init__(self, messages: Mapping[int, list[Message]] = MappingProxyType({})) -> None:
        super().__init__(messages)
        self.is_looked_at = False
        #: {peer: the kinds of its messages that were looked at; None = all}
        self._seen: dict[int, set[type[Message]] | None] = {}

    def of(self, peer: int, kind: type[Message]) -> list[Any]:
        """Return the messages of one kind to a peer."""
        self.is_looked_at = True
        seen = self._seen.setdefault(peer, set())
        if seen is not None:
            seen.add(kind)
        return [x for x in super().get(peer, []) if isinstance(x, kind)]

    def rest(self) -> list[str]:
        """Return the kinds of the messages that were not looked at; then they are."""
        found: list[str] = []
        if self.is_looked_at:
            for peer, messages in super().items():
                seen = self._seen.get(peer, set())
                unseen = () if seen is None else [x for x in messages if type(x) not in seen]
                found += [type(x).__name__ for x in unseen if not isinstance(x, REGULAR)]
            self._look(*super().keys())
        return found

    def _look(self, *peers: int) -> None:
        self.is_looked_at = True
        self._seen.update(dict.fromkeys(peers))

    def __getitem__(self, peer: int) -> list[Message]:
        self._look(peer)
        return super().__getitem__(peer)

    def get(self, peer: int, default: Any = None) -> Any:  # type: ignore[override]
        self._look(peer)
        return super().get(peer, default)

    def __iter__(self) -> Iterator[int]:
        self._look(*super().keys())
        return super().__iter__()

    def values(self) -> Any:  # type: ignore[override]
        self._look(*super().keys())
        return super().values()

    def items(self) -> Any:  # type: ignore[override]
        self._look(*super().keys())
        return super().items()

    def __eq__(self, other: object) -> bool:
        self._look(*super().keys())
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


def function_id(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


def graph(
    *lines: str,
    function: str = "inc",
    blob: bytes | None = b"pickle",
    named: bool | str = False,
    ranks: list[int] | None = None,
    **options: Any,
) -> m.SubmitTasks:
    """Make a submission from lines like "a b -> c" (c depends on a and b) and "d e" (no inputs).

    Keys on the left that no line has made yet are made as tasks without inputs; a key that begins
    with ":" is meant to be known already. `named` gives every key a spec hash of this text.
    """
    rows: dict[str, list[str]] = {}
    for line in lines:
        left, arrow, right = line.partition("->")
        keys = left.split()
        for key in keys:
            if not key.startswith(":"):
                rows.setdefault(key, [])
        for key in right.split() if arrow else ():
            rows[key] = [name.removeprefix(":") for name in keys]
    return m.SubmitTasks(
        functions=[function_id(function)],
        function_names=[function],
        function_blobs=[blob],
        function_of=[0] * len(rows),
        keys=list(rows),
        args=[f"args of {key}".encode() for key in rows],
        dependencies=list(rows.values()) if any(rows.values()) else [],
        spec_hashes=[function_id(str(named)) for _ in rows] if named else [],
        options=[options],
        ranks=ranks or [],
    )


class Board:
    """A scheduler's core, and the peers that are connected to it.

    At the end of each test nothing may be left in `rest()` of the boards that it has made.
    """

    #: of this test
    made: ClassVar[list[Board]] = []

    def __init__(self, *, epoch: int = 7, **options: Any) -> None:
        # Functions are dropped with their last task, so that tests see it; and a worker whose
        # connection ends is lost at once.
        names = KernelSettings.__dataclass_fields__
        given = {name: options.pop(name) for name in [*options] if name in names}
        settings = KernelSettings(**{"max_idle_functions": 0, "away_s": 0.0, **given})
        self.state = SchedulerState(epoch, settings, features=FEATURES, **options)
        self.now = 100.0
        self.actions: list[Action] = []
        #: The messages that went out after the last event.
        self.out = Out()
        #: of all events
        self._outs: list[Out] = []
        Board.made.append(self)
        self._n_peers = 0

    # -- events -----------------------------------------------------------------------------------
    def play(self, event: Event) -> Out:
        """Let one event happen; return the messages that went out, by peer."""
        self.out, self.actions = Out(), []
        self._outs.append(self.out)
        self._play(event)
        return self.out

    def _play(self, event: Event) -> None:
        self.state.handle(event, self.now)
        validate(self.state)
        for peer, messages in self.state.outboxes.items():
            self.out.setdefault(peer, []).extend(messages)
        self.state.outboxes.clear()
        self.actions += [*self.state.before, *self.state.after]
        self.state.before, self.state.after = [], []

    def send(self, peer: int, *messages: Message) -> Out:
        """Let messages of a peer arrive, in one batch."""
        return self.play(PeerSent(peer, list(messages)))

    def close(self, peer: int) -> Out:
        """Let a connection end."""
        return self.play(PeerClosed(peer))

    def tick(self, after: float = 0.0) -> Out:
        """Let time pass, with a tick at each deadline, and one at the end."""
        self.out, self.actions = Out(), []
        self._outs.append(self.out)
        end = self.now + after
        while self.state.next_deadline < end:
            self.now = max(self.now, self.state.next_deadline)
            self._play(SchedulerTick())
        self.now = end
        self._play(SchedulerTick())
        return self.out

    def hold_up(self, seconds: float) -> Out:
        """Let time pass in which the scheduler is suspended, and one tick after it."""
        self.now += seconds
        return self.play(SchedulerTick())

    def pass_time(self, seconds: float) -> list[str]:
        """Let time pass; return why peers were refused."""
        self.tick(seconds)
        return self.refused()

    def connect(self, role: Role, level: Level | None = None, user: str = "") -> int:
        """Let a connection be made; by default with the least level that its role needs."""
        self._n_peers += 1
        self.play(PeerConnected(self._n_peers, role, level or ROLE_LEVELS[role], user))
        return self._n_peers

    def client(
        self,
        client_id: str = "alice",
        *,
        last_epoch: int = 0,
        level: Level | None = None,
        worker_id: str = "",
        user: str = "",
    ) -> int:
        """Let a client register, or one in the tasks of a worker; return its peer."""
        peer = self.connect(Role.TASK_CLIENT if worker_id else Role.CLIENT, level, user)
        self.send(
            peer,
            m.RegisterClient(
                client_id=client_id,
                name=client_id,
                session=1,
                last_epoch=last_epoch,
                facts={},
                worker_id=worker_id,
            ),
        )
        return peer

    def worker(self, name: str = "w", nthreads: int = 1, **options: Any) -> int:
        """Let a worker register; return its peer."""
        peer = self.connect(Role.WORKER)
        self.send(
            peer,
            m.RegisterWorker(
                worker_id=options.get("worker_id", f"id of {name}"),
                name=name,
                session=1,
                last_epoch=options.get("last_epoch", 0),
                address=options.get("address", f"tcp://{name}"),
                nthreads=nthreads,
                memory_limit=options.get("memory_limit", 0),
                resources=options.get("resources", {}),
                supervisor_id=options.get("supervisor_id", ""),
                facts=options.get("facts", {"host": options.get("host", "here")}),
                is_unused=options.get("is_unused", False),
            ),
        )
        return peer

    def come_back(self, name: str = "w", *, last_epoch: int | None = None, **rows: Any) -> int:
        """Let a worker register that had a session before, and send its inventory.

        `rows` are {key: attempt} for each kind of row (see `inventory`), and options of `worker`.
        """
        kinds = (
            "kept", "running", "assigned", "dropped", "failed", "functions", "spec_hash", "n_raised"
        )  # fmt: skip
        options = {name: value for name, value in rows.items() if name not in kinds}
        epoch = self.state.epoch if last_epoch is None else last_epoch
        peer = self.worker(name, last_epoch=epoch, **options)
        self.send(peer, *inventory(**{k: rows[k] for k in kinds if k in rows}))
        return peer

    def supervisor(self, supervisor_id: str = "sup", *, last_epoch: int = 0) -> int:
        """Let a supervisor register; return its peer."""
        peer = self.connect(Role.SUPERVISOR)
        self.send(
            peer,
            m.RegisterSupervisor(
                supervisor_id=supervisor_id, session=1, last_epoch=last_epoch, facts={}
            ),
        )
        return peer

    def finish(
        self, peer: int, *keys: str, nbytes: int = 8, us: int = 1000, blob: bytes | None = b"result"
    ) -> Out:
        """Let a worker finish tasks that were assigned to it."""
        attempts = [self.attempt(key) for key in keys]
        return self.send(peer, finished(attempts, nbytes=nbytes, us=us, blob=blob))

    def raise_(self, peer: int, *keys: str) -> Out:
        """Let tasks that were assigned to a worker raise."""
        attempts = [self.attempt(key) for key in keys]
        return self.send(
            peer,
            m.AttemptsErred(
                attempts=attempts,
                durations_us=[1000] * len(keys),
                failures=[["exception", key, "ValueError"] for key in keys],
            ),
        )

    # -- what was sent ----------------------------------------------------------------------------
    def rest(self) -> list[str]:
        """Return the kinds of the messages beside those that the test has looked at.

        That is of all events of which it has looked at some message: no one has to look at what
        only prepares a test.
        """
        return [kind for out in self._outs for kind in out.rest()]

    def drop_rest(self) -> None:
        """State that it does not matter what else was sent."""
        self.rest()

    # -- the state --------------------------------------------------------------------------------
    def task(self, key: str) -> SchedulerTask:
        """Return the record of a known key."""
        return self.state.tasks[key]

    def attempt(self, key: str) -> int:
        """Return a key's current attempt."""
        return self.task(key).attempt

    def states(self, *keys: str) -> list[str]:
        """Return the states of keys, "-" for unknown ones."""
        tasks = self.state.tasks
        return [tasks[key].state if key in tasks else "-" for key in keys]

    def where(self, key: str) -> int | None:
        """Return the worker that a task is assigned to."""
        worker = self.task(key).worker
        return None if worker is None else worker.peer

    def refused(self) -> list[str]:
        """Return why the last event closed connections, as errors."""
        closed = [a for a in self.actions if isinstance(a, CloseConnection)]
        return [action.reason for action in closed if action.is_error]


def inventory(
    *,
    kept: dict[str, int] | None = None,
    running: dict[str, int] | None = None,
    assigned: dict[str, int] | None = None,
    dropped: dict[str, int] | None = None,
    failed: dict[str, int] | None = None,
    functions: Iterable[str] = (),
    spec_hash: str = "",
    n_raised: int = 0,
) -> list[Message]:
    """Make the messages of an inventory from {key: attempt} of each kind of row.

    `n_raised` is the number of exceptions before each attempt that has not finished.
    """
    kept, failed = kept or {}, failed or {}
    kinds = [(assigned, m.ASSIGNED), (running, m.RUNNING), (dropped, m.DROPPED)]
    rows = sorted((a, key, phase) for some, phase in kinds for key, a in (some or {}).items())

    def hashes(n: int) -> list[bytes]:
        return [function_id(spec_hash)] * n if spec_hash else []

    return [
        m.InventoryKept(
            keys=[*kept],
            attempts=[*kept.values()],
            nbytes=[8] * len(kept),
            spec_hashes=hashes(len(kept)),
        ),
        m.InventoryUnfinished(
            keys=[key for _, key, _ in rows],
            attempts=[attempt for attempt, _, _ in rows],
            phases=[phase for _, _, phase in rows],
            spec_hashes=hashes(len(rows)),
            n_raised=[n_raised] * len(rows) if n_raised else [],
        ),
        m.InventoryFailed(
            keys=[*failed],
            attempts=[*failed.values()],
            failures=[["exception", key, "ValueError"] for key in failed],
            spec_hashes=hashes(len(failed)),
            n_raised=[n_raised] * len(failed) if n_raised else [],
        ),
        m.InventoryFunctions(functions=[function_id(name) for name in functions]),
        m.InventoryEnd(n_rows=len(kept) + len(rows) + len(failed)),
    ]


def finished(
    attempts: Iterable[int], *, nbytes: int = 8, us: int = 1000, blob: bytes | None = b"result"
) -> m.AttemptsFinished:
    attempts = list(attempts)
    n = len(attempts)
    return m.AttemptsFinished(
        attempts=attempts, nbytes=[nbytes] * n, durations_us=[us] * n, results=[blob] * n
    )


def assigned(out: Out, peer: int) -> dict[str, int]:
    """Return {key: attempt} of the tasks that a worker is sent to run."""
    return {
        key: attempt
        for message in out.of(peer, m.AssignTasks)
        for key, attempt in zip(message.keys, message.attempts, strict=True)
    }


def assignment(out: Out, peer: int) -> m.AssignTasks:
    """Return the only assignment that a worker gets."""
    (message,) = out.of(peer, m.AssignTasks)
    return message


def sent_keys(out: Out, peer: int, kind: type[Message]) -> list[str]:
    """Return the keys in a peer's messages of one kind."""
    return [key for x in out.of(peer, kind) for key in x.keys]


def dropped(out: Out, peer: int) -> list[int]:
    """Return the attempts that a worker is sent to drop."""
    return [attempt for message in out.of(peer, m.DropAttempts) for attempt in message.attempts]


def failures(out: Out, peer: int) -> dict[str, list[Any]]:
    """Return {key: failure} of the failures that a client is sent."""
    return {
        key: message.failures[place]
        for message in out.of(peer, m.KeysErred)
        for key, place in zip(message.keys, message.failure_of, strict=True)
    }


def learn(board: Board, client: int, worker: int, us: int) -> None:
    """Let a task of the function take this long, and be forgotten."""
    board.send(client, graph("known"))
    board.finish(worker, "known", us=us)
    board.send(client, m.ReleaseKeys(keys=["known"]))
