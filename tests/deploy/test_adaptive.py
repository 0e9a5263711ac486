"""The size of a cluster that adapts: seeded loads on a simulated cluster with the real scheduler's
core, workers that take time to start, and the real core of the adaptation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.scheduler.builders import Board, assigned, graph
from weft.deploy.adaptive import AdaptiveConfig, Sizing
from weft.protocol.errors import ConfigError
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.desired import desired_workers


class SimulatedCluster:
    """A scheduler's core, workers that start late, run one task at a time, and leave on request."""

    def __init__(self, config: AdaptiveConfig, seed: int = 0, start_s: float = 1.0) -> None:
        self.board = Board()
        self.client = self.board.client()
        self.rng = random.Random(seed)
        self.config = config
        self.sizing = Sizing(config)
        self.start_s = start_s
        self.size = 0
        self.now = 0.0
        self.next_look = 0.0
        self.durations: dict[str, float] = {}
        #: {worker: (key, its end)} of running tasks; {worker: keys that wait there}
        self.running: dict[int, tuple[str, float]] = {}
        self.waiting: dict[int, list[str]] = {}
        #: when workers that were started join
        self.starting: list[float] = []
        self.leaving: dict[int, None] = {}
        self.sizes: list[tuple[float, int]] = []
        self.n_done = 0
        self._n_names = 0

    def submit(self, n: int, seconds: float, name: str = "f") -> None:
        """Let the client submit independent tasks."""
        keys = [f"{name}-{len(self.durations) + i}" for i in range(n)]
        self.durations |= dict.fromkeys(keys, seconds)
        self._take(self.board.send(self.client, graph(*keys, function=name)))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, in steps of 0.1 s."""
        end = self.now + seconds
        while self.now < end and not until():
            self._step()

    def _step(self) -> None:
        board = self.board
        self.now = round(self.now + 0.1, 6)
        self._take(board.tick(0.1))
        for when in [when for when in self.starting if when <= self.now]:
            self.starting.remove(when)
            self._n_names += 1
            board.worker(f"w{self._n_names}")
            self._take(board.out)
        for worker, (key, end) in list(self.running.items()):
            if end <= self.now:
                del self.running[worker]
                self.n_done += 1
                us = int(self.durations[key] * 1e6)
                self._take(board.finish(worker, key, us=us))
                board.send(self.client, m.ReleaseKeys(keys=[key]))
        for worker in list(board.state.workers):
            self._take(board.send(worker, m.Heartbeat()))
        self._start_tasks()
        for worker in list(self.leaving):
            if worker not in self.running:
                del self.leaving[worker]
                self._take(board.send(worker, m.Bye(reason="retired")))
        if self.now >= self.next_look:
            self.next_look = self.now + self.config.interval_s
            self._look()

    def _look(self) -> None:
        found = desired_workers(self.board.state, self.config.target_s)
        n = self.sizing.decide(self.now, found.n_workers, self.size)
        if n is None or n == self.size:
            return
        self.sizes.append((self.now, n))
        for _ in range(n - self.size):
            self.starting.append(self.now + self.start_s * (0.5 + self.rng.random()))
        self.size = n
        excess = len(self.board.state.staying) + len(self.starting) - n
        while excess > 0 and self.starting:  # given up before they have joined
            self.starting.pop()
            excess -= 1
        staying = dict(self.board.state.staying)
        arguments = {"order": f"{self.now}", "keep": n, "wait": False}
        out = self.board.send(self.client, m.Ask(request=1, name="retire", arguments=arguments))
        gone = [ws for ws in staying.values() if ws.is_leaving]
        left = [ws for ws in staying.values() if not ws.is_leaving]
        if any(ws.processing for ws in gone):
            assert all(ws.processing for ws in left), "a busy worker goes, and an idle one stays"
        self.leaving |= dict.fromkeys(ws.peer for ws in gone)
        self._take(out)

    def _take(self, out: dict[int, list[m.Message]]) -> None:
        """Let workers take their tasks, and give them back."""
        for worker, messages in out.items():
            self.waiting.setdefault(worker, []).extend(assigned(out, worker))
            if any(isinstance(message, m.ReturnAttempts) for message in messages):
                back = self.waiting.pop(worker)
                attempts = [self.board.attempt(key) for key in back]
                self._take(self.board.send(worker, m.AttemptsReturned(attempts=attempts)))
        self._start_tasks()

    def _start_tasks(self) -> None:
        for worker, keys in self.waiting.items():
            if keys and worker not in self.running and worker in self.board.state.workers:
                key = keys.pop(0)
                self.running[worker] = (key, self.now + self.durations[key])

    @property
    def n_turns(self) -> int:
        """How often it went from growing to shrinking, or back."""
        sizes = [0, *(n for _, n in self.sizes)]
        ups = [b > a for a, b in pairwise(sizes)]
        return sum(a != b for a, b in pairwise(ups))


CONFIG = AdaptiveConfig(minimum=0, maximum=20, wait_up_s=1.0, wait_down_s=10.0, target_s=5.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_grows_to_the_work_and_goes_to_its_minimum_when_idle(seed):
    cluster = SimulatedCluster(CONFIG, seed)
    rng = random.Random(seed)
    n, seconds = rng.randint(20, 80), rng.choice([1.0, 2.0, 5.0])
    cluster.submit(n, seconds)
    cluster.run(600.0, until=lambda: cluster.n_done == n)
    assert cluster.n_done == n
    peak = max(size for _, size in cluster.sizes)
    assert min(20, n * seconds / 5.0) * 0.5 <= peak <= 20
    cluster.run(60.0)
    assert cluster.size == 0
    assert not cluster.board.state.workers
    assert cluster.n_turns == 1, cluster.sizes
    # From zero and back.
    cluster.submit(5, seconds)
    cluster.run(600.0, until=lambda: cluster.n_done == n + 5)
    cluster.run(60.0)
    assert cluster.size == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_load_that_comes_in_bursts_does_not_make_the_size_flap(seed):
    cluster = SimulatedCluster(CONFIG, seed)
    rng = random.Random(seed)
    n = 0
    for _ in range(20):  # each gap is shorter than the wait
        n_tasks = rng.randint(5, 20)
        n += n_tasks
        cluster.submit(n_tasks, rng.choice([0.5, 1.0]))
        cluster.run(rng.uniform(2.0, 7.0))
    cluster.run(300.0, until=lambda: cluster.n_done == n)
    assert cluster.n_done == n
    changes = list(pairwise([(0.0, 0), *cluster.sizes]))
    for ((_, before), (grown, peak)), ((_, _), (shrunk, left)) in pairwise(changes):
        if before < peak > left:
            assert shrunk - grown >= CONFIG.wait_down_s, cluster.sizes


def test_a_peak_that_is_shorter_than_the_wait_starts_no_worker():
    sizing = Sizing(AdaptiveConfig(minimum=1, wait_up_s=3.0, wait_down_s=10.0))
    wanted = [1, 9, 9, 1, 9, 9, 9, 9]
    found = [sizing.decide(float(now), desired, 1) for now, desired in enumerate(wanted)]
    assert found == [None] * 7 + [9]


def test_a_gap_that_is_shorter_than_the_wait_ends_no_worker():
    sizing = Sizing(AdaptiveConfig(wait_up_s=0.0, wait_down_s=5.0))
    assert sizing.decide(0.0, 8, 0) == 8
    assert [sizing.decide(1.0 + i, 0, 8) for i in range(4)] == [None] * 4
    assert sizing.decide(5.0, 8, 8) is None
    assert [sizing.decide(6.0 + i, 3, 8) for i in range(6)] == [None] * 5 + [3]


def test_the_limits_need_no_wait():
    sizing = Sizing(AdaptiveConfig(minimum=2, maximum=4))
    assert sizing.decide(0.0, 0, 0) == 2
    assert sizing.decide(1.0, 0, 9) == 4


def test_a_size_that_someone_else_changed_is_where_it_goes_on():
    sizing = Sizing(AdaptiveConfig(wait_up_s=1.0, wait_down_s=1.0))
    for now in range(5):
        sizing.decide(float(now), 3, 3)
    assert sizing.decide(5.0, 3, 7) == 3


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"minimum": -1}, "minimum"),
        ({"maximum": 0}, "maximum"),
        ({"minimum": 5, "maximum": 4}, "maximum"),
        ({"maximum": 2.5}, "maximum"),
        ({"interval_s": 0.0}, "interval"),
        ({"target_s": 0.0}, "target_duration"),
        ({"wait_down_s": float("inf")}, "wait_down"),
    ],
)
def test_wrong_limits_are_errors(options, name):
    with pytest.raises(ConfigError) as caught:
        AdaptiveConfig(**options).check()
    assert name in str(caught.value)
