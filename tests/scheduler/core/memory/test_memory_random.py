"""The brake on memory under random events: every invariant holds, and every task ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.protocol.wire import messages as m
from weft.scheduler.core.memory.records import memory_of
from weft.scheduler.core.records.tasks import ERRED, MEMORY

from ...builders import Board, finished, graph
from .test_memory import LARGE, LIMIT, MB, measure

BASE = 60 * MB
#: {function: the size of its results}
SIZES = {"make": LARGE, "huge": 5 * LARGE, "small": 8}
#: What processes use: most of these fill a worker.
MEASURED = [nbytes * MB for nbytes in (0, 100, 250, 310, 330, 345, 360, 375, 390)]
RESTRICTIONS = [
    {},
    {"workers": ["w0"]},
    {"workers": ["w1"], "allow_other_workers": True},
    {"resources": {"gpu": 1.0}},
    {"retries": 1, "pauses": [0.5, 1.0, 1.0, 0.0]},
]


class Play:
    """A board with two clients, and workers that do what they are sent, when a test wants it."""

    def __init__(self) -> None:
        self.board = Board(client_lease_s=60.0, heartbeat_s=1e6)
        self.clients = [self.board.client("alice"), self.board.client("bob")]
        self.wanted: dict[int, list[str]] = {client: [] for client in self.clients}
        self.n_keys = self.n_workers = 0
        self.join(0)
        self.join(0)
        for n in (0, 1):  # so the sizes of the results are known
            self.submit(12 * n + n)
            self.finish(n)
            self.finish(n)

    # -- events ------------------------------------------------------------------------------------
    def join(self, n: int) -> None:
        known = {ws.name for ws in self.board.state.workers.values()}
        free = [name for name in ("w0", "w1", "w2") if name not in known]
        if free:
            self.n_workers += 1
            self.board.worker(
                free[0],
                memory_limit=0 if n % 7 == 6 else LIMIT,
                worker_id=f"id {self.n_workers}",
                resources={"gpu": 1.0},
            )

    def lose(self, n: int) -> None:
        if worker := self._worker(n):
            self.board.close(worker)

    def submit(self, n: int) -> None:
        client = self.clients[n % 2]
        function = [*SIZES][n % 3]
        inputs = self.wanted[client][-(n % 4) :] if n % 4 else []
        options = RESTRICTIONS[n // 12 % len(RESTRICTIONS)]
        left = " ".join(f":{key}" for key in inputs)
        for _ in range(1 + n % 5):
            self.n_keys += 1
            key = f"k{self.n_keys}"
            self.board.send(client, graph(f"{left} -> {key}", function=function, **options))
            self.wanted[client].append(key)

    def finish(self, n: int) -> None:
        """Let a worker finish the first of its tasks, and end what it was sent to drop."""
        if worker := self._worker(n):
            ws = self.board.state.workers[worker]
            if ws.zombies:
                self.board.send(worker, m.AttemptsReturned(attempts=list(ws.zombies)))
            processing = ws.processing
            ready = [
                (attempt, task)
                for attempt, task in processing.items()
                if all(d.state == MEMORY for d in task.dependencies)
            ]
            for attempt, task in ready[: 1 + n % 3]:
                if attempt in processing:
                    size = SIZES[task.group.prefix.name]
                    self.board.send(worker, finished([attempt], nbytes=size, us=20_000, blob=None))

    def raise_(self, n: int) -> None:
        if worker := self._worker(n):
            keys = [task.key for task in self.board.state.workers[worker].processing.values()]
            if keys:
                self.board.raise_(worker, keys[0])

    def block(self, n: int) -> None:
        if worker := self._worker(n):
            ws = self.board.state.workers[worker]
            attempts = [attempt for attempt in ws.processing if attempt not in ws.blocked]
            self.board.send(worker, m.AttemptsBlocked(attempts=attempts[: 1 + n % 2]))

    def give_back(self, n: int, *, may_fail: bool = True) -> None:
        """Answer a request for what was not started: all but the first ones, or nothing."""
        if worker := self._worker(n):
            ws = self.board.state.workers[worker]
            if ws.return_asked:
                attempts = list(ws.processing)[ws.nthreads :] if n % 3 or not may_fail else []
                attempts = [a for a in attempts if a not in ws.blocked]
                self.board.send(worker, m.AttemptsReturned(attempts=attempts))

    def measure(self, n: int, *, is_true: bool = False) -> None:
        if worker := self._worker(n):
            nbytes = self.board.state.workers[worker].nbytes
            measure(self.board, worker, BASE + nbytes if is_true else MEASURED[n % len(MEASURED)])

    def release(self, n: int) -> None:
        wanted = self.wanted[self.clients[n % 2]]
        keys = wanted[n // 2 % 5 :: 3]
        if keys:
            self.board.send(self.clients[n % 2], m.ReleaseKeys(keys=keys))
            wanted[:] = [key for key in wanted if key not in keys]

    def wait(self, n: int) -> None:
        self.board.tick([0.0, 0.02, 0.7, 2.0, 8.0][n % 5])

    def _worker(self, n: int) -> int:
        peers = list(self.board.state.workers)
        return peers[n % len(peers)] if peers else 0

    # -- the end -----------------------------------------------------------------------------------
    def end(self) -> None:
        """Let the workers do all that they have, until nothing is left to do."""
        state = self.board.state
        for n in range(3):
            self.join(n)
        for _ in range(100):
            for n in range(len(state.workers)):
                self.give_back(n, may_fail=False)
                self.finish(n)
                self.measure(n, is_true=True)
            if not self._pending() and not any(ws.processing for ws in state.workers.values()):
                return
            self.board.tick(1.0)
        raise AssertionError(f"{self._pending()} never end")

    def _pending(self) -> list[object]:
        tasks = [self.board.task(key) for keys in self.wanted.values() for key in keys]
        return [task for task in tasks if task.state not in (MEMORY, ERRED)]


EVENTS = [
    Play.submit,
    Play.submit,
    Play.finish,
    Play.finish,
    Play.raise_,
    Play.block,
    Play.give_back,
    Play.measure,
    Play.release,
    Play.wait,
    Play.join,
    Play.lose,
]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1000)), min_size=15, max_size=50))
@settings(max_examples=60, deadline=None)
def test_every_task_ends_and_nothing_is_left_whatever_happens_to_full_workers(events):
    play = Play()
    for event, n in events:
        event(play, n)
    play.end()
    state = play.board.state
    assert not memory_of(state).aside
    for client, keys in play.wanted.items():
        play.board.send(client, m.ReleaseKeys(keys=keys))
    play.board.tick(2.0)
    assert not state.tasks
    assert not [t for ws in state.workers.values() for t in ws.processing.values()]
    assert memory_of(state).look is None
    assert not memory_of(state).stalled
