"""Chunks of a slot: when reports are sent, what is given back, and which attempts are running."""

from __future__ import annotations

import itertools
import operator
import pickle
import queue
import threading
from pathlib import Path

from tests.leaks import wait_until
from tests.worker.slots.slots_kit import Gate, Ref, inc
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    AttemptsReturned,
    DropAttempts,
    ReturnAttempts,
)
from weft.worker.core.events import WorkerEnding
from weft.worker.slots.started import StartedRecord, read_served, read_started


def pass_gate(name):
    from tests.worker.slots.slots_kit import Gate

    return Gate.pass_through(name)


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
        bench.keep(messages)
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
            bench.keep(bench.executor.drain()[0])
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
