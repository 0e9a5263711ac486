"""The blocking client, against a scheduler that answers over a real socket."""

from __future__ import annotations

import collections
import gc
import logging
import operator
import os
import pickle
import platform
import threading
import time
import traceback

import numpy as np
import pytest

from weft.client import Client, Future
from weft.client.calls.encoding import _FIRST_CHUNK
from weft.client.waiting import wait as wait_for
from weft.protocol.errors import (
    ClientClosed,
    CommClosed,
    ConfigError,
    ConnectTimeout,
    DataLost,
    ForeignFuture,
    SerializationError,
    TaskCancelled,
    WorkerStartTimeout,
    WrongToken,
)
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import Security, new_token
from weft.protocol.wire.messages import (
    ClusterStopped,
    KeysUnrunnable,
    RegisterClient,
    ReleaseKeys,
    ResultsReady,
    ShutdownCluster,
    SubmitTasks,
)

Point = collections.namedtuple("Point", "x y")


def inc(x):
    return x + 1


def fail(text):
    raise ValueError(text)


def submitted(scheduler):
    return [key for message in scheduler.heard(SubmitTasks) for key in message.keys]


# --- Submitting -----------------------------------------------------------------------------------


def test_submit_and_result(client):
    future = client.submit(inc, 1)
    assert future.result(10) == 2
    assert future.status == "finished"
    assert future.done()
    assert future.type is int
    assert future.exception() is None
    assert future.client is client
    assert future.key.startswith("inc-")
    assert repr(future) == f"<Future: finished, key: {future.key}>"


def test_map_takes_any_iterables_and_the_shortest_ends_it(client):
    futures = client.map(operator.add, iter(range(5)), [10, 20, 30])
    assert client.gather(futures) == [10, 21, 32]
    assert client.map(inc, []) == []


def test_futures_are_arguments_at_any_depth(client):
    one, two = client.submit(inc, 0), client.submit(inc, 1)
    total = client.submit(sum, [one, two])
    assert total.result(10) == 3
    nested = client.submit(lambda d, *, k: d["a"][0] + k, {"a": [two]}, k=one)
    assert nested.result(10) == 3
    assert client.gather(client.map(operator.add, [one, two], [two, two])) == [3, 4]


def test_keyword_constants_are_sent_once(client, scheduler):
    futures = client.map(lambda x, *, big: x + len(big), range(1000), big=bytes(100_000))
    assert client.gather(futures)[:2] == [100_000, 100_001]
    messages = scheduler.heard(SubmitTasks)
    blobs = [blob for m in messages for blob in m.function_blobs if blob is not None]
    assert len(blobs) == 1
    assert max(len(args) for m in messages for args in m.args) < 100


def test_a_future_among_keyword_constants_is_a_dependency(client):
    ten = client.submit(inc, 9)
    assert client.gather(client.map(lambda x, *, y: x * y, range(3), y=ten)) == [0, 10, 20]


def test_equal_pure_calls_run_once_and_share_a_future_state(client, scheduler):
    futures = [client.submit(inc, 1) for _ in range(5)] + client.map(inc, [1, 1])
    assert client.gather(futures) == [2] * 7
    assert len({future.key for future in futures}) == 1
    assert scheduler.n_runs == 1


def test_impure_calls_run_each_time(client, scheduler):
    futures = [client.submit(inc, 1, pure=False), *client.map(inc, [1, 1], pure=False)]
    assert client.gather(futures) == [2, 2, 2]
    assert scheduler.n_runs == 3


def test_a_failed_pure_call_is_tried_again(client, scheduler):
    first = client.submit(fail, "x")
    assert isinstance(first.exception(10), ValueError)
    second = client.submit(fail, "x")
    assert second.key == first.key
    assert isinstance(second.exception(10), ValueError)
    assert scheduler.n_runs == 2


def test_keys_may_be_given_by_the_user(client):
    future = client.submit(inc, 1, key="mine")
    assert future.key == "mine"
    assert client.submit(inc, 1, key="mine").result(10) == 2
    with pytest.raises(ValueError, match="another function"):
        client.submit(inc, 2, key="mine")
    assert [f.key for f in client.map(inc, range(2), key=["a", "b"])] == ["a", "b"]
    assert all(f.key.startswith("pre-") for f in client.map(inc, range(2), key="pre"))
    with pytest.raises(ValueError, match="3 keys were given for 2 calls"):
        client.map(inc, range(2), key=["a", "b", "c"])
    with pytest.raises(TypeError, match="a key is a str"):
        client.submit(inc, 1, key=3)


