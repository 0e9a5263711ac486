"""The executor with real threads, real pickles and the real core; only the wire is left out."""

from __future__ import annotations

import asyncio
import itertools
import operator
import pickle
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tests.leaks import wait_until
from tests.worker.builders import assign_call
from weft.protocol.errors import UnpicklableResult
from weft.protocol.values.exceptions import unpack_exception
from weft.protocol.values.serialize import dumps_function, loads, reduce_future
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    ACTOR_FUNCTION,
    AssignTasks,
    AttemptsErred,
    AttemptsFinished,
    AttemptsReturned,
    DropAttempts,
    DropFunctions,
    ReturnAttempts,
)
from weft.protocol.wire.payload import Payload
from weft.worker.actors.actors import make_actor
from weft.worker.context import WorkerContext, get_worker
from weft.worker.core.events import CopiesFetched, SchedulerSent, WorkerEnding
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import WorkerFunction
from weft.worker.core.validate import validate
from weft.worker.data.store import Store
from weft.worker.slots.executor import TaskExecutor
from weft.worker.slots.started import StartedRecord, read_served, read_started


class Ref:
    """A future, as arguments see one."""

    def __init__(self, key: str):
        self.key = key

    def __reduce__(self):
        return reduce_future(self.key)


class Bench:
    """An executor, and a scheduler that is the test."""

    def __init__(self, nthreads: int = 1, started: StartedRecord | None = None):
        self.state = WorkerState(nthreads, "tcp://me")
        self.woken = threading.Event()
        self.crashes: list[BaseException] = []
        #: Takes messages in the threads of slots; as long as it refuses, `listen` gets them.
        self.take: Callable[[list[Message]], bool] = lambda messages: False
        self.executor = TaskExecutor(
            self.state,
            WorkerContext("w1", "tcp://me", "id1"),
            Store(),
            wake=self.woken.set,
            watch=self.watch,
            send=lambda messages: self.take(messages),
            crashed=self.crashes.append,
            started=started,
        )
        self.executor.start()
        self.timers: list[threading.Timer] = []
        self.told: list[Message] = []
        self.last_attempt = 0

    def watch(self, after_s: float) -> None:
        """Look after some time whether reports have waited for too long."""

        def look() -> None:
            if self.executor.send_waiting():
                self.watch(after_s)

        self.timers.append(threading.Timer(after_s, look))
        self.timers[-1].start()

    @property
    def store(self) -> Store:
        return self.executor.store

    def send(self, *messages: Message) -> None:
        self.executor.handle(SchedulerSent(messages))

    def run(self, function: Callable[..., object], *args: object, key: str = "", wanted: int = 1):
        """Assign one task; return its attempt."""
        self.send(self.task(function, *args, key=key, wanted=wanted))
        return self.last_attempt

    def task(
        self, function: Callable[..., object], *args: object, key: str = "", wanted: int = 1
    ) -> AssignTasks:
        self.last_attempt += 1
        return assign_call(
            function, args, key or f"key-{self.last_attempt}", self.last_attempt, wanted
        )

    def listen(self) -> list[Message]:
        """Take the executor's messages, waiting until there are some."""
        assert self.woken.wait(10)
        self.woken.clear()
        with self.executor.sending:
            messages, _ = self.executor.drain()
            self.told += messages
        return messages

    def listen_for(self, n: int) -> None:
        """Listen until `n` attempts have ended in all."""
        while len(self.results) + len(self.failures) < n:
            self.listen()

    @property
    def results(self) -> dict[int, object]:
        """{attempt: the result that rode along, or None}."""
        return {
            attempt: None if blob is None else loads(blob)
            for message in self.told
            if isinstance(message, AttemptsFinished)
            for attempt, blob in zip(message.attempts, message.results, strict=True)
        }

    @property
    def failures(self) -> dict[int, list[object]]:
        return {
            attempt: failure
            for message in self.told
            if isinstance(message, AttemptsErred)
            for attempt, failure in zip(message.attempts, message.failures, strict=True)
        }

    def error(self, attempt: int) -> BaseException:
        self.listen_for(1)
        kind, _key, *packed = self.failures[attempt]
        assert kind == "exception"
        return unpack_exception(packed)


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(nthreads: int = 1, started: StartedRecord | None = None) -> Bench:
        benches.append(Bench(nthreads, started))
        return benches[-1]

    yield make
    for bench in benches:
        bench.executor.stop()
        assert bench.executor.join(10)
        for timer in bench.timers:
            timer.cancel()
            timer.join(10)
        validate(bench.state)
        assert bench.crashes == []


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


