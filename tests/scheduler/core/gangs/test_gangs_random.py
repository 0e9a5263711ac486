"""Whatever happens to workers and clients, gangs run as a whole, and each comes to its end."""

from __future__ import annotations

from random import Random

import pytest

from weft.protocol.amounts import announced
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.scheduler.core.gangs.records import Gangs, gangs_of, gangs_of_tasks
from weft.scheduler.core.records.peers import WorkerHandle

from ...builders import Board, finished, graph
from .builders import gang, worker

N_STEPS = 120
#: A result that its client has and no worker any more is "released".
ENDED = ("memory", "erred", "released")


class World:
    """A board, and workers that end what they are told to run, in any order."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.board = Board(away_s=self.rng.choice([0.0, 1.0]))
        self.state = self.board.state
        self.client = self.board.client()
        self.n = 0
        self.lost: list[WorkerHandle] = []
        for _ in range(self.rng.randint(1, 3)):
            self.join()

    def new(self) -> int:
        self.n += 1
        return self.n

    def join(self) -> None:
        worker(self.board, f"w{self.new()}", nthreads=self.rng.randint(1, 3))

    def workers(self) -> list[WorkerHandle]:
        return [ws for ws in self.state.workers.values() if not ws.is_away]

    def any_attempt(self) -> tuple[WorkerHandle, int] | None:
        held = [a for gang in gangs_of(self.state).by_name.values() for a in gang.held_back]
        found = [(ws, a) for ws in self.workers() for a in ws.processing if a not in held]
        return self.rng.choice(found) if found else None

    # -- events -----------------------------------------------------------------------------------
    def submit(self) -> None:
        rng, name = self.rng, f"g{self.new()}"
        messages = gang(
            name,
            rng.randint(1, 4),
            retries=rng.choice([0, 2]),
            priority=rng.choice([0, 0, 1]),
            resources=rng.choice([{"cores": 1}, {"cores": 2}, {"cores": 0.5}]),
        )
        rng.shuffle(messages)
        if rng.random() < 0.5:
            self.board.send(self.client, *messages)
            return
        for message in messages:
            self.board.send(self.client, message)

    def submit_plain(self) -> None:
        keys = [f"x{self.new()}" for _ in range(self.rng.randint(1, 6))]
        self.board.send(self.client, graph(*keys, function="plain"))

    def finish(self) -> None:
        if found := self.any_attempt():
            blob = self.rng.choice([b"result", None])
            self.board.send(found[0].peer, finished([found[1]], blob=blob))

    def fail(self) -> None:
        if found := self.any_attempt():
            ws, attempt = found
            key = ws.processing[attempt].key
            failure = ["exception", key, b"", "ValueError", "bad", "", b""]
            report = m.AttemptsErred(attempts=[attempt], durations_us=[5], failures=[failure])
            self.board.send(ws.peer, report)

    def give_back(self) -> None:
        if found := self.any_attempt():
            self.board.send(found[0].peer, m.AttemptsReturned(attempts=[found[1]]))

    def end_dropped(self) -> None:
        for ws in self.workers():
            if ws.zombies:
                self.board.send(ws.peer, m.AttemptsEnded(attempts=list(ws.zombies)))
                return

    def block(self) -> None:
        found = self.any_attempt()
        if found and found[1] not in found[0].blocked:
            self.board.send(found[0].peer, m.AttemptsBlocked(attempts=[found[1]]))
        elif found:
            self.board.send(found[0].peer, m.AttemptsResumed(attempts=[found[1]]))

    def lose(self) -> None:
        if len(self.workers()) > 1:
            self.board.close(self.rng.choice(self.workers()).peer)

    def wanted(self) -> list[str]:
        (handle,) = self.state.clients.values()
        return [task.key for task in handle.wants]

    def cancel(self) -> None:
        if wanted := self.wanted():
            key, running = self.rng.choice(wanted), self.rng.random() < 0.5
            message = m.CancelKeys(keys=[key], force=False, reason="", running=running)
            self.board.send(self.client, message)

    def release(self) -> None:
        """Release all of a gang, as its futures live together."""
        if wanted := self.wanted():
            name = self.rng.choice(wanted).split("-")[0]
            keys = [key for key in wanted if key.split("-")[0] == name]
            self.board.send(self.client, m.ReleaseKeys(keys=keys))

    def retry(self) -> None:
        erred = [key for key in self.wanted() if self.state.tasks[key].state == "erred"]
        if erred:
            key = self.rng.choice(erred)
            self.board.send(self.client, m.RetryKeys(request=self.new(), keys=[key]))

    def wait(self) -> None:
        for ws in list(self.state.workers.values()):
            if not ws.is_away:
                self.board.send(ws.peer, m.Heartbeat())
        self.board.send(self.client, m.Heartbeat())
        self.board.tick(self.rng.choice([0.01, 0.5, 1.5]))

    def step(self) -> None:
        often = [self.submit, self.submit_plain, self.finish, self.finish, self.end_dropped]
        seldom = [self.fail, self.give_back, self.block, self.lose, self.cancel, self.release]
        others = [self.retry, self.join, self.wait, self.wait]
        self.rng.choice([*often, *often, *seldom, *others])()

    # -- the end ----------------------------------------------------------------------------------
    def come_to_rest(self) -> None:
        """Let all that was begun end, with a worker that can hold any gang."""
        amounts, facts = announced({}, 8, 0), {"host": "large", QUEUES_RESOURCES: True}
        self.board.worker("large", 8, resources=amounts, facts=facts)
        for _ in range(400):
            for ws in self.workers():
                if ws.zombies:
                    self.board.send(ws.peer, m.AttemptsEnded(attempts=list(ws.zombies)))
            for ws in self.workers():
                if ws.blocked:
                    self.board.send(ws.peer, m.AttemptsResumed(attempts=list(ws.blocked)))
            for ws in self.workers():
                if ws.processing:
                    self.board.send(ws.peer, finished(list(ws.processing)))
            left = [t for t in self.state.tasks.values() if t.state not in ENDED]
            if not left:
                return
            self.wait()
        raise AssertionError(f"these never end: {left}")


@pytest.mark.parametrize("seed", range(40))
def test_each_gang_comes_to_its_end_whatever_happens(seed):
    world = World(seed)
    for _ in range(N_STEPS):
        world.step()
    world.come_to_rest()
    board = world.board
    board.send(world.client, m.ReleaseKeys(keys=world.wanted()))
    for _ in range(3):
        for ws in world.workers():
            board.send(ws.peer, m.AttemptsEnded(attempts=list(ws.zombies)))
    assert not board.state.tasks
    assert not gangs_of(board.state).by_name
    assert not gangs_of_tasks(board.state)
    assert not gangs_of(board.state).kept
    assert Gangs not in board.state.busy
    board.drop_rest()
