"""A client's session: outages, wrong options, its end, and warnings."""

from __future__ import annotations

import logging
import os
import pickle
import platform
import threading
import time

import pytest

from tests.client.client_kit import inc, submitted
from weft.client import Client, Future
from weft.client.waiting import wait as wait_for
from weft.protocol.errors import (
    ClientClosed,
    CommClosed,
    ConfigError,
    ConnectTimeout,
    DataLost,
    WorkerStartTimeout,
    WrongToken,
)
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import Security, new_token
from weft.protocol.wire.messages import (
    ClusterStopped,
    KeysUnrunnable,
    RegisterClient,
    ShutdownCluster,
)


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