def test_keys_may_be_tuples(client, scheduler):
    future = client.submit(inc, 1, key=("x", 0))
    assert future.key == ("x", 0)
    assert future.result(10) == 2
    assert repr(future) == "<Future: finished, key: ('x', 0)>"
    assert client.submit(inc, 1, key=("x", 0)).result(10) == 2
    assert submitted(scheduler) == ["('x', 0)"]
    futures = client.map(inc, range(2), key=[("x", ("y", None)), "('x', 0)"])
    assert [f.key for f in futures] == [("x", ("y", None)), "('x', 0)"]
    assert client.gather(futures) == [1, 2]
    assert ("x", 0) in client.futures
    with pytest.raises(ValueError, match=r"key \"\('x', 0\)\" belongs"):
        client.submit(inc, 2, key=("x", 0))
    with pytest.raises(TypeError, match=r"not list: \[1\]; key= is an option of submit"):
        client.submit(inc, 1, key=("x", [1]))
    failed = client.submit(fail, "text", key=("x", 2))
    assert isinstance(failed.exception(10), ValueError)
    assert pickle.loads(pickle.dumps(future)).key == ("x", 0)


def test_error_of_a_task_has_the_key_as_it_was_given(client, scheduler):
    scheduler.is_holding = True
    future = client.submit(inc, 1, key=("x", 0))
    future.cancel()
    error = future.exception(10)
    assert (error.key, error.args[0]) == (("x", 0), ("x", 0))
    assert str(error) == "task ('x', 0) was cancelled"


@pytest.mark.parametrize("n_between", [0, _FIRST_CHUNK])
def test_one_key_for_two_calls_of_a_map_is_refused(client, scheduler, n_between):
    between = range(100, 100 + n_between)
    keys = ["d", *map(str, between), "d"]
    with pytest.raises(ValueError, match=r"key 'd' .* (two different calls|other arguments)"):
        client.map(inc, [1, *between, 2], key=keys)
    # A failed state of that name makes no difference, and the refused map has left nothing.
    assert isinstance(client.submit(fail, "x", key="e").exception(10), ValueError)
    with pytest.raises(ValueError, match=r"key 'e' .* two different calls"):
        client.map(inc, [1, 2], key=["e", "e"])
    assert client.submit(inc, 3, key="d").result(10) == 4


def test_one_key_for_equal_calls_of_a_map_is_one_task(client, scheduler):
    assert client.gather(client.map(inc, [1, 2, 1], key=["d", "e", "d"])) == [2, 3, 2]
    assert scheduler.n_runs == 2


def test_a_key_is_free_as_soon_as_its_future_is_released(client):
    for n in range(50):
        assert client.submit(inc, n, key="again").result(10) == n + 1
        futures = client.map(inc, [n, n + 1], key=["left", "right"])
        assert client.gather(futures) == [n + 1, n + 2]
        for future in futures:
            future.release()


def test_options_reach_the_scheduler(client, scheduler):
    client.submit(
        inc, 1, priority=7, retries=2, workers="w1", allow_other_workers=True, resources={"GPU": 1}
    ).result(10)
    (message,) = scheduler.heard(SubmitTasks)
    assert message.options == [
        {
            "priority": 7,
            "retries": 2,
            "workers": ["w1"],
            "allow_other_workers": True,
            "resources": {"GPU": 1},
        }
    ]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"fifo_timeout": "1s"}, TypeError, "fifo_timeout= is not supported"),
        ({"priority": 1.5}, ValueError, "priority="),
        ({"priority": 5000}, ValueError, "priority="),
        ({"retries": -1}, ValueError, "retries="),
        ({"workers": [3]}, TypeError, "workers="),
        ({"workers": []}, ValueError, "workers= is empty"),
        ({"resources": {"GPU": -1}}, ValueError, "resources="),
        ({"allow_other_workers": True}, ValueError, "without workers="),
    ],
)
def test_bad_options_are_refused_by_name(client, options, error, text):
    with pytest.raises(error, match=text):
        client.submit(inc, 1, **options)
    with pytest.raises(error, match=text):
        client.map(inc, [1], **options)


def test_an_unpicklable_argument_is_named_and_nothing_is_submitted(client, scheduler):
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=r"argument args\[1\] of inc"):
        client.submit(inc, 1, lock)
    with pytest.raises(SerializationError, match="lock"):
        client.submit(lambda: lock)
    rows = [*range(_FIRST_CHUNK + 10), lock]
    with pytest.raises(SerializationError, match=rf"args\[0\] of inc \(call {len(rows) - 1}\)"):
        client.map(inc, rows)
    with pytest.raises(TypeError, match="needs a function"):
        client.submit(3)


