"""A caller that is alone sends and receives on its own thread, and nothing else changes by it."""

from __future__ import annotations

import operator
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.leaks import wait_until
from weft.client import Client, as_completed
from weft.client.core.validate import validate
from weft.protocol.errors import CommClosed


def inc(x):
    return x + 1


def past_loop(client):
    return client._engine._past_loop


def ask(client, n):
    assert client.submit(inc, n, pure=False).result(30) == n + 1


def ask_until_lent(client):
    def is_lent():
        ask(client, 0)
        return past_loop(client).is_lent

    wait_until(is_lent, 30)


def check(client):
    """The client works as ever, and its core is whole."""
    ask(client, 7)
    with client._engine.lock:
        validate(client._engine.core)


def test_a_caller_that_waits_alone_receives_on_its_own_thread(client):
    ask_until_lent(client)
    before = past_loop(client)._n_readings
    for n in range(50):
        ask(client, n)
    assert past_loop(client)._n_readings > before
    check(client)


def test_a_release_leaves_with_the_next_call_whenever_the_future_is_dropped(client):
    ask_until_lent(client)
    connection = client._engine.link.connection
    n_calls, before = 50, connection.frames_out
    for n in range(n_calls):
        future = client.submit(inc, n, pure=False)  # the future before is dropped after this call
        assert future.result(30) == n + 1
    # A busy machine may take the reading back, and a heartbeat may come; one frame per release
    # would be twice as many.
    assert connection.frames_out - before < 1.5 * n_calls
    check(client)


def test_results_that_become_records_leave_the_reading_to_the_caller(client):
    ask_until_lent(client)
    before = past_loop(client)._n_readings
    for n in range(40):
        assert client.submit(operator.mul, b"x", 2000 + n, pure=False).result(30)[-1:] == b"x"
    # A busy machine may take the reading back now and then, but not after each result.
    assert past_loop(client)._n_readings - before > 20
    check(client)


def test_a_graph_that_is_waited_for_is_sent_and_received_by_its_caller(client):
    data = client.submit(inc, 1, pure=False)
    assert data.result(30) == 2
    ask_until_lent(client)
    before = past_loop(client)._n_readings
    for n in range(40):  # each begins with the release of the one before
        graph = {"x": (operator.add, data, n), "y": (inc, "x")}
        assert client.get(graph, "y") == n + 3
    # A busy machine may take the reading back now and then, but not for each graph.
    assert past_loop(client)._n_readings - before > 20
    check(client)


def test_releases_leave_while_a_caller_waits_and_submits_nothing(client, scheduler):
    futures = client.map(inc, range(200), pure=False)
    client.gather(futures)
    ask_until_lent(client)
    later = client.submit(inc, 1, pure=False)
    scheduler.is_holding = True
    waited = client.submit(inc, 2, pure=False)
    del futures
    with pytest.raises(TimeoutError):
        waited.result(0.2)
    scheduler.go_on()
    wait_until(lambda: len(client.futures) == 2, 30)
    assert (later.result(30), waited.result(30)) == (2, 3)
    check(client)


def test_no_caller_receives_while_the_loop_wants_the_reading_back(client):
    """Else a loop whose thread is late never gets it, and is woken by each call."""
    ask_until_lent(client)
    past_loop(client)._is_wanted_back = True  # as `end` does while a thread receives
    before = past_loop(client)._n_readings
    ask(client, 1)
    assert past_loop(client)._n_readings == before
    assert not past_loop(client).is_lent
    check(client)


def test_the_loop_receives_again_when_no_caller_waits(client):
    ask_until_lent(client)
    wait_until(lambda: not past_loop(client).is_lent, 30)
    check(client)


def test_a_future_that_is_looked_at_and_not_waited_for_changes(client):
    ask_until_lent(client)
    future = client.submit(inc, 1, pure=False)
    wait_until(future.done, 30)
    assert future.status == "finished"
    check(client)


def test_two_calls_under_way_a_gather_and_callbacks(client):
    called = threading.Event()
    for _ in range(20):
        ask_until_lent(client)
        one, two = client.submit(inc, 1, pure=False), client.submit(inc, 2, pure=False)
        assert (two.result(30), one.result(30)) == (3, 2)
        ask_until_lent(client)
        assert client.gather(client.map(inc, range(5), pure=False)) == [1, 2, 3, 4, 5]
        ask_until_lent(client)
        futures = [client.submit(inc, n, pure=False) for n in range(3)]
        assert sorted(f.result(30) for f in as_completed(futures)) == [1, 2, 3]
        ask_until_lent(client)
        called.clear()
        future = client.submit(inc, 1, pure=False)
        future.add_done_callback(lambda _: called.set())
        assert called.wait(30)
    check(client)