class Gate:
    """Lets a test block a task. Found by name, because arguments are pickled."""

    gates: ClassVar[dict[str, Gate]] = {}

    def __init__(self):
        self.entered = threading.Event()
        self.open = threading.Event()

    @staticmethod
    def pass_through(name: str) -> str:
        gate = Gate.gates[name]
        gate.entered.set()
        assert gate.open.wait(10)
        return name


@pytest.fixture
def gate() -> Iterator[Gate]:
    Gate.gates["g"] = gate = Gate()
    yield gate
    gate.open.set()
    del Gate.gates["g"]


def pass_gate(name):
    from tests.worker.slots.test_executor import Gate

    return Gate.pass_through(name)


def inc(x):
    return x + 1


# --- Results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("blob", [ACTOR_FUNCTION, b"cweft.worker.earlier\nmake_actor\n."])
def test_the_function_that_makes_actors_is_known_by_its_id_whatever_its_pickle_names(bench, blob):
    assert bench.executor._load(WorkerFunction(ACTOR_FUNCTION, blob)) is make_actor


def test_wanted_results_ride_along_and_others_stay(bench):
    bench.run(inc, 1)
    bench.run(inc, 2, wanted=0)
    bench.listen_for(2)
    assert bench.results == {1: 2, 2: None}
    assert len(bench.store) == 2
    assert (bench.store.load(1), bench.store.load(2)) == (2, 3)


def test_a_chain_assigned_ahead(bench):
    bench.send(
        bench.task(inc, 0, key="k0"),
        *[bench.task(inc, Ref(f"k{i}"), key=f"k{i + 1}") for i in range(200)],
    )
    bench.listen_for(201)
    assert bench.results[201] == 201


def test_many_tasks_on_several_threads(make_bench):
    bench = make_bench(4)
    for i in range(1000):
        bench.run(inc, i)
    bench.listen_for(1000)
    assert bench.results == {i + 1: i + 1 for i in range(1000)}


def test_large_results_do_not_ride_along(bench):
    bench.run(bytes, 200_000)
    bench.run(np.zeros, 100_000)
    bench.run(int.__pow__, 2, 10_000_000)
    bench.listen_for(3)
    assert bench.results == {1: None, 2: None, 3: None}
    assert all(nbytes > 64 << 10 for message in bench.told for nbytes in message.nbytes)


def test_results_beyond_4_kib_travel_beside_the_message(bench):
    bench.run(bytes, 5000)
    bench.run(bytes, 50)
    bench.listen_for(2)
    blobs = [blob for message in bench.told for blob in message.results]
    assert isinstance(blobs[0], Payload)
    assert isinstance(blobs[1], bytes)


def test_a_small_array_that_rides_along_is_a_copy(bench, gate):
    bench.run(np.zeros, 1000)
    bench.listen_for(1)
    (message,) = bench.told
    bench.store.load(1)[:] = 7
    assert loads(message.results[0]).sum() == 0


def test_no_object_of_a_task_lives_on_in_an_idle_thread(bench):
    import gc
    import weakref

    class Thing:
        pass

    made: list[weakref.ref[Thing]] = []

    def make():
        thing = Thing()
        made.append(weakref.ref(thing))
        return thing

    # By reference, so that the test sees the object that was made.
    bench.send(bench.task(inc, 1, wanted=0))
    bench.listen_for(1)
    message = bench.task(inc, wanted=0)
    bench.state.functions[message.functions[0]].call = make
    bench.send(message)
    bench.listen_for(2)
    assert made[0]() is not None
    bench.send(DropAttempts(attempts=[2]))
    gc.collect()
    wait_until(lambda: made[0]() is None)


# --- Failures -------------------------------------------------------------------------------------


def divide(x):
    return 1 / x


def test_an_exception_comes_with_key_worker_and_attempt(bench):
    bench.run(divide, 0, key="x")
    error = bench.error(1)
    assert isinstance(error, ZeroDivisionError)
    assert any("x on worker w1" in note for note in error.__notes__)


def leave():
    raise SystemExit(3)