def test_an_array_may_change_after_it_was_submitted(client, scheduler):
    scheduler.is_holding = True
    array = np.ones(10_000)
    futures = [client.submit(np.sum, array), *client.map(np.sum, [array])]
    array[:] = 0
    scheduler.go_on()
    assert client.gather(futures) == [10_000.0, 10_000.0]


def test_the_last_future_gone_releases_the_key(client, scheduler, wait_until):
    one = client.submit(inc, 1)
    two = client.submit(inc, 1)
    key = one.key
    assert two.result(10) == 2
    del one
    two.release()
    wait_until(lambda: key not in scheduler.wanted)
    assert [k for m in scheduler.heard(ReleaseKeys) for k in m.keys] == [key]
    with pytest.raises(SerializationError, match="was released"):
        client.submit(inc, two)


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


# --- The session ----------------------------------------------------------------------------------


def test_after_a_broken_connection_everything_goes_on(client, scheduler, wait_until):
    scheduler.is_holding = True
    futures = client.map(inc, range(100))
    wait_until(lambda: len(submitted(scheduler)) == 100)
    scheduler.drop_connection()
    futures += client.map(inc, range(100, 200))
    wait_until(lambda: len(scheduler.sessions) == 2)
    scheduler.go_on()
    assert client.gather(futures, timeout=20) == list(range(1, 201))
    assert scheduler.n_runs == 200
    assert scheduler.sessions == [1, 2]


def test_a_scheduler_that_comes_back_empty_gets_the_work_again(client, scheduler, wait_until):
    scheduler.is_holding = True
    future = client.submit(inc, 0)
    for _ in range(50):
        future = client.submit(inc, future)
    others = client.map(lambda x, *, c: x + c, range(10), c=100)
    wait_until(lambda: len(submitted(scheduler)) == 61)
    scheduler.disappear()
    scheduler.forget()
    during = client.submit(inc, others[0])
    scheduler.is_holding = False
    scheduler.listen()
    assert future.result(20) == 51
    assert client.gather(others) == list(range(100, 110))
    assert during.result(10) == 101
    (_, second) = scheduler.heard(RegisterClient)
    assert (second.session, second.last_epoch) == (2, 1)


def test_a_scheduler_that_stays_away_fails_pending_futures(scheduler):
    scheduler.is_holding = True
    with Client(scheduler, reconnect_timeout=0.3) as client:
        done = client.submit(len, "abc", key="done")
        scheduler.go_on()
        assert done.result(10) == 3
        scheduler.is_holding = True
        future = client.submit(inc, 1)
        scheduler.disappear()
        with pytest.raises(CommClosed, match="did not come back"):
            future.result(20)
        assert future.status == "lost"
        with pytest.raises(CommClosed, match="did not come back"):
            client.submit(inc, 2).result(10)
        with pytest.raises(CommClosed, match="did not come back"):
            client.scheduler_info()
        with pytest.raises(CommClosed, match="did not come back"):
            client.wait_for_workers(1)
        assert done.result() == 3