def test_threads_that_wait_at_the_same_time(client):
    def work(first):
        for n in range(first, first + 60):
            ask(client, n)
        return True

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            ask_until_lent(client)
            assert all(pool.map(work, range(0, 400, 100)))
    check(client)


def test_a_time_limit_ends_a_wait(client, scheduler):
    ask_until_lent(client)
    scheduler.is_holding = True
    future = client.submit(inc, 1, pure=False)
    for seconds in (0, 0.001, 0.2):
        with pytest.raises(TimeoutError):
            future.result(seconds)
    scheduler.go_on()
    assert future.result(30) == 2
    check(client)


def test_an_answer_that_takes_long_is_received_by_the_loop(client, scheduler):
    ask_until_lent(client)
    scheduler.is_holding = True
    future = client.submit(inc, 1, pure=False)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(future.result, 30)
        wait_until(lambda: not past_loop(client).is_lent, 30)
        scheduler.go_on()
        assert result.result(30) == 2
    check(client)


def test_large_results_and_large_arguments(client):
    ask_until_lent(client)
    text = "x" * 3_000_000
    for _ in range(3):
        assert client.submit(operator.add, text, "y", pure=False).result(30) == text + "y"
        ask_until_lent(client)
    check(client)


def test_a_connection_that_is_lost_is_made_again(client, scheduler):
    for _ in range(3):
        ask_until_lent(client)
        scheduler.drop_connection()
        ask(client, 1)
    assert len(scheduler.sessions) >= 4
    check(client)


def test_a_scheduler_that_does_not_come_back_fails_the_future(scheduler):
    with Client(scheduler, reconnect_timeout=0.1) as client:
        ask_until_lent(client)
        scheduler.is_holding = True
        future = client.submit(inc, 1, pure=False)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(future.result, 30)
            scheduler.disappear()
            with pytest.raises(CommClosed):
                result.result(30)


def test_a_client_that_is_closed_while_a_thread_waits(scheduler):
    client = Client(scheduler)
    ask_until_lent(client)
    scheduler.is_holding = True
    future = client.submit(inc, 1, pure=False)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(future.exception, 30)
        client.close()
        assert result.result(30) is not None


def test_two_clients_in_one_thread(client, scheduler):
    """They confirm their submissions to each other meanwhile."""
    with Client(processes=False, n_workers=1) as other:
        for n in range(30):
            ask(client, n)
            ask(other, n)
        assert not past_loop(other).is_lent  # nothing is encoded there
    check(client)


def test_a_caller_deep_in_a_recursion_leaves_the_work_to_the_loop(client):
    def descend(depth):
        if depth:
            descend(depth - 1)
        else:
            ask(client, 1)

    ask_until_lent(client)
    descend(400)
    check(client)


class Late(BaseException):
    """Raised by a handler; like KeyboardInterrupt, it passes code that catches `Exception`."""


# A handler may run in a finalizer, whose exceptions Python reports and drops.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_handlers_that_raise_at_any_moment_leave_the_client_whole(client):
    """As Ctrl-C, and the time limits of test runners, do in the main thread."""

    def raise_late(_number, _frame):
        raise Late

    rng = random.Random(1)
    before = signal.signal(signal.SIGALRM, raise_late)
    n_interrupted = 0
    try:
        while n_interrupted < 150:
            ask_until_lent(client)
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3))
                for n in range(1000):
                    assert client.submit(inc, n, pure=False).result() == n + 1
            except Late:
                n_interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            with client._engine.lock:
                validate(client._engine.core)
    finally:
        signal.signal(signal.SIGALRM, before)
    check(client)


def test_a_finalizer_that_submits_does_not_enter_the_core_within_an_event(client):
    ask_until_lent(client)
    core = client._engine.core
    handle, depths, futures, inside = core.handle, [], [], []

    def note(event, now):
        depths.append(len(inside))
        inside.append(event)
        if len(inside) == 1 and len(futures) < 20:
            # As a finalizer does that the collector runs here.
            futures.append(client.submit(inc, 1000 + len(futures), pure=False))
        handle(event, now)
        inside.pop()

    core.handle = note
    try:
        wait_until(lambda: ask(client, 1) or len(futures) == 20, 30)
    finally:
        del core.handle
    assert set(depths) == {0}
    assert client.gather(futures) == [1001 + n for n in range(20)]
    check(client)