def test_system_exit_ends_the_task_and_not_the_worker(bench):
    bench.run(leave)
    assert isinstance(bench.error(1).__cause__, SystemExit)
    bench.run(inc, 1)
    bench.listen_for(2)
    assert bench.results == {2: 2}


class Unpackable(Exception):
    """Its text and its reduction end the process that asks for them, if it lets them."""

    def __str__(self):
        raise SystemExit(4)

    def __reduce__(self):
        raise KeyboardInterrupt


def fail_unpackably():
    raise Unpackable


def test_an_exception_whose_own_code_raises_system_exit_ends_the_task_only(bench):
    bench.run(fail_unpackably)
    bench.listen_for(1)
    assert "<its __str__ raised SystemExit>" in bench.failures[1]
    assert bench.crashes == []
    bench.run(inc, 1)
    bench.listen_for(2)
    assert bench.results == {2: 2}


def make_lock():
    import threading

    return [1, {"lock": threading.Lock()}]


def test_a_wanted_result_that_cannot_be_pickled_is_an_error_with_its_type(bench):
    bench.run(make_lock, key="x")
    error = bench.error(1)
    assert isinstance(error, UnpicklableResult)
    assert error.type_name == "_thread.lock"
    assert "result[1]['lock']" in str(error)
    assert len(bench.store) == 0


class LeavesWhenPickled:
    def __reduce__(self):
        raise SystemExit(3)


def test_a_wanted_result_whose_reduction_raises_system_exit_is_an_error(bench):
    bench.run(LeavesWhenPickled, key="x")
    error = bench.error(1)
    assert isinstance(error, UnpicklableResult)
    assert "LeavesWhenPickled): its pickling raised SystemExit: 3" in str(error)


def test_an_unwanted_unpicklable_result_serves_local_tasks_and_fails_where_it_is_fetched(bench):
    bench.run(make_lock, key="x", wanted=0)
    bench.run(len, Ref("x"))
    bench.listen_for(2)
    assert bench.results == {1: None, 2: 2}
    blob = bench.store.pack(1, "x")
    assert blob is not None
    with pytest.raises(UnpicklableResult, match=r"_thread\.lock"):
        loads(blob)


def test_a_function_that_cannot_be_unpickled_fails_its_tasks_and_is_tried_again(bench):
    message = bench.task(inc, 1)
    message.function_blobs = [b"\x80\x05cno_such_module\nf\n."]
    bench.send(message)
    error = bench.error(1)
    assert isinstance(error, ModuleNotFoundError)
    note = "weft: the function of task key-1 could not be unpickled on worker w1; the task has not"
    (said,) = error.__notes__
    assert said.startswith(f"{note} started. Install no_such_module there, send it there with ")
    assert "register_pickle_by_value" in said
    function = bench.state.functions[message.functions[0]]
    assert function.call is None
    function.blob = dumps_function(inc)[1]
    bench.run(inc, 1)
    bench.listen_for(2)
    assert bench.results == {2: 2}


def test_a_function_that_was_never_sent_fails_its_tasks(bench):
    message = bench.task(inc, 1)
    message.function_blobs = [None]
    bench.send(message)
    assert "never sent" in str(bench.error(1))


def test_a_function_is_unpickled_once(bench):
    def count():
        state.append(1)
        return len(state)

    state: list[int] = []
    for _ in range(3):
        bench.run(count)
    bench.listen_for(3)
    assert bench.results == {1: 1, 2: 2, 3: 3}
    bench.send(DropFunctions(functions=list(bench.state.functions)))
    bench.run(count)
    bench.listen_for(4)
    assert bench.results[4] == 1


# --- Kinds of tasks, and their context ------------------------------------------------------------


async def double_later(x):
    await asyncio.sleep(0)
    return 2 * x


def test_coroutine_functions_are_run_to_their_end(bench):
    bench.run(double_later, 4)
    bench.listen_for(1)
    assert bench.results == {1: 8}


def who_am_i():
    worker = get_worker()
    return worker.name, worker.address, worker.worker_id, worker.key


@pytest.mark.parametrize(("text", "key"), [("x", "x"), ("('x', 0)", ("x", 0))])
def test_a_task_knows_its_worker_and_key(bench, text, key):
    bench.run(who_am_i, key=text)
    bench.listen_for(1)
    assert bench.results == {1: ("w1", "tcp://me", "id1", key)}
    with pytest.raises(RuntimeError):
        get_worker()