def messages_of(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_a_long_outage_is_logged_once_and_its_end_too(scheduler, caplog, monkeypatch, wait_until):
    monkeypatch.setattr("weft.client.shell.link._REPORT_AFTER_S", 0.1)
    scheduler.is_holding = True
    with Client(scheduler) as client:
        futures = client.map(inc, range(3))
        client.scheduler_info()
        scheduler.disappear()
        wait_until(lambda: messages_of(caplog, logging.WARNING))
        scheduler.listen()
        scheduler.go_on()
        assert client.gather(futures) == [1, 2, 3]
        wait_until(lambda: len(messages_of(caplog, logging.WARNING)) == 2)
    (warning, news) = messages_of(caplog, logging.WARNING)
    assert f"the scheduler at {scheduler.scheduler_address} does not answer (" in warning
    assert "reconnecting, 3 futures are pending, giving up in 60 s" in warning
    assert news.startswith("the scheduler is back after ")


def test_calls_beyond_the_limit_wait_while_there_is_no_scheduler(scheduler, wait_until):
    scheduler.is_holding = True
    with Client(scheduler, recovery_memory=2000) as client:
        client.scheduler_info()
        scheduler.disappear()
        wait_until(lambda: not client._engine.core.is_linked)
        futures = [client.submit(len, bytes(1500))]
        more = []
        thread = threading.Thread(
            target=lambda: more.extend(client.map(len, [bytes(600), bytes(700)]))
        )
        thread.start()
        wait_until(lambda: client._engine.core.confirmations)
        assert not more
        scheduler.listen()
        scheduler.go_on()
        thread.join(30)
        assert client.gather([*futures, *more]) == [1500, 600, 700]


@pytest.mark.parametrize("wrong", [-1, 0.5, "much"])
def test_a_wrong_limit_is_refused(wrong):
    with pytest.raises(ConfigError, match=f"recovery_memory: {wrong!r} is not a size"):
        Client(recovery_memory=wrong)


def write_connection_file(scheduler, path):
    ConnectionFile(
        scheduler.security.cluster_id.hex(),
        (scheduler.scheduler_address,),
        scheduler.security.token.decode(),
        pid=os.getpid(),
        host=platform.node(),
        created=time.time(),
    ).write(path)


def test_a_scheduler_whose_connection_file_is_gone_is_looked_for_where_it_was(scheduler, tmp_path):
    path = tmp_path / "scheduler.json"
    write_connection_file(scheduler, path)
    scheduler.is_holding = True
    with Client(connection_file=path, reconnect_timeout=20) as client:
        future = client.submit(inc, 1)
        client.scheduler_info()
        path.unlink()
        scheduler.drop_connection()
        scheduler.go_on()
        assert future.result(10) == 2
        assert len(scheduler.sessions) == 2


def test_the_last_error_names_the_connection_before_its_file(scheduler, tmp_path):
    path = tmp_path / "scheduler.json"
    write_connection_file(scheduler, path)
    scheduler.is_holding = True
    with Client(connection_file=path, reconnect_timeout=0.3) as client:
        future = client.submit(inc, 1)
        client.scheduler_info()
        path.unlink()
        scheduler.disappear()
        with pytest.raises(CommClosed) as caught:
            future.result(20)
    text = str(caught.value)
    start = f"the connection to the scheduler at {scheduler.scheduler_address} was lost ("
    assert text.startswith(start)
    assert "while 1 future was pending, and it did not come back within 0." in text
    assert text.index("no process listens there") < text.index(str(path))


def test_a_scheduler_that_cannot_come_back_is_not_waited_for(scheduler):
    scheduler.is_holding = True
    with Client(scheduler, reconnect_timeout=1e6) as client:
        future = client.submit(inc, 1)
        client.scheduler_info()
        scheduler.failure = "it has burnt down"
        scheduler.disappear()
        with pytest.raises(CommClosed, match="cannot come back: it has burnt down"):
            future.result(20)
    with pytest.raises(CommClosed, match="it has burnt down"):
        Client(scheduler, timeout=1e6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proceses": False}, "no option 'proceses'; did you mean 'processes'"),
        ({"time_out": 1}, "no option 'time_out'; did you mean 'timeout'"),
        ({"zzz": 1}, "no option 'zzz'; see help"),
        ({"address": "tcp://127.0.0.1:1", "n_worker": 2}, "did you mean 'n_workers'"),
    ],
)
def test_an_unknown_option_is_named_with_what_was_meant(options, words):
    with pytest.raises(TypeError, match=words):
        Client(**options)


def test_closing_cancels_pending_futures_and_keeps_results_that_are_here(scheduler):
    client = Client(scheduler)
    done = client.submit(inc, 1)
    assert done.result(10) == 2
    scheduler.is_holding = True
    pending = client.submit(inc, 2)
    errors = []

    def wait():
        try:
            pending.result()
        except ClientClosed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(10)
    assert len(errors) == 1
    assert done.result() == 2
    assert client.gather([done]) == [2]
    for call in (lambda: client.submit(inc, 1), lambda: client.map(inc, [1]), pending.result):
        with pytest.raises(ClientClosed):
            call()
    client.close()
    assert client.status == "closed"
    assert repr(client) == "<Client: closed>"


def test_the_futures_of_a_cluster_that_is_stopped_fail_at_once(client, scheduler):
    scheduler.is_holding = True
    future, text = client.submit(inc, 1), "cluster was stopped: by ada, while 1 future was pending"
    scheduler.say(ClusterStopped(reason="by ada"))
    with pytest.raises(CommClosed, match=text):
        future.result(60)
    with pytest.raises(CommClosed, match=text):
        client.submit(inc, 2).result(60)


def test_a_clean_session_logs_nothing(scheduler, caplog):
    caplog.set_level(logging.INFO)
    with Client(scheduler) as client:
        client.gather(client.map(inc, range(10)))
    assert caplog.records == []


def test_unrunnable_tasks_cause_a_warning(client, scheduler, caplog, wait_until):
    scheduler.say(KeysUnrunnable(keys=["x"], reason="nobody has GPU=1"))
    wait_until(lambda: "nobody has GPU=1" in caplog.text)


