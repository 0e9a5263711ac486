"""`Client.forward_logging`, on a real cluster."""

from __future__ import annotations

import logging
import re
import threading

import pytest

import weft
from weft import Client

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with weft.LocalCluster(n_workers=1) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def logs(name, level=logging.INFO, text="%s of a task", **more):
    logging.getLogger(name).log(level, text, name, **more)


def logs_in_a_thread():
    thread = threading.Thread(target=logs, args=("lib.threads",))
    thread.start()
    thread.join()


def logs_an_error():
    try:
        raise ValueError("of a task")
    except ValueError:
        logging.getLogger("lib").exception("%s!", "failed", extra={"user": "me", "thing": object()})


def texts(caplog, name="lib"):
    own = [r for r in caplog.records if hasattr(r, "weft_worker")]
    return [r.getMessage() for r in own if r.name == name or r.name.startswith(f"{name}.")]


def test_records_of_workers_are_handled_here(client, caplog, wait_until):
    caplog.set_level(logging.INFO, "lib")
    client.forward_logging("lib")
    future = client.submit(logs, "lib.a", key="the-key")
    future.result(timeout=60)
    wait_until(lambda: texts(caplog))
    (record,) = [r for r in caplog.records if r.name == "lib.a"]
    assert record.getMessage() == "lib.a of a task"
    assert (record.levelno, record.funcName) == (logging.INFO, "logs")
    assert (record.weft_key, record.weft_worker) == ("the-key", next(iter(names(client))))
    client.submit(logs_in_a_thread).result(timeout=60)
    client.submit(logs, "elsewhere").result(timeout=60)
    wait_until(lambda: len(texts(caplog)) == 2)
    assert texts(caplog) == ["lib.a of a task", "lib.threads of a task"]
    client.unforward_logging("lib")
    client.submit(logs, "lib.a", pure=False).result(timeout=60)
    client.forward_logging("lib.b")
    client.submit(logs, "lib.b", pure=False).result(timeout=60)
    wait_until(lambda: len(texts(caplog)) == 3)
    assert texts(caplog)[2:] == ["lib.b of a task"]


def names(client):
    return {worker["name"] for worker in client.scheduler_info()["workers"].values()}


def test_exceptions_and_extras_travel(client, caplog, wait_until):
    client.forward_logging("lib", "ERROR")
    client.submit(logs_an_error).result(timeout=60)
    wait_until(lambda: texts(caplog))
    (record,) = [r for r in caplog.records if r.name == "lib"]
    assert record.user == "me"
    assert not hasattr(record, "thing")
    assert "in logs_an_error" in caplog.text
    assert "ValueError: of a task" in caplog.text


def test_the_level_of_this_program_decides_and_its_changes_are_noticed(client, caplog, wait_until):
    client.forward_logging()
    client.submit(logs, "lib", pure=False).result(timeout=60)
    caplog.set_level(logging.INFO)

    def is_noticed():
        client.submit(logs, "lib", text="%s later", pure=False).result(timeout=60)
        return texts(caplog)

    wait_until(is_noticed)
    assert set(texts(caplog)) == {"lib later"}


def test_each_client_has_its_own_wishes_and_one_of_a_program_shows_them(
    cluster, client, caplog, wait_until
):
    caplog.set_level(logging.DEBUG)
    with Client(cluster, set_as_default=False) as other:
        client.forward_logging("lib", logging.WARNING)
        other.forward_logging("lib.sub", logging.DEBUG)
        for level in (logging.DEBUG, logging.WARNING):
            for name in ("lib", "lib.sub"):
                client.submit(logs, name, level, pure=False).result(timeout=60)
        other.submit(logs, "lib.sub", logging.WARNING, "%s last", pure=False).result(timeout=60)
        wait_until(lambda: "lib.sub last" in texts(caplog))
    assert sorted(texts(caplog)) == [
        "lib of a task",
        "lib.sub last",
        "lib.sub of a task",
        "lib.sub of a task",
    ]


def test_output_and_records_are_shown_once(cluster, caplog):
    caplog.set_level(logging.INFO)
    with Client(cluster, forward_output=True, set_as_default=False) as client:
        client.forward_logging("lib")
        client.submit(logs, "lib", pure=False).result(timeout=60)
        client.submit(logs, "other", pure=False).result(timeout=60)
    ours = [r for r in caplog.records if r.name in ("lib", "other")]
    assert [hasattr(r, "weft_worker") for r in ours] == [True, False]


def test_floods_are_cut_and_counted(client, caplog, wait_until):
    def floods():
        for i in range(1000):
            logging.getLogger("lib").error("%d", i)

    client.forward_logging("lib")
    client.submit(floods).result(timeout=60)

    def n_left_out():
        return sum(int(n) for n in re.findall(r"too many per second: (\d+) of", caplog.text))

    wait_until(lambda: len(texts(caplog)) + n_left_out() == 1000)
    assert n_left_out() >= 500


def test_wrong_arguments_are_refused(cluster, client):
    for name, error, text in [
        (5, TypeError, "is the name of a logger, not int"),
        (logging.getLogger("x"), TypeError, "not Logger"),
        ("x" * 201, ValueError, "at most 200 characters"),
        ("\ud800", ValueError, "printable"),
        ("weft.worker", ValueError, r"get_worker_logs\(\) returns them"),
    ]:
        with pytest.raises(error, match=text):
            client.forward_logging(name)
    for level, error in [(5.5, TypeError), (True, TypeError), (-1, ValueError), ("x", ValueError)]:
        with pytest.raises(error, match="is a level of logging"):
            client.forward_logging("lib", level)
    with pytest.raises(ValueError, match="does not forward the records of logger 'lib'"):
        client.unforward_logging("lib")
    with Client(cluster, set_as_default=False) as other:
        pass
    with pytest.raises(weft.ClientClosed):
        other.forward_logging()


def forwards_in_a_task():
    weft.get_client().forward_logging()


def test_a_task_forwards_nothing_to_its_worker(client):
    with pytest.raises(weft.NotSupported, match="call forward_logging in the program"):
        client.submit(forwards_in_a_task).result(timeout=60)


async def test_asynchronous_clients_forward_too(cluster, caplog, wait_until):
    caplog.set_level(logging.INFO, "lib")
    async with Client(cluster, asynchronous=True, set_as_default=False) as client:
        await client.forward_logging("lib")
        await client.submit(logs, "lib", pure=False)
        await client.unforward_logging("lib")
    assert texts(caplog) == ["lib of a task"]


def test_workers_that_come_later_and_programs_that_share_their_process(caplog, wait_until):
    caplog.set_level(logging.INFO, "lib")
    with Client(n_workers=0, threads_per_worker=1, set_as_default=False) as client:
        client.forward_logging("lib")
        client.cluster.scale(1)
        client.submit(logs, "lib", pure=False).result(timeout=60)
        wait_until(lambda: texts(caplog))
    caplog.clear()
    with Client(n_workers=1, processes=False, set_as_default=False) as client:
        client.forward_logging("lib")
        client.submit(logs, "lib", pure=False).result(timeout=60)
    assert [r.getMessage() for r in caplog.records if r.name == "lib"] == ["lib of a task"]
