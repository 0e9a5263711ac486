"""The blocking client, against a scheduler that answers over a real socket."""

from __future__ import annotations

import collections
import gc
import os
import threading
import traceback

import numpy as np
import pytest

from tests.client.client_kit import fail, inc
from weft.client import Client
from weft.protocol.errors import (
    ClientClosed,
    ForeignFuture,
    TaskCancelled,
)
from weft.protocol.wire.messages import (
    ResultsReady,
    SubmitTasks,
)

Point = collections.namedtuple("Point", "x y")


# --- Gathering ------------------------------------------------------------------------------------


def test_gather_keeps_the_shape(client):
    a, b = client.map(inc, [0, 1])
    assert client.gather(a) == 1
    assert client.gather([a, (b, {"k": [a]}), Point(a, 5), {7}]) == [
        1,
        (2, {"k": [1]}),
        Point(1, 5),
        {7},
    ]
    assert client.gather(iter([a, b])) == [1, 2]
    assert client.gather({a}) == {1}
    assert client.gather([]) == []


def test_gather_fills_subclasses_of_dict(client):
    a, b = client.map(inc, [0, 1])
    ordered = collections.OrderedDict([("b", b), ("a", a)])
    defaults = collections.defaultdict(list, {"a": a})
    assert client.gather(ordered) == collections.OrderedDict([("b", 2), ("a", 1)])
    filled = client.gather(defaults)
    assert filled == {"a": 1}
    assert filled["new"] == []


def test_the_error_of_a_key_in_use_has_one_traceback(client):
    future = client.submit(inc, 1, key="mine")
    with pytest.raises(ValueError, match="key 'mine' belongs to a future of another") as caught:
        client.submit(inc, 2, key="mine")
    assert caught.value.__context__ is None
    assert future.result() == 2


def test_a_key_that_is_no_text_is_refused_at_submit(client):
    with pytest.raises(ValueError, match="cannot be sent as text"):
        client.submit(inc, 1, key="a\ud800b")
    assert client.submit(inc, 1).result() == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of 3.12: this is that case
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this platform lacks")
def test_a_forked_child_gets_an_error_for_its_parent_s_client(client, scheduler):
    future = client.submit(inc, 1)
    assert future.result() == 2
    scheduler.is_holding = True
    pending = client.submit(inc, 7)
    pid = os.fork()
    if not pid:
        code = 1
        words = "belongs to the parent of this forked process; make another one here, by"
        try:
            for call in (
                lambda: client.submit(inc, 1),
                lambda: client.map(inc, [1]),
                lambda: pending.result(),
                lambda: client.gather([pending]),
                client.scheduler_info,
            ):
                with pytest.raises(ClientClosed, match=words):
                    call()
            assert future.result() == 2
            client.close()
            code = 0
        finally:
            os._exit(code)
    scheduler.go_on()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.submit(inc, 2).result() == 3


def test_gather_raises_the_first_failure_or_skips(client):
    good, bad = client.submit(inc, 1), client.submit(fail, "boom")
    with pytest.raises(ValueError, match="boom"):
        client.gather([good, bad])
    assert client.gather([good, bad, {"x": bad, "y": good}], errors="skip") == [2, {"y": 2}]
    assert client.gather([bad, good], errors="skip") == [2]
    with pytest.raises(ValueError, match="errors="):
        client.gather([good], errors="ignore")


def test_gather_does_not_wait_for_the_rest_after_a_failure(client, scheduler):
    bad = client.submit(fail, "boom")
    bad.exception(10)
    scheduler.is_holding = True
    with pytest.raises(ValueError, match="boom"):
        client.gather([client.submit(inc, 1), bad])


def test_futures_of_another_client_are_refused(client, scheduler):
    future = client.submit(inc, 1)
    with Client(scheduler, set_as_default=False) as other:
        with pytest.raises(ValueError, match="another client"):
            other.gather([future])
        with pytest.raises(ValueError, match="another client"):
            other.gather({"x": future})


def test_a_future_is_cancelled_by_its_own_client_only(client, scheduler):
    scheduler.is_holding = True
    future, own = client.submit(inc, 1), client.submit(inc, 2)
    with Client(scheduler, set_as_default=False, name="other") as other:
        mine = other.submit(inc, 3)
        with pytest.raises(ForeignFuture, match="futures of this client, other, and that of 'inc-"):
            other.cancel([mine, {"x": future}])
        assert (mine.status, future.status) == ("pending", "pending")
    client.cancel([future])
    assert (future.status, own.status) == ("cancelled", "pending")