def test_timeouts_name_why_no_worker_can_run_the_task(client, scheduler, caplog, wait_until):
    scheduler.is_holding = True
    future, other = client.submit(inc, 1), client.submit(inc, 2)
    scheduler.say(KeysUnrunnable(keys=[future.key], reason="no worker has GPU=1"))
    wait_until(lambda: "no worker has GPU=1" in caplog.text)
    words = f"'{future.key}' waits for a worker that can run it: no worker has GPU=1$"
    for call in (
        future.result,
        future.exception,
        lambda timeout: client.gather([other, future], timeout=timeout),
        lambda timeout: wait_for([other, future], timeout=timeout),
    ):
        with pytest.raises(TimeoutError, match=words):
            call(0.01)
    with pytest.raises(TimeoutError, match=r"its task continues$"):
        other.result(0.01)


@pytest.mark.parametrize("by", ["submit", "map"])
def test_a_timeout_names_an_input_that_no_worker_can_compute(client, scheduler, caplog, by):
    scheduler.is_holding = True
    first = client.submit(inc, 1)
    second = client.submit(inc, first) if by == "submit" else client.map(inc, [first, 7])[0]
    third = client.submit(inc, second)
    scheduler.say(KeysUnrunnable(keys=[first.key], reason="no worker has GPU=1"))
    client.scheduler_info()
    words = f"no result of '{third.key}' .*'{first.key}' waits for a worker that can run it: no w"
    with pytest.raises(TimeoutError, match=words):
        third.result(0.01)


def test_unpickled_futures_are_of_the_current_client(client, scheduler):
    future = client.submit(inc, 1)
    twin = pickle.loads(pickle.dumps(future))
    assert isinstance(twin, Future)
    assert (twin.key, twin.result(10)) == (future.key, 2)
    unknown = pickle.loads(
        pickle.dumps(future).replace(future.key.encode(), b"x" * len(future.key))
    )
    with pytest.raises(DataLost):
        unknown.result(10)


def test_the_current_client_is_the_innermost_one(client, scheduler):
    assert Client.current() is client
    with Client(scheduler, set_as_default=False) as other:
        assert Client.current() is client
        with other.as_current():
            assert Client.current() is other
        assert Client.current() is client
    client.close()
    with pytest.raises(ClientClosed):
        Client.current()


def test_a_client_describes_its_cluster(client, scheduler):
    scheduler.set_workers(2)
    client.wait_for_workers(2, timeout=10)
    with pytest.raises(WorkerStartTimeout, match="2 of 3 workers"):
        client.wait_for_workers(3, timeout=0.01)
    assert client.nthreads() == {scheduler.data_address: 2}
    assert "workers" in client.scheduler_info()
    assert client.dashboard_link.startswith("http://127.0.0.1:1/?access=")
    assert "workers=2 threads=2" in repr(client)
    assert ">2</td>" in client._repr_html_()
    assert client.cluster is scheduler


def test_shutdown_asks_the_scheduler(client, scheduler, wait_until):
    client.shutdown()
    wait_until(lambda: scheduler.heard(ShutdownCluster))
    assert client.status == "closed"


def test_a_client_without_the_token_gets_an_error_about_that(scheduler, caplog):
    wrong = Security(token=new_token().encode(), cluster_id=scheduler.security.cluster_id)
    with pytest.raises(WrongToken):
        Client(scheduler.scheduler_address, security=wrong)


def test_connecting_where_no_scheduler_listens_is_an_error(scheduler):
    with pytest.raises(ConnectTimeout, match="no process listens"):
        Client("unix:///nowhere/at/all", security=scheduler.security, timeout=0.3)


def test_options_of_a_local_cluster_need_one(scheduler):
    with pytest.raises(TypeError, match="n_workers= is an option of a LocalCluster"):
        Client(scheduler, n_workers=2)
    with pytest.raises(TypeError, match="not int"):
        Client(3)


def test_a_large_closure_in_a_loop_of_submit_is_warned_of_once(client, caplog):
    data = bytes(9 << 20)
    for i in range(3):
        assert client.submit(lambda i: len(data) + i, i).result(20) == len(data) + i
    (record,) = [r for r in caplog.records if r.name == "weft.client"]
    assert "the function lambda is pickled again for each submit, with 9 MiB" in record.message
    caplog.clear()

    def once(i):
        return len(data) + i

    for i in range(3):
        client.submit(once, i).result(20)
    assert client.gather(client.map(once, range(3))) == [len(data) + i for i in range(3)]
    assert not caplog.records


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
