"""`PoolFuture`: a standard future, also when threads meet at any instruction."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import gc
import logging
import pickle
import threading
import traceback
import weakref
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    InvalidStateError,
    as_completed,
    wait,
)
from concurrent.futures._base import FINISHED

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.stepping_kit import LIMIT_S, Meeting, before_step, every_step, interrupt
from weft.graphs.pool import future as pool_future
from weft.graphs.pool.future import PoolFuture


def pending(func=int, *args):
    return PoolFuture(func, args)


def finished(func=int, *args):
    future = pending(func, *args)
    future.run()
    return future


def fail(error):
    raise error


def test_a_pool_future_is_a_standard_future():
    future = pending(divmod, 7, 2)
    assert isinstance(future, Future)
    assert (future.done(), future.running(), future.cancelled()) == (False, False, False)
    future.run()
    assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
    assert future.result() == (3, 1)
    assert future.exception() is None


def test_running_is_seen_from_outside_and_from_inside():
    future = PoolFuture(lambda: future.running(), ())
    future.run()
    assert future.result() is True
    assert not future.running()


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
)
def test_any_exception_of_the_function_is_the_outcome(error):
    future = finished(fail, error)
    assert future.exception() is error
    with pytest.raises(type(error)) as caught:
        future.result()
    assert caught.value is error


def test_the_traceback_has_the_users_frames_and_not_the_pools():
    future = finished(fail, ValueError("x"))
    frames = traceback.extract_tb(future.exception().__traceback__)
    assert [frame.name for frame in frames] == ["fail"]
    with pytest.raises(ValueError) as caught:
        future.result()
    assert [entry.name for entry in caught.traceback][-2:] == ["result", "fail"]
    # A function without frames, and something that cannot be called at all.
    assert "invalid literal" in str(finished(int, "x").exception())
    assert isinstance(finished(3).exception(), TypeError)


def test_a_failed_future_is_in_no_cycle():
    def ask(futures):
        try:
            futures.pop().result(0)
        except ValueError:
            return
        raise AssertionError

    def refs_to_failed():
        for n_callbacks in range(2):
            future = pending(fail, ValueError("x"))
            for _ in range(n_callbacks):
                future.add_done_callback(lambda f: f.exception())
            future.run()
            ask([future])
            ask([future])
            ref = weakref.ref(future)
            del future  # this frame is in the traceback
            yield ref

    gc.disable()
    try:
        refs = [*refs_to_failed()]
        assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_function_and_arguments_are_dropped_when_the_result_is_set():
    class Thing:
        pass

    thing = Thing()
    ref = weakref.ref(thing)
    future = pending(id, thing)
    del thing
    assert ref() is not None
    future.run()
    assert ref() is None
    thing = Thing()
    ref = weakref.ref(thing)
    cancelled = pending(id, thing)
    del thing
    cancelled.cancel()
    assert ref() is None


@pytest.mark.parametrize("method", ["result", "exception"])
def test_result_times_out_while_the_task_goes_on(method):
    future = pending()
    for timeout in (0, 0.01):
        with pytest.raises(concurrent.futures.TimeoutError):
            getattr(future, method)(timeout)
    future.run()
    getattr(future, method)(0)
    assert future.result(0) == 0


def test_cancelling_fails_the_future():
    future = pending(fail, AssertionError("it was cancelled"))
    assert future.cancel()
    assert future.cancel()
    assert (future.done(), future.cancelled(), future.running()) == (True, True, False)
    future.run()
    for ask in (future.result, future.exception):
        with pytest.raises(CancelledError):
            ask(0)
    assert not finished().cancel()
    watched = pending()
    assert watched.add_done_callback(id) is None
    watched.run()
    assert not watched.cancel()
    assert not watched.cancelled()


def test_a_running_task_is_not_cancelled():
    future = PoolFuture(lambda: future.cancel(), ())
    future.run()
    assert future.result() is False


def test_callbacks_are_called_once_in_order_and_logged_if_they_fail(caplog):
    called = []
    future = pending()
    future.add_done_callback(lambda f: called.append((1, f)))
    future.add_done_callback(lambda f: fail(ValueError("in a callback")))
    future.add_done_callback(lambda f: called.append((2, f)))
    assert called == []
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        future.run()
        future.add_done_callback(lambda f: called.append((3, f)))
        future.add_done_callback(lambda f: fail(ValueError("in a late callback")))
    assert called == [(1, future), (2, future), (3, future)]
    assert [record.name for record in caplog.records] == ["concurrent.futures"] * 2
    assert "in a callback" in caplog.text
    assert "in a late callback" in caplog.text
    called.clear()
    unwatched = finished()
    unwatched.add_done_callback(called.append)
    cancelled = pending()
    cancelled.add_done_callback(called.append)
    cancelled.cancel()
    cancelled.add_done_callback(called.append)
    cancelled.run()
    assert called == [unwatched, cancelled, cancelled]


def test_callbacks_run_under_no_lock():
    """Another thread can use the future while a callback runs."""
    seen = []

    def ask_in_another_thread(future):
        def ask():
            seen.append((future.done(), wait([future], 0).done, repr(future)))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(LIMIT_S)

    finishing, cancelling, setting = futures = [pending(), pending(), pending()]
    for future in futures:
        future.add_done_callback(ask_in_another_thread)
    finishing.run()
    cancelling.cancel()
    setting.set_result(1)
    assert [(done, found) for done, found, _ in seen] == [(True, {f}) for f in futures]


def test_callbacks_do_not_outlive_the_call():
    class Callback:
        def __call__(self, future):
            pass

    callback = Callback()
    ref = weakref.ref(callback)
    future = pending()
    future.add_done_callback(callback)
    del callback
    future.run()
    assert ref() is None


def test_repr():
    assert "state=pending" in repr(pending())
    assert "returned int" in repr(finished())
    assert "raised ValueError" in repr(finished(fail, ValueError()))
    future = pending()
    future.cancel()
    assert "state=cancelled" in repr(future)
    future = PoolFuture(lambda: repr(future), ())
    future.run()
    assert "state=running" in future.result()


def test_a_pool_future_is_not_pickled_or_copied():
    for future in (pending(), finished()):
        with pytest.raises(TypeError, match="cannot pickle 'PoolFuture'"):
            pickle.dumps(future)
        with pytest.raises(TypeError, match="cannot pickle 'PoolFuture'"):
            copy.copy(future)


def test_executors_that_wrap_the_pool_can_set_the_outcome(caplog):
    future = pending()
    assert future.set_running_or_notify_cancel()
    assert future.running()
    assert not future.cancel()
    with pytest.raises(RuntimeError, match="RUNNING"):
        future.set_running_or_notify_cancel()
    future.set_result(3)
    assert future.result() == 3
    for set_it in (lambda: future.set_result(4), lambda: future.set_exception(ValueError())):
        with pytest.raises(InvalidStateError, match="FINISHED"):
            set_it()
    future.abandon(ValueError())
    assert future.result() == 3
    with pytest.raises(InvalidStateError):
        finished().set_result(1)
    failing = pending()
    failing.set_exception(ValueError("x"))
    with pytest.raises(ValueError, match="x"):
        failing.result()
    failing.run()  # not any more
    assert failing.exception().args == ("x",)
    cancelled = pending()
    cancelled.cancel()
    assert not cancelled.set_running_or_notify_cancel()
    with pytest.raises(InvalidStateError):
        cancelled.set_result(1)


def test_wait_finds_futures_that_are_done():
    bad, good, gone, late = finished(fail, ValueError()), finished(), pending(), pending()
    gone.cancel()
    assert wait([good, bad, gone]) == ({good, bad, gone}, set())
    assert wait([good, late], 0) == ({good}, {late})
    assert wait([late, good], return_when=FIRST_COMPLETED) == ({good}, {late})
    assert wait([late, good, bad], return_when=FIRST_EXCEPTION) == ({good, bad}, {late})
    assert wait([late, good], 0.01, FIRST_EXCEPTION) == ({good}, {late})
    assert {*as_completed([good, bad, gone])} == {good, bad, gone}
    with pytest.raises(concurrent.futures.TimeoutError):
        [*as_completed([good, late], 0.01)]
    late.run()
    assert wait([good, late]) == ({good, late}, set())


@pytest.mark.parametrize("return_when", ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"])
def test_wait_is_woken_by_an_outcome(return_when, wait_until):
    """Together with a standard future: their locks are taken in one order."""
    standard, first, bad, last = futures = [
        Future(),
        pending(),
        pending(fail, ValueError()),
        pending(),
    ]
    found = []
    thread = threading.Thread(target=lambda: found.append(wait(futures, LIMIT_S, return_when)))
    thread.start()
    wait_until(lambda: all(future._waiters for future in futures))
    first.run()
    expected = {first}
    if return_when != "FIRST_COMPLETED":
        bad.run()
        expected |= {bad}
    if return_when == "ALL_COMPLETED":
        standard.set_result(1)
        last.cancel()
        expected = {*futures}
    thread.join(LIMIT_S)
    assert found == [(expected, {*futures} - expected)]
    assert not any(future._waiters for future in futures)


def test_as_completed_yields_in_the_order_of_finishing(wait_until):
    futures = [pending(abs, n) for n in range(5)]
    found = []
    thread = threading.Thread(target=lambda: found.extend(as_completed(futures, LIMIT_S)))
    thread.start()
    wait_until(lambda: all(future._waiters for future in futures))
    order = [futures[i] for i in (3, 0, 4, 2, 1)]
    for future in order[:-1]:
        future.run()
    order[-1].cancel()
    thread.join(LIMIT_S)
    assert found == order


async def test_asyncio_can_await_a_pool_future():
    loop = asyncio.get_running_loop()
    done = finished(abs, -1)
    later, bad, cancelled, given_up = [
        pending(abs, -2),
        pending(fail, ValueError("x")),
        pending(),
        pending(),
    ]
    wrapped = [asyncio.wrap_future(f) for f in (done, later, bad, cancelled, given_up)]
    for future in (later, bad):
        loop.run_in_executor(None, future.run)
    cancelled.cancel()
    assert await wrapped[0] == 1
    assert await wrapped[1] == 2
    with pytest.raises(ValueError, match="x"):
        await wrapped[2]
    with pytest.raises(asyncio.CancelledError):
        await wrapped[3]
    told = asyncio.Event()
    given_up.add_done_callback(lambda f: told.set())
    wrapped[4].cancel()
    await told.wait()
    assert given_up.cancelled()
    await loop.shutdown_default_executor()


# --- Races ----------------------------------------------------------------------------------------


class Scene:
    """A future, one more (`other`), and all operations on them; each may meet each other one."""

    def __init__(self):
        self.n_calls = 0
        self.future = pending(self.task)
        self.other = pending()
        self.called = []
        self.n_callbacks = 0
        self.has_run = threading.Lock()
        self.cancels = []
        self.results = []
        self.found = []

    def task(self):
        self.n_calls += 1
        return "result"

    def run(self):
        """As a worker does: once."""
        if self.has_run.acquire(blocking=False):
            self.future.run()

    def cancel(self):
        self.cancels.append(self.future.cancel())

    def add_callback(self):
        self.n_callbacks += 1
        self.future.add_done_callback(self.called.append)

    def ask_result(self):
        try:
            self.results.append(self.future.result(LIMIT_S))
        except CancelledError:
            self.results.append("cancelled")

    def wait_for_all(self):
        self.found.append(wait([self.future, self.other], LIMIT_S).done)

    def list_completed(self):
        self.found.append({*as_completed([self.future, self.other], LIMIT_S)})

    def glance(self):
        future = self.future
        assert future.done() or future.running() or "pending" in repr(future) or future.done()

    def look(self):
        """A future that is done stays done, by each way of asking."""
        was_done = False
        for ask in (
            lambda: self.future.done(),
            lambda: self.future in wait([self.future], 0).done,
            lambda: self.future.done(),
        ):
            is_done = ask()
            assert is_done or not was_done
            was_done = is_done

    def end(self, meeting):
        """Let everything end that the meeting began, and check the results."""
        self.run()
        meeting.let_go_on()
        self.other.run()
        meeting.end()
        is_cancelled = self.future.cancelled()
        assert self.future._exception is None  # such as: the function of a cancelled task was gone
        assert self.future.done()
        assert not self.future.running()
        assert self.n_calls == (not is_cancelled)
        assert set(self.cancels) <= {is_cancelled}
        assert self.called == [self.future] * self.n_callbacks
        assert set(self.results) <= {"cancelled" if is_cancelled else "result"}
        assert all(found == {self.future, self.other} for found in self.found)
        self.look()


WATCHERS = ["add_callback", "ask_result", "wait_for_all", "look"]
PAIRS = [("run", watcher) for watcher in WATCHERS] + [(watcher, "run") for watcher in WATCHERS]
PAIRS += [("run", "cancel"), ("cancel", "run"), ("cancel", "cancel"), ("cancel", "wait_for_all")]
PAIRS += [("add_callback", "cancel"), ("add_callback", "ask_result")]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_worker_and_a_watcher_may_meet_at_any_instruction(first, second):
    def try_step(step):
        scene = Scene()
        meeting = Meeting(step, pool_future, getattr(scene, first), getattr(scene, second))
        scene.end(meeting)
        return meeting.was_reached

    every_step(try_step, 20)


@pytest.mark.parametrize("ask", ["done", "result", "exception"])
def test_no_thread_sees_an_outcome_that_is_not_settled(ask):
    """While a thread that began to watch holds the lock, the state does not change."""

    def is_done(future):
        if ask == "done":
            return future.done()
        try:
            getattr(future, ask)(0)
        except concurrent.futures.TimeoutError:
            return False
        return True

    def try_step(step):
        was_reached = False
        future = pending()
        future._progress = "RUNNING"

        def watch_and_publish():
            nonlocal was_reached
            was_reached = True
            if not future.__dict__:  # else `is_done` holds the lock: we would wait
                assert future._condition.state == "RUNNING"
                future._progress = FINISHED  # as the worker does, who waits for the lock then

        with before_step(step, pool_future, watch_and_publish):
            was_done = is_done(future)
        assert not was_done
        assert wait([future], 0).done == set()
        return was_reached

    every_step(try_step, 5)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["cancel", "add_callback", "glance"])
def test_an_interrupted_watcher_does_not_block_others(first):
    """Ctrl-C at any instruction of the main thread leaves the worker and other watchers free."""

    def try_step(step):
        scene = Scene()
        was_reached = interrupt(step, pool_future, getattr(scene, first))
        assert scene.called in ([], [scene.future])
        # It is not known whether the interrupted call took effect.
        scene.called.clear()
        scene.cancels.clear()
        meeting = Meeting(0, pool_future, scene.ask_result, scene.look)
        scene.run()
        assert scene.called in ([], [scene.future])
        scene.called.clear()
        scene.n_callbacks = 0
        scene.end(meeting)
        return was_reached

    every_step(try_step, 3)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(2, 6))
def test_many_threads_watch_many_futures(random, n_threads):
    """Each thread does everything, in an order of its own; exactly one runs each future."""
    scenes = [Scene() for _ in range(10)]
    deeds = ["cancel", "add_callback", "ask_result", "wait_for_all", "list_completed", "look"]
    plans = []
    for _ in range(n_threads):
        plan = [getattr(scene, random.choice(deeds)) for scene in scenes for _ in range(3)]
        random.shuffle(plan)
        plans.append(plan)
    start = threading.Barrier(n_threads + 2)
    errors = []

    def follow(plan):
        start.wait()
        try:
            for do in plan:
                do()
        except BaseException as error:
            errors.append(error)

    plans += [[scene.run for scene in scenes], [scene.other.run for scene in scenes]]
    threads = [threading.Thread(target=follow, args=(plan,), daemon=True) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)
    for scene in scenes:
        scene.n_callbacks = len(scene.called)  # counted by several threads
        scene.end(Meeting(0, pool_future, scene.look, scene.look))
