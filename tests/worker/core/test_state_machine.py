"""The worker's core under anything: a scheduler that is wrong, peers that fail, threads at will.

`Hands` validates the core after each event. On top of that, all reports must be true: no attempt
is reported twice, or after it was dropped or given back, and attempts that were given back had not
started.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.worker.builders import INC, OFFERED, SLOW, Hands, assign, drop, give_back, locate
from tests.worker.slow_lanes import TwinHands
from weft.protocol.wire.messages import (
    AttemptsErred,
    AttemptsFinished,
    AttemptsReturned,
    DropFunctions,
)
from weft.worker.core import seats
from weft.worker.core.events import SchedulerLost, SessionOpened, WorkerEnding

KEYS = [f"k{i}" for i in range(9)]
PEERS = ["tcp://a", "tcp://b", "tcp://c"]

keys = st.sampled_from(KEYS)
asked = st.sampled_from([None, {"gpu": 1.0}, {"mem": 0.4}, {"gpu": 1.0, "mem": 0.6}])
holders = st.lists(st.sampled_from([*PEERS, "tcp://me"]), max_size=3, unique=True)


class Worker(RuleBasedStateMachine):
    hands_class: type[Hands] = Hands

    def __init__(self):
        super().__init__()
        self.hands = self.hands_class(2)
        self.bounds = seats.MANY_BLOCKED, seats.MORE_BLOCKED
        seats.MANY_BLOCKED, seats.MORE_BLOCKED = 2, 1
        self.last_attempt = 0
        #: Attempts that must not be mentioned (again) in this session.
        self.over: set[int] = set()
        self.assigned: set[int] = set()
        #: {attempt: its resources}
        self.resources: dict[int, dict[str, float]] = {}

    def new_attempt(self) -> int:
        self.last_attempt += 1
        return self.last_attempt

    def any_attempt(self, data) -> int:
        attempt: int = data.draw(st.integers(1, self.last_attempt + 1), label="attempt")
        self.last_attempt = max(self.last_attempt, attempt)
        return attempt

    def listen(self, messages):
        for message in messages:
            if isinstance(message, AttemptsFinished | AttemptsErred):
                lengths = {len(message.attempts), len(message.durations_us)}
                assert len(lengths) == 1
            if isinstance(message, AttemptsFinished | AttemptsErred | AttemptsReturned):
                for attempt in message.attempts:
                    assert attempt in self.assigned
                    assert attempt not in self.over
                    self.over.add(attempt)

    @rule(
        data=st.data(),
        rows=st.lists(st.tuples(keys, st.lists(keys, max_size=3)), min_size=1, max_size=5),
        function=st.sampled_from([INC, SLOW]),
        located=st.lists(st.tuples(keys, st.integers(1, 200), holders), max_size=3),
        priority=st.none() | st.integers(0, 3),
        resources=asked,
    )
    def assign(self, data, rows, function, located, priority, resources):
        lines = []
        for key, inputs in rows:
            attempt = self.new_attempt()
            self.assigned.add(attempt)
            self.resources[attempt] = resources or {}
            lines.append(f"{attempt} {key} <- {' '.join(k for k in inputs if k != key)}")
        where = []
        for key, nbytes, at in located:
            fresh = data.draw(st.booleans(), label="fresh")
            attempt = self.new_attempt() if fresh else self.any_attempt(data)
            where.append((key, attempt, nbytes, at))
        # The older attempts of these keys, whether they are here or in this very message.
        current = self.hands.state.by_key
        newest: dict[str, int] = {key: current[key].attempt for key, _ in rows if key in current}
        for line in lines:
            attempt, key, *_ = line.split()
            if key in newest:
                self.over.add(newest[key])
            newest[key] = int(attempt)
        message = assign(
            *lines, located=where, function=function, priority=priority, resources=resources
        )
        if data.draw(st.booleans(), label="limited"):
            message.timeouts_us = [i % 2 for i in range(len(lines))]
        self.listen(self.hands.receive(message))

    @rule(data=st.data())
    def assign_again(self, data):
        attempt = self.any_attempt(data)
        self.assigned.add(attempt)
        key = data.draw(keys)
        current = self.hands.state.by_key.get(key)
        state = self.hands.state
        known = attempt in state.by_attempt or attempt in state.cancelled | state.released
        known = known or attempt in state.failures.by_attempt
        if not known:
            self.over.discard(attempt)
            self.resources[attempt] = {}
            if current is not None:
                self.over.add(current.attempt)
        self.listen(self.hands.receive(assign(f"{attempt} {key}")))

    @rule(data=st.data())
    def drop(self, data):
        attempts = [self.any_attempt(data) for _ in range(data.draw(st.integers(1, 4)))]
        self.over |= {attempt for attempt in attempts if attempt in self.hands.state.by_attempt}
        self.listen(self.hands.receive(drop(*attempts)))

    @rule(count=st.integers(0, 6))
    def give_back(self, count):
        started = {t.attempt for tasks in self.hands.started.values() for t in tasks}
        (answer,) = (
            m for m in self.hands.receive(give_back(count)) if isinstance(m, AttemptsReturned)
        )
        assert len(answer.attempts) <= count
        assert not started & set(answer.attempts)
        self.listen([answer])
        if len(answer.attempts) < count:  # then there was nothing else, cycles apart
            left = [*self.hands.state.offered, *self.hands.state.waiting.values()]
            assert all(task.pins for task in left)

    @rule(data=st.data(), key=keys, at=holders)
    def locate(self, data, key, at):
        self.listen(self.hands.receive(locate((key, self.any_attempt(data), 50, at))))

    @rule(function=st.sampled_from([INC, SLOW]))
    def drop_function(self, function):
        self.listen(self.hands.receive(DropFunctions(functions=[function])))

    @rule(slot=st.integers(0, 12))
    def start(self, slot):
        task = self.hands.start(slot) if slot in self.hands.seated else None
        assert task is None or task.state in {"executing", "cancelled"}

    @precondition(lambda self: self.hands.awake)
    @rule(
        slot=st.integers(0, 12),
        failed=st.sets(keys, max_size=1),
        duration_us=st.sampled_from([3, 40, 400, 5000]),
    )
    def report(self, slot, failed, duration_us):
        if slot in self.hands.awake & self.hands.seated:
            self.listen(self.hands.report(slot, failed=failed, duration_us=duration_us))

    @precondition(lambda self: any(self.hands.started.values()))
    @rule(data=st.data(), may_park=st.booleans())
    def block(self, data, may_park):
        running = [slot for slot in self.hands.seated if self.hands.started[slot]]
        if running and len(self.hands.started) < 12:
            slot = data.draw(st.sampled_from(sorted(running)))
            self.listen(self.hands.block(slot, may_park=may_park))

    @precondition(lambda self: self.hands.state.seats.blocked)
    @rule(data=st.data(), ends=st.booleans())
    def resume(self, data, ends):
        blocked = sorted(slot.index for slot in self.hands.state.seats.blocked)
        slot = data.draw(st.sampled_from(blocked))
        self.listen(self.hands.report(slot) if ends else self.hands.resume(slot))

    @precondition(lambda self: self.hands.fetches)
    @rule(data=st.data(), missing=st.sets(keys, max_size=2))
    def answer(self, data, missing):
        asked = [fetch.holder for fetch in self.hands.fetches.values()]
        self.listen(self.hands.answer(data.draw(st.sampled_from(asked)), missing=missing))

    @precondition(lambda self: self.hands.fetches)
    @rule(data=st.data())
    def fail(self, data):
        asked = [fetch.holder for fetch in self.hands.fetches.values()]
        self.listen(self.hands.fail(data.draw(st.sampled_from(asked))))

    @precondition(lambda self: self.hands.fetches)
    @rule(data=st.data(), elsewhere=st.sampled_from([*PEERS, "tcp://me"]))
    def pass_on(self, data, elsewhere):
        asked = [fetch.holder for fetch in self.hands.fetches.values()]
        self.listen(self.hands.pass_on(data.draw(st.sampled_from(asked)), elsewhere))

    @rule()
    def lose_the_scheduler(self):
        assert self.hands.handle(SchedulerLost()) == []

    @rule()
    def find_the_scheduler(self):
        self.listen(self.hands.handle(SessionOpened(is_first=False)))

    @invariant()
    def running_tasks_share_what_is_offered(self):
        for name, total in OFFERED.items():
            # Of a chunk one runs at a time; the hands report those before it with it.
            last = [tasks[-1].attempt for tasks in self.hands.started.values() if tasks]
            assert sum(self.resources[a].get(name, 0.0) for a in last) <= total + 1e-9

    @invariant()
    def no_slot_sleeps_while_a_task_is_ready(self):
        state = self.hands.state
        n_seats = 2 - state.seats.n_kept
        assert not state.ready.n or len(self.hands.awake & self.hands.seated) == n_seats

    def teardown(self):
        # Nothing gets stuck: when all threads and peers have done their part, a task that is left
        # waits for an input that is missing, or for another task that waits.
        seats.MANY_BLOCKED, seats.MORE_BLOCKED = self.bounds
        hands = self.hands
        while hands.awake or hands.fetches:
            for slot in hands.state.seats.blocked:
                self.listen(hands.resume(slot.index))
                break
            for slot in list(hands.awake):
                if slot in hands.awake & hands.seated:
                    hands.start(slot)
                    self.listen(hands.report(slot))
            for fetch in list(hands.fetches.values()):
                self.listen(hands.answer(fetch.holder))
        assert not hands.state.cancelled
        assert not hands.state.n_ready
        assert hands.state.offered.free == hands.state.offered.total
        for task in hands.state.waiting.values():
            assert any(record.state in {"missing", "waiting"} for record in task.inputs)
        self.listen(hands.handle(WorkerEnding()))
        assert hands.store == set()
        assert hands.state.fetching.peers == {}


class TwinWorker(Worker):
    """The same, with a twin of the core that has no fused lanes and must do the same."""

    hands_class = TwinHands


TestWorker = Worker.TestCase
TestWorker.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLanes = TwinWorker.TestCase
TestLanes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
