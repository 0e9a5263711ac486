"""One worker sends anything that is well-formed: the scheduler goes on, others' results are right.

A worker is believed about the results of tasks that it may run, because it could as well return a
wrong value. What it must not do: end the scheduler, break an invariant (the board checks all after
each event), or change what clients get of tasks that run on other workers only.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.scheduler.core.recovery.records import recovery_of

from ..builders import Board, function_id, graph

#: An epoch before that of the board.
BEFORE = 5
#: Keys of tasks that only the honest worker may run, and of tasks that any worker may run.
HONEST, COMMON = ("h0", "h1", "h2"), ("c0", "c1", "c2")


class Honest:
    """A worker that does what it is sent, a bit later, and whose results name their keys."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.peer = board.worker("honest", nthreads=2)
        self.assigned: dict[int, str] = {}
        self.kept: dict[int, str] = {}
        self.fetched: list[int] = []

    def read(self) -> None:
        """Take what the scheduler has sent since the last event."""
        for message in self.board.out.get(self.peer, ()):
            if isinstance(message, m.AssignTasks):
                self.assigned |= dict(zip(message.attempts, message.keys, strict=True))
            elif isinstance(message, m.DropAttempts):
                for attempt in message.attempts:
                    self.kept.pop(attempt, None)
                    self.assigned.pop(attempt, None)
                self.fetched += message.attempts
            elif isinstance(message, m.FetchKeys):
                there = {key: key.encode() for key in self.kept.values()}
                keys = [key for key in message.keys if key in there]
                self.say(
                    m.KeysData(
                        request=message.request,
                        keys=keys,
                        results=[there[key] for key in keys],
                        missing=[key for key in message.keys if key not in there],
                    )
                )

    def say(self, message: Message) -> None:
        self.board.send(self.peer, message)

    def work(self) -> None:
        """Finish what is assigned, and report the ends of what was dropped."""
        ended, self.fetched = self.fetched, []
        if ended:
            self.say(m.AttemptsEnded(attempts=ended))
        done, self.assigned = self.assigned, {}
        self.kept |= done
        if done:
            report = m.AttemptsFinished(
                attempts=[*done],
                nbytes=[8] * len(done),
                durations_us=[1000] * len(done),
                results=[key.encode() for key in done.values()],
            )
            self.say(report)