def test_fetched_values_are_unpickled_by_the_task_that_needs_them(bench):
    message = bench.task(inc, Ref("x"))
    message.located_keys, message.located_attempts = ["x"], [99]
    message.located_nbytes, message.located_holders = [10], [["tcp://a"]]
    bench.send(message)
    assert bench.woken.wait(10)
    _, (fetch,) = bench.executor.drain()
    assert (fetch.holder, fetch.keys, fetch.attempts) == ("tcp://a", ["x"], [99])
    bench.store.put_packed(99, pickle.dumps(41))
    bench.executor.handle(CopiesFetched("tcp://a", fetch.request, ["x"], [10]))
    bench.listen_for(1)
    assert bench.results == {1: 42}
    assert len(bench.store) == 2


class Unwilling:
    """An object that can be pickled, and raises where it is unpickled."""

    def __reduce__(self):
        return refuse, ()


def refuse():
    raise ValueError("not here")


async def wait_for(x):
    return x


@pytest.mark.parametrize("function", [inc, wait_for])
def test_the_note_of_an_argument_that_cannot_be_unpickled_names_it(bench, function):
    bench.run(function, 1)
    bench.listen_for(1)
    bench.run(function, [Unwilling()], key="k")
    bench.listen_for(2)
    error = bench.error(2)
    assert (type(error), str(error)) == (ValueError, "not here")
    (note,) = error.__notes__
    what = f"an argument of task k, a call of {function.__name__},"
    assert note == f"weft: {what} could not be unpickled on worker w1; the task has not started"


def test_an_input_that_cannot_be_unpickled_is_named_as_the_result_of_another_task(bench):
    message = bench.task(inc, Ref("x"), key="k")
    message.located_keys, message.located_attempts = ["x"], [99]
    message.located_nbytes, message.located_holders = [10], [["tcp://a"]]
    bench.send(message)
    assert bench.woken.wait(10)
    _, (fetch,) = bench.executor.drain()
    bench.store.put_packed(99, pickle.dumps(Unwilling()))
    bench.executor.handle(CopiesFetched("tcp://a", fetch.request, ["x"], [10]))
    (note,) = bench.error(1).__notes__
    assert "an argument of task k, a call of inc, which is the result of another task," in note


def test_an_exception_of_a_task_has_one_note_with_key_and_worker(bench):
    bench.run(refuse, key="k")
    (note,) = bench.error(1).__notes__
    assert note.startswith("weft: task k on worker w1")


# --- Chunks ---------------------------------------------------------------------------------------


def test_a_slot_s_thread_sends_its_reports_itself(bench):
    sent = queue.SimpleQueue()

    def take(messages: list[Message]) -> bool:
        sent.put((threading.current_thread().name, messages))
        return True

    bench.take = take
    bench.run(abs, -3)
    thread, (message,) = sent.get(timeout=10)
    assert thread == "weft-w1-0"
    assert message.results == [pickle.dumps(3, 5)]
    assert not bench.woken.is_set()


def pass_if_named(name):
    return pass_gate(name) if name else name


def test_a_report_does_not_wait_for_a_task_that_takes_unexpectedly_long(bench, gate):
    Gate.gates["h"] = long = Gate()
    bench.run(pass_if_named, "")
    bench.listen_for(1)
    waiting = bench.run(pass_gate, "g")
    assert gate.entered.wait(10)
    bench.run(pass_if_named, "h")
    gate.open.set()
    assert long.entered.wait(10)
    try:
        bench.listen_for(2)
        assert bench.results[waiting] == "g"
    finally:
        long.open.set()
    bench.listen_for(3)
    del Gate.gates["h"]


def test_reports_arrive_once_and_in_order_whoever_sends_them(make_bench):
    """A link of a chain is reported after the link that it needs, whichever threads ran them."""
    bench = make_bench(4)
    n_chains, n_links = 8, 40
    n_offers = itertools.count()

    def take(messages: list[Message]) -> bool:
        if next(n_offers) % 3 == 0:
            return False  # the loop has to do it
        bench.told += messages
        return True

    bench.take = take
    for chain in range(n_chains):
        previous: list[str] = []
        for link in range(n_links):
            key = f"chain-{chain}-{link}"
            task = bench.task(operator.add, 1, Ref(previous[0]) if previous else 0, key=key)
            bench.send(task)
            previous = [key]
    n = n_chains * n_links
    while True:
        with bench.executor.sending:
            reported = [a for m in bench.told for a in m.attempts]
        if len(reported) >= n:
            break
        bench.woken.wait(0.1)  # notified of some of the reports only
        bench.woken.clear()
        with bench.executor.sending:
            bench.told += bench.executor.drain()[0]
    assert sorted(reported) == list(range(1, n + 1))
    for chain in range(n_chains):
        first = chain * n_links + 1
        of_chain = [a for a in reported if first <= a < first + n_links]
        assert of_chain == list(range(first, first + n_links))


