"""Builders of messages for the tests of the worker's core, and an executor by hand.

Nothing is mocked: the core is the real one, and `Hands` acts as a slot's thread, one step at
a time and when the test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.outbox import Outbox, outboxes
from weft.protocol.amounts import announced
from weft.protocol.values.serialize import dumps_arguments, dumps_function
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    AssignTasks,
    DropAttempts,
    LocatedKeys,
    ReturnAttempts,
)
from weft.worker.core.events import (
    ChunkDone,
    CopiesElsewhere,
    CopiesFetched,
    CopiesNotFetched,
    EndFetch,
    EndWorker,
    FailWait,
    Fetch,
    ForgetFunctions,
    ForgetValues,
    InterruptRunning,
    LeaveSeat,
    Run,
    SchedulerSent,
    SlotBlocked,
    SlotResumes,
    StartSlot,
    TakeSeat,
    WorkerAction,
    WorkerEvent,
)
from weft.worker.core.features import FEATURES
from weft.worker.core.features.categories import WatchMemory
from weft.worker.core.features.output import CatchOutput
from weft.worker.core.features.promises import AnswerPromises, AskPromised, PromiseEnded
from weft.worker.core.features.puts import EarlyValues
from weft.worker.core.features.timeouts import WatchRunning
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import WorkerTask
from weft.worker.core.validate import validate

#: The resources of `Hands`.
OFFERED = {"gpu": 1.0, "mem": 1.0}
INC = b"function-of-inc!"
SLOW = b"function-of-slow"

#: (key, attempt, nbytes, holders)
Location = tuple[str, int, int, list[str]]


def assign(
    *lines: str,
    located: Iterable[Location] = (),
    priority: int | None = None,
    function: bytes = INC,
    wanted: int = 0,
    resources: dict[str, float] | None = None,
) -> AssignTasks:
    """Make an assignment from lines like "1 a" (attempt, key) and "2 b <- a other".

    Priorities are the attempts unless one is given.
    """
    keys, attempts, dependencies = [], [], []
    for line in lines:
        head, _, tail = line.partition("<-")
        number, key = head.split()
        keys.append(key)
        attempts.append(int(number))
        dependencies.append(tail.split())
    rows = list(located)
    return AssignTasks(
        functions=[function],
        function_blobs=[b"blob"],
        function_clients=[0],
        function_of=[0] * len(keys),
        keys=keys,
        attempts=attempts,
        priorities=[attempt if priority is None else priority for attempt in attempts],
        args=[b"args"] * len(keys),
        wanted=[wanted] * len(keys),
        dependencies=dependencies if any(dependencies) else [],
        located_keys=[row[0] for row in rows],
        located_attempts=[row[1] for row in rows],
        located_nbytes=[row[2] for row in rows],
        located_holders=[row[3] for row in rows],
        function_options=[{"resources": resources}] if resources else [],
    )


def assign_call(
    function: Callable[..., object], args: tuple[object, ...], key: str, attempt: int, wanted: int
) -> AssignTasks:
    """Make the assignment of one call, pickled as a client does it."""
    id, blob = dumps_function(function)
    packed, dependencies = dumps_arguments("f", args, {})
    return AssignTasks(
        functions=[id],
        function_blobs=[blob],
        function_clients=[0],
        function_of=[0],
        keys=[key],
        attempts=[attempt],
        priorities=[attempt],
        args=[packed],
        wanted=[wanted],
        dependencies=[dependencies],
        located_keys=[],
        located_attempts=[],
        located_nbytes=[],
        located_holders=[],
    )


def promised(
    *lines: str, key: str = "x", attempt: int = 7, holder: str = "tcp://b", **options: Any
) -> AssignTasks:
    """Make an assignment that names an input which another worker is making."""
    message = assign(*lines, **options)
    message.promised_keys = [key]
    message.promised_attempts = [attempt]
    message.promised_holders = [holder]
    return message


def drop(*attempts: int) -> DropAttempts:
    return DropAttempts(attempts=list(attempts))


def give_back(count: int) -> ReturnAttempts:
    return ReturnAttempts(count=count)


def locate(*rows: Location) -> LocatedKeys:
    return LocatedKeys(
        keys=[row[0] for row in rows],
        attempts=[row[1] for row in rows],
        nbytes=[row[2] for row in rows],
        holders=[row[3] for row in rows],
    )


class Hands:
    """A core with the parts of its shell: threads that run by hand, a store, requests to peers.

    After each event the core is validated, and so are facts of the shell: the inputs
    of a task that starts are in the store, and no value in use is forgotten.
    """

    def __init__(self, nthreads: int = 1) -> None:
        self.state = WorkerState(nthreads, "tcp://me", FEATURES, announced(OFFERED, nthreads, 0))
        self.messages: list[Message] = []
        #: {slot: the tasks that it has started and not reported}
        self.started: dict[int, list[WorkerTask]] = {i: [] for i in range(nthreads)}
        #: Slots whose thread is awake.
        self.awake: set[int] = set()
        #: Slots that have a seat.
        self.seated: set[int] = set(range(nthreads))
        #: (attempt, text) of the waits that were to fail.
        self.failed_waits: list[tuple[int, str]] = []
        self.interrupted: list[int] = []
        #: How often the shell was asked to look which attempts run.
        self.n_looks = 0
        self.n_memory_looks = 0
        #: Attempts whose values are in the store.
        self.store: set[int] = set()
        self.fetches: dict[int, Fetch] = {}
        #: {key: what was asked for} of the promises.
        self.promises: dict[str, AskPromised] = {}
        #: The numbers of the requests of others that were answered.
        self.answered: list[int] = []
        #: Holders whose requests the shell has given up.
        self.given_up: list[str] = []
        self.has_ended = False
        self.n_runs = 0
        #: The time of the next event.
        self.now = 0.0

    # --- Events -----------------------------------------------------------------------------------

    def receive(self, *messages: Message) -> Outbox:
        """Let the core handle messages; return its own."""
        return self.handle(SchedulerSent(messages))

    def handle(self, event: WorkerEvent) -> Outbox:
        self.take_in(event)
        return self._drain()

    def take_in(self, event: WorkerEvent) -> None:
        """Pass an event to the core."""
        self.state.handle(event, self.now)

    def _drain(self) -> Outbox:
        state = self.state
        before, state.before = state.before, []
        for action in before:
            self._do_before(action)
        self.messages += state.to_scheduler
        (sent,) = outboxes(state.to_scheduler)
        state.to_scheduler = []
        after, state.after = state.after, []
        for done_after in after:
            self._do_after(done_after)
        validate(state)
        self._check()
        return sent

    def _do_before(self, action: WorkerAction) -> None:
        if isinstance(action, Run):
            # A slot that returns is awake, and its thread waits for this.
            assert action.slot not in self.awake or action.slot in self.seated
            self.awake.add(action.slot)
            self.n_runs += 1
        elif isinstance(action, StartSlot):
            assert action.slot == len(self.started)
            self.started[action.slot] = []
        elif isinstance(action, TakeSeat):
            assert action.slot not in self.seated
            self.seated.add(action.slot)
        elif isinstance(action, LeaveSeat):
            self.seated.remove(action.slot)
        elif isinstance(action, ForgetValues):
            self.store.difference_update(action.attempts)
        elif isinstance(action, FailWait):
            self.failed_waits.append((action.attempt, action.text))
        else:
            assert isinstance(action, (ForgetFunctions, CatchOutput))

    def _do_after(self, action: WorkerAction) -> None:
        if isinstance(action, Fetch):
            assert action.request not in self.fetches
            assert all(fetch.holder != action.holder for fetch in self.fetches.values())
            self.fetches[action.request] = action
        elif isinstance(action, EndWorker):
            assert not self.has_ended
            self.has_ended = True
        elif isinstance(action, InterruptRunning):
            self.interrupted += action.attempts
        elif isinstance(action, WatchRunning):
            self.n_looks += 1
        elif isinstance(action, WatchMemory):
            self.n_memory_looks += 1
        elif isinstance(action, AskPromised):
            self.promises[action.key] = action
        elif isinstance(action, AnswerPromises):
            self.answered += action.asked
        else:
            assert isinstance(action, EndFetch)
            self.given_up.append(action.holder)

    def _check(self) -> None:
        state = self.state
        kept = {a for a, record in state.by_attempt.items() if record.state == "memory"}
        unfinished = {t.attempt for tasks in self.started.values() for t in tasks}
        assert kept | set(state.released) <= self.store
        early = {a for a, nbytes in state.record(EarlyValues).items() if isinstance(nbytes, int)}
        assert early <= self.store <= kept | set(state.released) | unfinished | early
        for slot in state.slots:
            assert slot.busy == (slot.index in self.awake)
            assert (slot.place == "seated") == (slot.index in self.seated)
        for tasks in self.started.values():
            for task in tasks:
                if task.state == "executing":
                    assert all(record.attempt in self.store for record in task.inputs)

    # --- A slot's thread --------------------------------------------------------------------------

    def start(self, slot: int = 0) -> WorkerTask | None:
        """Take the next task of a slot's chunk; None when there is none."""
        chunk = self.state.slots[slot].chunk
        if not chunk:
            return None
        assert slot in self.awake
        task = chunk.popleft()
        assert all(record.attempt in self.store for record in task.inputs), task
        self.started[slot].append(task)
        return task

    def report(self, slot: int = 0, *, failed: Iterable[str] = (), duration_us: int = 10) -> Outbox:
        """Report the started tasks as done; ask for more if the chunk is empty."""
        assert slot in self.awake
        tasks, self.started[slot] = self.started[slot], []
        failed = set(failed)
        good = [task for task in tasks if task.key not in failed]
        bad = [task for task in tasks if task.key in failed]
        self.store.update(task.attempt for task in good)
        finished = not self.state.slots[slot].chunk
        if finished:
            self.awake.discard(slot)  # awake again if there is something in the chunk afterwards
        event = ChunkDone(
            slot,
            [task.attempt for task in good],
            [100] * len(good),
            [duration_us] * len(good),
            [b"result" if task.wanted else None for task in good],
            [task.attempt for task in bad],
            [duration_us] * len(bad),
            [["exception", task.key, b"", "ValueError", "", "", b""] for task in bad],
            finished,
        )
        self.take_in(event)
        if finished and self.state.slots[slot].busy:
            self.awake.add(slot)
        return self._drain()

    def block(self, slot: int = 0, *keys: str, may_park: bool = False) -> Outbox:
        """Let the task that a slot runs wait; what the slot has finished is reported first."""
        task = self.started[slot].pop()
        finished, self.started[slot] = self.started[slot], []
        self.store.update(one.attempt for one in finished)
        attempts = [one.attempt for one in finished]
        n = len(attempts)
        self.take_in(ChunkDone(slot, attempts, [100] * n, [10] * n, [None] * n, finished=False))
        self.started[slot] = [task]
        waits_for = {"keys": list(keys)} if keys else {}
        self.take_in(SlotBlocked(slot, task.attempt, waits_for, may_park))
        return self._drain()

    def resume(self, slot: int = 0) -> Outbox:
        """Let that task go on; it may have to wait for a seat."""
        return self.handle(SlotResumes(slot))

    def run(self, slot: int = 0, n: int = 1) -> list[str]:
        """Start `n` tasks and report them; return their keys."""
        keys = []
        for _ in range(n):
            task = self.start(slot)
            if task is None:
                break
            keys.append(task.key)
        self.report(slot)
        return keys

    def run_all(self, slot: int = 0) -> list[str]:
        """Run until the slot sleeps; return the keys in order."""
        keys = []
        while slot in self.awake:
            keys += self.run(slot)
        return keys

    # --- Peers ------------------------------------------------------------------------------------

    def keep(self, key: str) -> Outbox:
        """Let the value come that was promised under this key."""
        asked = self.promises.pop(key)
        self.store.add(asked.attempt)
        return self.handle(PromiseEnded(asked.request, 100))

    def break_promise(self, key: str, *, is_unreachable: bool = False) -> Outbox:
        """Let the answer be that it does not come."""
        asked = self.promises.pop(key)
        return self.handle(PromiseEnded(asked.request, None, is_unreachable))

    def answer(self, holder: str, *, missing: Iterable[str] = ()) -> Outbox:
        """Let a peer answer its request."""
        fetch = self._take(holder)
        missing = [key for key in fetch.keys if key in set(missing)]
        keys = [key for key in fetch.keys if key not in missing]
        by_key = dict(zip(fetch.keys, fetch.attempts, strict=True))
        self.store.update(by_key[key] for key in keys)
        return self.handle(CopiesFetched(holder, fetch.request, keys, [100] * len(keys)))

    def fail(self, holder: str) -> Outbox:
        """Let a peer be out of reach."""
        return self.handle(CopiesNotFetched(holder, self._take(holder).request))

    def pass_on(self, holder: str, elsewhere: str) -> Outbox:
        """Let a peer name another holder of the requested keys."""
        return self.handle(CopiesElsewhere(holder, self._take(holder).request, elsewhere))

    def asked(self, holder: str) -> list[str]:
        """Return the keys that were requested from a peer."""
        return next((f.keys for f in self.fetches.values() if f.holder == holder), [])

    def _take(self, holder: str) -> Fetch:
        fetch = next(fetch for fetch in self.fetches.values() if fetch.holder == holder)
        return self.fetches.pop(fetch.request)


def running(worker: Hands) -> list[str]:
    """Return the keys of the tasks that were started and not reported."""
    return sorted(task.key for tasks in worker.started.values() for task in tasks)


def start_all(worker: Hands) -> list[str]:
    """Start what each thread that is awake has in its chunk; return all that runs."""
    for slot in sorted(worker.awake):
        if slot in worker.seated and not worker.started[slot]:
            worker.start(slot)
    return running(worker)