class Play:
    """The board, an honest worker, a client and a liar, that do something in turns."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.board = Watched(away_s=5.0)
        if self.chance.random() < 0.5:
            self.board.state.first_attempt = self.board.state.next_attempt = 100
        self.honest = Honest(self.board)
        self.client = self.board.client(last_epoch=self.chance.choice([0, BEFORE]))
        self.results: dict[str, Any] = {}
        self.liar = 0
        # In this order: the worker answers at once, and what goes out then is read in between.
        self.board.watchers = [self.read_results, self.honest.read]

    def read_results(self) -> None:
        for message in self.board.out.get(self.client, ()):
            if isinstance(message, m.ResultsReady):
                self.results |= dict(zip(message.keys, message.results, strict=True))
            elif isinstance(message, m.KeysErred):
                self.results |= dict.fromkeys(message.keys, "failed")

    # -- the liar ---------------------------------------------------------------------------------
    def some(self, items: Any) -> list[Any]:
        found = sorted(items)
        return self.chance.choices(found, k=self.chance.randint(0, 4)) if found else []

    def lie(self) -> Message:
        """Make any message of a worker; each row may be repeated, foreign or out of any range."""
        chance = self.chance
        following = self.board.state.next_attempt
        early, late = range(1, min(6, following)), range(max(1, following - 6), following)
        attempts = self.some({*early, *late})
        if chance.random() < 0.05:
            attempts.append(chance.choice([0, following, 1 << 40]))
        n = len(attempts)
        keys = chance.choices([*COMMON, "unknown", "x"], k=n)
        sizes = chance.choices([0, 1, 8, 1 << 48], k=n)
        failures = [["exception", chance.choice(keys), "E"] for _ in attempts]
        hashes = (
            [function_id(chance.choice("ab")) for _ in attempts] if chance.random() < 0.3 else []
        )
        number = chance.choice([0, 1, 7, (1 << 63) - 1])
        return chance.choice(
            [
                m.AttemptsFinished(
                    attempts=attempts, nbytes=sizes, durations_us=sizes, results=[None] * n
                ),
                m.AttemptsErred(attempts=attempts, durations_us=sizes, failures=failures),
                m.AttemptsEnded(attempts=attempts),
                m.AttemptsReturned(attempts=attempts),
                m.AttemptsWithdrawn(attempts=attempts, started=attempts),
                m.ReplicasAdded(attempts=attempts, keys=[*keys[:-1], HONEST[0]][:n]),
                m.KeysMissing(
                    keys=[*keys, *self.some(HONEST)],
                    holder=chance.choice(["tcp://honest", "tcp://liar", "nowhere"]),
                    unreachable=chance.random() < 0.5,
                ),
                m.KeysData(request=number, keys=keys, results=[b"lie"] * n, missing=keys),
                m.Answer(request=number, info={"n": number}),
                m.WorkerStatus(
                    state="",
                    nthreads=number,
                    n_records=number,
                    n_ready=number,
                    managed_nbytes=number,
                    resident_nbytes=number,
                    cpu_percent=number,
                ),
                m.Unsupported(unknown_code=number, request=number),
                m.InventoryKept(keys=keys, attempts=attempts, nbytes=sizes, spec_hashes=hashes),
                m.InventoryUnfinished(
                    keys=keys,
                    attempts=attempts,
                    phases=chance.choices([0, 1, 2, 9], k=n),
                    spec_hashes=hashes,
                    n_raised=chance.choice([[], sizes]),
                ),
                m.InventoryFailed(
                    keys=keys, attempts=attempts, failures=failures, spec_hashes=hashes
                ),
                m.InventoryFunctions(functions=[function_id("inc")] * 2),
                m.InventoryEnd(n_rows=chance.choice([0, n, number])),
            ]
        )

    def step_of_the_liar(self) -> None:
        board, chance = self.board, self.chance
        if self.liar not in board.state.workers:
            epoch = chance.choice([0, BEFORE, board.state.epoch])
            self.liar = board.worker("liar", nthreads=2, last_epoch=epoch)
            return
        ws = board.state.workers[self.liar]
        n_before = 0 if ws.inventory is None else ws.inventory.n_rows
        lies = [self.lie() for _ in range(chance.randint(1, 4))]
        if ws.inventory is not None and chance.random() < 0.8:
            lies = [lie for lie in lies if type(lie).__name__.startswith("Inventory")]
            lies = [lie for lie in lies if not isinstance(lie, m.InventoryEnd)]
            n_rows = n_before + sum(len(getattr(lie, "attempts", ())) for lie in lies)
            lies.append(m.InventoryEnd(n_rows=n_rows))
        board.send(self.liar, *lies)

    # -- all --------------------------------------------------------------------------------------
    def step(self) -> None:
        board, chance = self.board, self.chance
        what = chance.choice(["lie", "lie", "lie", "work", "submit", "time", "client", "close"])
        if what == "lie":
            self.step_of_the_liar()
        elif what == "work":
            self.honest.work()
        elif what == "submit":
            retries = chance.choice([0, 2])
            board.send(self.client, graph(*HONEST, workers=["honest"]))
            board.send(self.client, graph("c0 c1 -> c2", retries=retries))
        elif what == "time":
            board.tick(chance.choice([0.1, 1.0, 4.0]))
        elif what == "close" and chance.random() < 0.3:
            board.close(self.liar)
        elif what == "client":
            keys = self.some([*COMMON, *HONEST])
            board.send(
                self.client,
                chance.choice(
                    [
                        m.ReleaseKeys(keys=keys),
                        m.CancelKeys(keys=keys, force=True, reason="so"),
                        m.WantKeys(keys=keys),
                        m.ReportMissing(keys=keys, holder="tcp://liar"),
                        m.FetchKeys(request=1, keys=keys),
                        m.Resubmitted(),
                    ]
                ),
            )
        board.send(self.honest.peer, m.Heartbeat())


class Watched(Board):
    """A board that lets others read what went out after each event."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.watchers: list[Any] = []

    def play(self, event: Any) -> Any:
        out = super().play(event)
        self._show()
        return out

    def tick(self, after: float = 0.0) -> Any:
        out = super().tick(after)
        self._show()
        return out

    def _show(self) -> None:
        for watcher in self.watchers:
            watcher()


@pytest.mark.parametrize("seed", range(24, 50))
def test_whatever_a_worker_sends_others_get_their_results(seed):
    play = Play(seed)
    board = play.board
    for _ in range(40):
        play.step()
    board.close(play.liar)
    board.send(play.client, m.Resubmitted())
    play.results.clear()
    board.send(play.client, m.ReleaseKeys(keys=[*HONEST, *COMMON]))
    board.send(play.client, graph(*HONEST, workers=["honest"]))
    for _ in range(30):
        board.send(play.honest.peer, m.Heartbeat())
        board.tick(4.0)
        play.honest.work()
    assert play.results == {key: key.encode() for key in HONEST}
    assert play.honest.peer in board.state.workers
    assert play.client in board.state.clients_by_peer
    board.send(play.client, m.ReleaseKeys(keys=[*HONEST]))
    assert not board.state.tasks
    assert not recovery_of(board.state).rows
    assert not recovery_of(board.state).twins
    board.drop_rest()
