"""transitions.py: the table, the lanes that are fused, and every event in every state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.protocol.errors import InvalidTransition
from weft.protocol.wire import messages as m
from weft.scheduler.core.events import PeerClosed, PeerSent, SchedulerTick
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.moves.transitions import TRANSITIONS, move
from weft.scheduler.core.records.prefixes import Series
from weft.scheduler.core.records.tasks import FORGOTTEN, RELEASED, State
from weft.scheduler.core.state import SchedulerState

from ...builders import Board, finished, graph
from ...slow_lanes import slow_lanes

STATES = get_args(State)


# -- the table ------------------------------------------------------------------------------------
def test_every_state_can_be_reached_and_left_and_the_end_is_the_end():
    reached = {RELEASED}
    while more := {b for a, b in TRANSITIONS if a in reached} - reached:
        reached |= more
    assert reached == set(STATES)
    assert {a for a, _ in TRANSITIONS} == set(STATES) - {FORGOTTEN}
    assert all(TRANSITIONS.values())


@pytest.mark.parametrize(
    ("start", "finish"), [move for move in product(STATES, STATES) if move not in TRANSITIONS]
)
def test_a_move_that_the_table_lacks_raises_with_the_story_and_changes_nothing(
    board, start, finish
):
    task = board_with(start, board)
    with pytest.raises(InvalidTransition) as caught:
        move(board.state, task, finish)
    assert (caught.value.start, caught.value.finish) == (start, finish)
    if start != FORGOTTEN:
        assert any("submitted by alice" in line for line in caught.value.story)
        validate(board.state)


# -- every event in every state -------------------------------------------------------------------
def board_with(name: str, board: Board):
    """Bring the task "t" into a state; "in" is its input, "out" depends on it."""
    alice = board.client("alice")
    board.client("bob")
    board.supervisor("sup")
    if name == "no_worker":
        board.send(alice, graph("t"))
        return board.task("t")
    worker = board.worker("w", supervisor_id="sup", worker_id="w1", resources={"r": 1.0})
    board.worker("other", worker_id="w2")
    if name == "queued":
        board.send(alice, graph("full", function="g", resources={"r": 1.0}))
        board.send(alice, graph("t", resources={"r": 1.0}))
    elif name == "waiting":
        board.send(alice, graph("in", resources={"r": 1.0}, function="g"))
        board.send(alice, graph(":in -> t", resources={"r": 1.0}))
    else:
        board.send(alice, graph("in -> t", "t -> out"))
        task = board.task("t")
        if name in {"memory", "released"}:
            board.finish(board.where("in"), "in")
            board.finish(board.where("t"), "t")
            if name == "released":
                board.finish(board.where("out"), "out")
                board.send(alice, m.ReleaseKeys(keys=["t"]))
        elif name == "erred":
            board.finish(board.where("in"), "in")
            board.raise_(board.where("t"), "t")
        elif name == "forgotten":
            board.send(alice, m.ReleaseKeys(keys=["in", "t", "out"]))
            assert task.state == name
            return task
    assert worker in board.state.workers
    assert board.task("t").state == name
    return board.task("t")


Act = Callable[[Board, int], object]


def peers(board: Board) -> tuple[int, int, list[int], int]:
    clients = {client.name: client.peer for client in board.state.clients.values()}
    return (
        clients["alice"],
        clients["bob"],
        list(board.state.workers),
        next(iter(board.state.supervisors)),
    )


def from_client(*messages: m.Message, who: int = 0) -> Act:
    return lambda board, _attempt: board.send(peers(board)[who], *messages)


def from_workers(make: Callable[[int], m.Message]) -> Act:
    def act(board: Board, attempt: int) -> None:
        for worker in peers(board)[2]:
            if worker in board.state.workers:
                board.send(worker, make(attempt))

    return act


def close(which: Callable[[Board], list[int]]) -> Act:
    return lambda board, _attempt: [board.close(peer) for peer in which(board)]


EVENTS: dict[str, Act] = {
    "submit": from_client(graph("t")),
    "submit by another": from_client(graph("in -> t", "t -> new"), who=1),
    "submit a dependent": from_client(graph(":t -> new")),
    "want": from_client(m.WantKeys(keys=["t"]), who=1),
    "release": from_client(m.ReleaseKeys(keys=["t"])),
    "release all": from_client(m.ReleaseKeys(keys=["out", "t", "in"])),
    "cancel": from_client(m.CancelKeys(keys=["t"], force=False, reason="")),
    "cancel its input": from_client(m.CancelKeys(keys=["in"], force=True, reason="")),
    "retry": from_client(m.RetryKeys(request=1, keys=["t", "in"])),
    "withdraw": from_client(m.WithdrawKeys(keys=["t", "in"], reason="")),
    "fetch": from_client(m.FetchKeys(request=1, keys=["t", "t"])),
    "report missing": from_client(m.ReportMissing(keys=["t"], holder="tcp://w")),
    "report missing twice": from_client(
        m.ReportMissing(keys=["t", "in"], holder="tcp://w"),
        m.ReportMissing(keys=["t", "in"], holder="tcp://other"),
    ),
    "info": from_client(m.Ask(request=1, name="cluster")),
    "bye": from_client(m.Bye(reason="")),
    "finished": from_workers(lambda attempt: finished([attempt or 1, attempt or 1])),
    "finished large": from_workers(lambda attempt: finished([attempt or 1], blob=None)),
    "erred": from_workers(
        lambda attempt: m.AttemptsErred(
            attempts=[attempt or 1], durations_us=[1], failures=[["exception", "t", "E"]]
        )
    ),
    "returned": from_workers(lambda attempt: m.AttemptsReturned(attempts=[attempt or 1])),
    "withdrawn": from_workers(
        lambda attempt: m.AttemptsWithdrawn(attempts=[attempt or 1], started=[2])
    ),
    "replica": from_workers(lambda attempt: m.ReplicasAdded(attempts=[attempt or 1], keys=["t"])),
    "old replica": from_workers(lambda _: m.ReplicasAdded(attempts=[999], keys=["t"])),
    "missing": from_workers(lambda _: m.KeysMissing(keys=["t", "in"], holder="tcp://w")),
    "missing nowhere": from_workers(lambda _: m.KeysMissing(keys=["t"], holder="")),
    "data": from_workers(
        lambda _: m.KeysData(request=1, keys=["t"], results=[b""], missing=["in"])
    ),
    "worker bye": from_workers(lambda _: m.Bye(reason="")),
    "workers lost": close(lambda board: list(board.state.workers)),
    "client lost": close(lambda board: [peers(board)[0]]),
    "supervisor lost": close(lambda board: [peers(board)[3]]),
    "worker exited": lambda board, attempt: board.send(
        peers(board)[3],
        m.WorkerExited(worker_id="w1", reason="SIGKILL", running=[attempt or 1]),
    ),
    "tick": lambda board, _attempt: board.tick(1.0),
    "all leases end": lambda board, _attempt: (
        [board.close(peer) for peer in peers(board)[:2]],
        board.tick(2 * board.state.settings.client_lease_s),
    ),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("name", STATES)
def test_every_event_in_every_state_moves_or_ignores_and_leaves_a_valid_state(name, event):
    board = Board(allowed_deaths=0, client_lease_s=10.0)
    task = board_with(name, board)
    EVENTS[event](board, task.attempt)  # Board validates after each event
    # No wait is endless: with a worker that may run all tasks, each wanted task comes to its end.
    board.worker("last", nthreads=8, worker_id="w9", resources={"r": 9.0})
    for _ in range(20):
        work = [(peer, list(ws.processing)) for peer, ws in board.state.workers.items()]
        for peer, attempts in work:
            board.send(peer, finished(attempts))
    assert all(
        task.state in {"memory", "erred"} or (task.state == "released")
        for task in board.state.tasks.values()
    )


def test_two_events_after_each_other_in_every_order():
    """All pairs, from the state in which most things can happen.

    Leases and heartbeats are short, because time passes deadline by deadline: with those of the
    product, the two minutes of "all leases end" took four fifths of the time of this test.
    """
    for first, second in product(EVENTS.values(), repeat=2):
        board = Board(allowed_deaths=0, client_lease_s=2.0, heartbeat_s=0.2)
        task = board_with("processing", board)
        first(board, task.attempt)
        if len(board.state.clients_by_peer) == 2 and board.state.supervisors:
            second(board, task.attempt)


# -- fused lanes ----------------------------------------------------------------------------------
def snapshot(state: SchedulerState) -> dict[str, Any]:
    """Describe everything that the lanes write to."""
    return {
        "tasks": {
            key: (
                task.state,
                task.attempt,
                task.worker and task.worker.peer,
                [ws.peer for ws in task.replicas],
                task.nbytes if task.state == "memory" else 0,
                task.n_waiters,
                task.delivered and bool(task.wanted_by),
                sorted(d.key for d in task.waiting_on or ()),
                task.estimate_ns,
                task.priority,
                [client.name for client in task.wanted_by],
            )
            for key, task in state.tasks.items()
        },
        "workers": {
            peer: (
                list(ws.processing),
                ws.occupancy_ns,
                ws.nbytes,
                sorted(t.key for t in ws.has_what),
                ws.free_resources,
                ws.last_progress,
            )
            for peer, ws in state.workers.items()
        },
        "queues": {
            key: [task.key for task in task_class.queue.items()]
            for key, task_class in state.classes.items()
        },
        "prefixes": {
            name: (
                prefix.estimate_ns,
                prefix.n_finished,
                prefix.compute_ns,
                [getattr(prefix.series, field) for field in Series.__slots__],
            )
            for name, prefix in state.prefixes.items()
        },
        "durations": state.prefixes.durations.plain(),
        "counters": dataclasses.asdict(state.counters),
        "next": (state.next_attempt, state.ranks.next, state.ranks.generation),
    }


def said(state: SchedulerState) -> dict[int, list[Any]]:
    """Describe the messages that went out: to workers exactly, to clients row by row."""
    out: dict[int, list[Any]] = {}
    for peer, messages in state.outboxes.items():
        if peer in state.workers:
            out[peer] = messages
            continue
        rows = out[peer] = []
        for message in messages:
            if isinstance(message, m.ResultsReady):
                rows += [("ready", *row) for row in zip(message.keys, message.results, strict=True)]
            elif isinstance(message, m.KeysInMemory):
                rows += [
                    ("in memory", key, nbytes, message.holders[i])
                    for key, nbytes, i in zip(
                        message.keys, message.nbytes, message.holder_of, strict=True
                    )
                ]
            else:
                rows.append(("other", repr(message)))
        rows.sort(key=repr)
    return out


class Pair:
    """The same events to a state with the fused lanes and to one with the plain moves."""

    def __init__(self) -> None:
        self.fast, self.slow = Board(), Board()

    def both(self, play: Callable[[Board], Any]) -> Any:
        result = play(self.fast)
        with slow_lanes(self.slow.state):
            play(self.slow)
        return result

    def event(self, event: Any) -> None:
        self.fast.state.handle(event, self.fast.now)
        with slow_lanes(self.slow.state):
            self.slow.state.handle(event, self.slow.now)
        for board in (self.fast, self.slow):
            validate(board.state)
        assert said(self.fast.state) == said(self.slow.state)
        assert snapshot(self.fast.state) == snapshot(self.slow.state)
        for board in (self.fast, self.slow):
            board.state.outboxes.clear()
            board.state.after.clear()


def random_submission(rng: Random, n: int) -> m.SubmitTasks:
    keys = [f"k{rng.randrange(40)}" for _ in range(rng.randint(1, 8))]
    lines = []
    for key in dict.fromkeys(keys):
        inputs = [f":k{rng.randrange(40)}" for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        lines.append(f"{' '.join(inputs)} -> {key}" if inputs else key)
    return graph(
        *lines,
        function=rng.choice(["f", "g"]),
        resources=rng.choice([{}, {}, {"r": 1.0}]),
        priority=rng.choice([0, 0, 1]),
        retries=rng.choice([0, 1]),
        workers=rng.choice([[], [], ["w0"]]),
    )


@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 30))
def test_the_fused_lanes_equal_the_moves_of_the_table(seed):
    rng = Random(seed)
    pair = Pair()
    clients = [pair.both(lambda board, c=c: board.client(c)) for c in ("alice", "bob")]
    workers = [
        pair.both(lambda board, i=i: board.worker(f"w{i}", 1 + i, resources={"r": 2.0}))
        for i in range(rng.randint(0, 2))
    ]
    for n in range(30):
        kind = rng.choice(
            ["submit", "submit", "finish", "finish", "finish", "raise", "release", "more"]
        )
        state = pair.fast.state
        processing = [
            (peer, list(ws.processing)) for peer, ws in state.workers.items() if ws.processing
        ]
        if kind == "submit":
            pair.event(PeerSent(rng.choice(clients), [random_submission(rng, n)]))
        elif kind in {"finish", "raise"} and processing:
            peer, attempts = rng.choice(processing)
            some = rng.sample(attempts, k=rng.randint(1, len(attempts)))
            if kind == "finish":
                message: m.Message = m.AttemptsFinished(
                    attempts=[*some, 10**6][: len(some) + rng.randrange(2)] or some,
                    nbytes=[],
                    durations_us=[],
                    results=[],
                )
                for attempt in message.attempts:
                    message.nbytes.append(attempt)
                    message.durations_us.append(rng.randrange(5000))
                    message.results.append(rng.choice([None, b"blob %d" % attempt]))
            else:
                failures = [["exception", "k", "E"] for _ in some]
                message = m.AttemptsErred(
                    attempts=some, durations_us=[1] * len(some), failures=failures
                )
            pair.event(PeerSent(peer, [message]))
        elif kind == "release" and state.tasks:
            keys = rng.sample(list(state.tasks), k=min(len(state.tasks), rng.randint(1, 6)))
            pair.event(PeerSent(rng.choice(clients), [m.ReleaseKeys(keys=keys)]))
        elif kind == "more":
            roll = rng.random()
            if roll < 0.5:
                name = f"n{n}"
                workers.append(pair.both(lambda board, name=name: board.worker(name, 1)))
            elif workers and roll < 0.8:
                pair.event(PeerClosed(workers.pop(rng.randrange(len(workers)))))
            else:
                for board in (pair.fast, pair.slow):
                    board.now += 1.0
                pair.event(SchedulerTick())
