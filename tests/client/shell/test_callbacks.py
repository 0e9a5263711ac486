"""The thread in which users' callbacks run."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import weakref

import pytest

from weft.client import Client
from weft.client.shell.callbacks import CallbackThread, finish_callbacks


class Argument:
    """An object that can be referred to weakly."""


@pytest.fixture
def callbacks():
    thread = CallbackThread()
    yield thread
    thread.end()
    finish_callbacks(30)


def test_callbacks_run_one_after_another_in_one_daemon_thread(callbacks):
    called = []
    may_go_on = threading.Event()
    callbacks.call(may_go_on.wait, 30)
    for n in range(10):
        callbacks.call(lambda n: called.append((n, threading.current_thread())), n)
    assert called == []
    may_go_on.set()
    callbacks.end()
    finish_callbacks(30)
    numbers, threads = zip(*called, strict=True)
    assert numbers == tuple(range(10))
    assert len({*threads}) == 1
    assert threads[0].daemon


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_callbacks_that_raise_are_logged_and_the_next_ones_run(callbacks, caplog, error):
    called = threading.Event()

    def fail(_):
        raise error

    callbacks.call(fail, None)
    callbacks.call(lambda _: called.set(), None)
    assert called.wait(30)
    assert error.__name__ in caplog.text


@pytest.mark.parametrize("retry", ["call", "end"])
def test_callbacks_wait_while_their_thread_cannot_be_started(callbacks, caplog, retry):
    called = []

    def no_thread(_):
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        callbacks.call(called.append, 1)
        callbacks.call(called.append, 2)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "2 callbacks wait" in caplog.text
    if retry == "call":
        callbacks.call(called.append, 3)
    callbacks.end()
    finish_callbacks(30)
    assert called == ([1, 2, 3] if retry == "call" else [1, 2])


def test_callbacks_that_come_while_the_interpreter_ends_are_no_error(callbacks, caplog):
    def no_thread(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.DEBUG, "weft.client"):
        patch.setattr(threading.Thread, "start", no_thread)
        callbacks.call(id, 1)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_the_argument_of_a_callback_is_not_kept(callbacks, wait_until):
    argument = Argument()
    seen = weakref.ref(argument)
    callbacks.call(id, argument)
    del argument
    wait_until(lambda: seen() is None)


def test_all_callbacks_are_called_when_a_client_closes(scheduler):
    scheduler.is_holding = True
    called = []
    with Client(scheduler) as client:
        for future in client.map(abs, range(3)):
            future.add_done_callback(lambda future: called.append(future.status))
    finish_callbacks(30)
    assert called == ["cancelled"] * 3


PROGRAM = """
import threading
import weft

client = weft.Client(n_workers=1)
done, pending = client.submit(abs, -1), client.submit(abs, -2, resources={"absent": 1})
done.add_done_callback(lambda future: print("called", future.result(), flush=True))
done.add_done_callback(lambda _: print("closed:", repr(pending.exception()), flush=True))
done.add_done_callback(lambda _: print("last", flush=True))
done.add_done_callback(lambda _: threading.Event().wait())
done.result()
"""


@pytest.mark.slow
def test_a_callback_that_blocks_does_not_keep_the_program_from_ending():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    called, closed, last = done.stdout.splitlines()
    assert called == "called 1"
    assert closed.startswith("closed: ClientClosed")
    assert last == "last"