def test_large_results_come_from_their_worker_in_one_batch(client, scheduler):
    futures = client.map(bytes, [100_000 + i for i in range(20)])
    results = client.gather(futures)
    assert [len(result) for result in results] == [100_000 + i for i in range(20)]
    assert scheduler.n_fetches <= 4
    array = client.submit(np.ones, 50_000).result(10)
    assert array.sum() == 50_000
    array[0] = 2  # writable


def test_large_results_come_through_the_scheduler_if_the_worker_is_out_of_reach(client, scheduler):
    scheduler.holder = "unix:///nowhere/at/all"
    futures = client.map(bytes, [100_000, 100_001])
    assert [len(result) for result in client.gather(futures)] == [100_000, 100_001]
    assert scheduler.n_fetches == 0


def test_a_large_result_that_is_lost_is_computed_again(client, scheduler):
    future = client.submit(bytes, 100_000)
    assert future.exception(10) is None
    scheduler.lost.add(future.key)
    assert len(future.result(10)) == 100_000
    assert scheduler.n_runs == 2


# --- Failing --------------------------------------------------------------------------------------


def test_the_users_own_exception_and_frames_arrive(client):
    future = client.submit(fail, "boom")
    with pytest.raises(ValueError, match="boom") as caught:
        future.result(10)
    assert "fail" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any(future.key in note for note in caught.value.__notes__)
    assert future.status == "error"
    assert isinstance(future.exception(), ValueError)
    names = [frame.name for frame in traceback.extract_tb(future.traceback())]
    assert names[-1] == "fail"


def test_dependents_raise_the_root_error_and_name_both(client):
    root = client.submit(fail, "boom")
    leaf = client.submit(inc, root)
    with pytest.raises(ValueError, match="boom") as caught:
        leaf.result(10)
    assert f"weft: task {leaf.key} depends on {root.key}, which failed" in caught.value.__notes__
    # Also when the failure is known before the dependent is submitted.
    late = client.submit(inc, root, pure=False)
    with pytest.raises(ValueError, match="boom"):
        late.result(10)


def test_cancelling_fails_the_future(client, scheduler):
    scheduler.is_holding = True
    done, *waiting = client.map(inc, range(3))
    client.cancel(waiting, reason="changed my mind")
    assert [future.status for future in waiting] == ["cancelled", "cancelled"]
    assert waiting[0].cancelled()
    with pytest.raises(TaskCancelled, match="changed my mind"):
        waiting[0].result(10)
    done.cancel()
    assert done.cancelled()
    scheduler.go_on()
    again = client.submit(inc, 1)
    assert again.result(10) == 2
    again.cancel()
    assert again.status == "finished"


def test_result_times_out_and_the_task_goes_on(client, scheduler):
    scheduler.is_holding = True
    future = client.submit(inc, 1)
    for wait in (future.result, future.exception, future.traceback):
        with pytest.raises(TimeoutError):
            wait(0.01)
    with pytest.raises(TimeoutError, match="1 of 1 results"):
        client.gather([future], timeout=0.01)
    assert client._engine.table.states[future.key].watchers is None or not client._engine.settle()
    client._engine.settle()
    assert not client._engine.table.states[future.key].watchers
    scheduler.go_on()
    assert future.result(10) == 2


def test_callbacks_run_once_in_a_thread_of_the_client(client, caplog):
    called = []
    done = threading.Event()

    def callback(future):
        called.append((future.result(), threading.current_thread() is threading.main_thread()))
        done.set()

    future = client.submit(inc, 1)
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(callback)
    assert done.wait(10)
    assert called == [(2, False)]
    done.clear()
    future.add_done_callback(callback)
    assert done.wait(10)
    assert "a done-callback raised" in caplog.text


# --- Threads --------------------------------------------------------------------------------------


def test_many_threads_share_keys_and_release_them(client, scheduler, wait_until):
    errors = []

    def work(seed):
        try:
            for i in range(60):
                futures = client.map(inc, range(i % 7))
                future = client.submit(inc, (seed + i) % 5)
                assert future.result(20) == (seed + i) % 5 + 1
                assert client.gather(futures) == [x + 1 for x in range(i % 7)]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gc.collect()
    client._engine.settle()
    assert client._engine.table.states == {}
    wait_until(lambda: not scheduler.wanted)


def test_completions_come_in_batches(client, scheduler):
    futures = client.map(inc, range(5000))
    client.gather(futures)
    assert sum(len(m.keys) for m in scheduler.heard(SubmitTasks)) == 5000
    assert len(scheduler.heard(SubmitTasks)) < 20
    assert ResultsReady.columns == ("keys", "results")
