"""Tasks that break the interpreter which they share with the worker's own code."""

from __future__ import annotations

import pytest

from tests.deploy.daemons import run

pytestmark = pytest.mark.slow


def test_a_worker_whose_own_code_fails_ends_at_once_and_the_next_one_goes_on(tmp_path):
    code = (
        "import sys, weft\n"
        "with weft.Client(n_workers=1) as c:\n"
        "    error = c.submit(sys.setrecursionlimit, 10).exception(60)\n"
        "    print(type(error).__name__, error.attempts, 'RecursionError' in str(error))\n"
        "    print(c.submit(abs, -3).result(60))\n"
    )
    done = run(folder=tmp_path, code=code)
    assert (done.stdout, done.returncode) == ("WorkerDied 4 True\n3\n", 0)
    lines = done.stderr.splitlines()
    assert len([line for line in lines if " weft." in line]) <= 12, done.stderr
    # With ten frames the interpreter may not even reach weft's handler: it prints by itself then,
    # in several places (a finalizer, a hook for exceptions, the end of a thread).
    assert len(lines) <= 100, done.stderr


BROKEN_FAILURE = """
def broken():
    from weft.worker.slots.executor import TaskExecutor
    TaskExecutor._failure = lambda *arguments: undefined
    return 1 / 0
"""

BROKEN_LOOP = """
def broken():
    import gc, threading
    from weft.worker.server import WorkerServer
    (worker,) = [o for o in gc.get_objects() if isinstance(o, WorkerServer)]
    worker._loop.call_soon_threadsafe(lambda: undefined)
    threading.Event().wait()
"""

BROKEN_SERVING = """
def broken():
    import weft.worker.data.store
    weft.worker.data.store.pack_for_reader = lambda *arguments: undefined
    return bytes(1_000_000)
"""


BROKEN_REPORT = """
def broken():
    from weft.protocol.wire.codec import WireState
    from weft.protocol.wire.messages import AttemptsFinished
    from weft.worker.server import WorkerServer

    encode = WireState.encode

    def failing(self, messages):
        if any(isinstance(message, AttemptsFinished) for message in messages):
            return undefined
        return encode(self, messages)

    WireState.encode = failing
    WorkerServer._send_past_loop = lambda *arguments: False  # by the loop, as over TLS
    return 1
"""


@pytest.mark.parametrize("broken", [BROKEN_FAILURE, BROKEN_LOOP, BROKEN_SERVING, BROKEN_REPORT])
def test_a_task_with_which_weft_fails_each_time_is_given_up(tmp_path, broken):
    code = broken + (
        "import weft\n"
        "with weft.Client(n_workers=1) as c:\n"
        "    try:\n"
        "        c.submit(broken).result(60)\n"
        "    except weft.WorkerDied as error:\n"
        "        print(error.attempts, \"name 'undefined'\" in str(error))\n"
        "    print(c.submit(abs, -3).result(60))\n"
    )
    done = run(folder=tmp_path, code=code)
    assert (done.stdout, done.returncode) == ("4 True\n3\n", 0), done.stderr
    # Each death has its traceback: it may be a bug of weft.
    assert len(done.stderr.splitlines()) <= 150, done.stderr