def test_a_long_task_does_not_hold_back_those_behind_it(make_bench, gate):
    bench = make_bench(2)
    for i in range(50):  # until inc and pass_gate are known to be quick
        bench.run(inc, i)
    gate.open.set()
    bench.run(pass_gate, "g")
    bench.listen_for(51)
    gate.open.clear()
    gate.entered.clear()
    tasks = [bench.task(pass_gate, "g")] + [bench.task(inc, i) for i in range(40)]
    bench.send(*tasks)
    bench.listen_for(51 + 40)
    assert 52 not in bench.results
    gate.open.set()
    bench.listen_for(51 + 41)


def test_the_store_counts_results_of_tasks_until_they_are_dropped(bench):
    bench.run(bytes, 100_000)
    bench.run(bytes, 300_000)
    bench.listen_for(2)
    reported = [nbytes for message in bench.told for nbytes in message.nbytes]
    assert [bench.store.nbytes_of(1), bench.store.nbytes_of(2)] == reported
    assert bench.store.nbytes == sum(reported)
    bench.send(DropAttempts(attempts=[1]))
    assert bench.store.nbytes == reported[1]


def test_unstarted_tasks_are_given_back_exactly(bench, gate):
    for i in range(20):
        bench.run(inc, i)
    bench.listen_for(20)
    bench.send(bench.task(pass_gate, "g"), *[bench.task(inc, i) for i in range(30)])
    assert gate.entered.wait(10)
    bench.send(ReturnAttempts(count=1000))
    bench.listen()
    returned = next(m for m in bench.told if isinstance(m, AttemptsReturned)).attempts
    assert returned == list(range(51, 21, -1))
    gate.open.set()
    bench.listen_for(21)
    assert bench.state.ready.n == 0


def test_giving_back_races_with_running_and_nothing_is_lost_or_done_twice(make_bench):
    bench = make_bench(2)
    n = 3000
    ran: list[int] = []

    def note(x):
        ran.append(x)

    first = bench.task(inc, 0, wanted=0)
    bench.send(first)
    bench.state.functions[first.functions[0]].call = note
    bench.listen_for(1)
    for start in range(1, n, 50):
        bench.send(*[bench.task(inc, i, wanted=0) for i in range(start, min(n, start + 50))])
        bench.send(ReturnAttempts(count=20))
    returned: list[int] = []
    while len(returned) + len(bench.results) < n:
        returned += [
            attempt
            for message in bench.listen()
            if isinstance(message, AttemptsReturned)
            for attempt in message.attempts
        ]
    assert sorted(ran + [attempt - 1 for attempt in returned]) == list(range(n))


def test_stopping_gives_up_unstarted_tasks(bench, gate):
    bench.send(bench.task(pass_gate, "g"), bench.task(inc, 1))
    assert gate.entered.wait(10)
    bench.executor.handle(WorkerEnding())
    bench.executor.stop()
    gate.open.set()
    assert bench.executor.join(10)
    assert len(bench.store) == 0
    assert bench.executor.drain() == ([], [])


# --- Which attempts are running -------------------------------------------------------------------


def test_the_file_lists_the_attempts_being_executed(make_bench, gate, tmp_path: Path):
    path = tmp_path / "started"
    record = StartedRecord(path, 2)
    bench = make_bench(2, record)
    assert read_started(path) == []
    bench.send(bench.task(pass_gate, "g"))
    assert gate.entered.wait(10)
    assert read_started(path) == [1]
    gate.open.set()
    bench.listen_for(1)
    wait_until(lambda: read_started(path) == [])
    bench.executor.stop()
    assert bench.executor.join(10)
    record.note_serving(0, 7)
    record.close()
    assert read_started(path) == []
    assert read_served(path) == [7]
    assert read_started(tmp_path / "none") == []
