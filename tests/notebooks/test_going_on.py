"""A kernel that is interrupted in the middle of something goes on with the same client."""

from __future__ import annotations

import pytest

from tests.kernels import kernel  # noqa: F401

pytestmark = pytest.mark.slow

START = """
import asyncio, os, sys, threading, time, weft
from weft.client.shell import interrupts
interrupts.AGAIN_S = 0.0  # the next interrupt is no second one, which cancels
FOLDER = os.path.dirname(weft.__file__) + os.sep

def waits(path, x):
    while not os.path.exists(path):
        time.sleep(0.01)  # workload
    return x

def watch(marker):
    '''Make a file when the main thread waits in weft: it stands where it stood before.'''
    main, seen, n = threading.main_thread().ident, None, 0
    def is_in_weft(frame):
        while frame is not None and not frame.f_code.co_filename.startswith(FOLDER):
            frame = frame.f_back
        return frame is not None
    def look():
        nonlocal seen, n
        while n < 10:
            frame = sys._current_frames()[main]
            here = (frame.f_code, frame.f_lasti)
            n = n + 1 if here == seen and is_in_weft(frame) else 0
            seen = here
            time.sleep(0.01)  # workload
        open(marker, "w").close()
    threading.Thread(target=look, daemon=True).start()
"""
#: What a cell may wait in.
WAITS = {
    "result": "futures[1].result()",
    "exception": "futures[1].exception()",
    "gather": "client.gather(futures)",
    "as_completed": "taken += weft.as_completed(futures)",
    "wait": "weft.wait(futures)",
}


class Session:
    """A kernel with a client, whose cells are interrupted when they wait."""

    def __init__(self, kernel, folder, wait_until):  # noqa: F811
        self.kernel, self.folder, self._wait_until = kernel, folder, wait_until
        self.run, self.value, self.start = kernel.run, kernel.value, kernel.start
        self.n = 0
        self.run(START)

    def path(self, name):
        return str(self.folder / name)

    def interrupt_in(self, code):
        """Run a cell, interrupt it when it waits in weft, and check how it ends."""
        self.n += 1
        marker = self.folder / f"waits-{self.n}"
        cell = self.start(f"watch({str(marker)!r})\n{code}")
        self.interrupt_at(marker, cell)

    def interrupt_at(self, marker, cell, error="KeyboardInterrupt"):
        """Interrupt a cell when a file is there, and check how it ends."""
        self.interrupt_after(marker, cell)
        assert cell.error is not None, cell.messages
        assert cell.error[0] == error, cell.error[1]

    def interrupt_after(self, marker, cell):
        """Interrupt a cell when a file is there, and wait for its end."""
        self._wait_until(marker.exists, 60)
        self.kernel.interrupt()
        cell.wait()

    def open(self, name):
        (self.folder / name).touch()


@pytest.fixture
def session(kernel, tmp_path, wait_until):  # noqa: F811
    return Session(kernel, tmp_path, wait_until)


def test_a_client_goes_on_after_interrupts_in_each_kind_of_wait(session):
    session.run(
        f"""
client = weft.Client(n_workers=2, threads_per_worker=1)
early = client.map(abs, range(-5, 0))
failed = client.submit(divmod, 1, 0)
taken = []
futures = [client.submit(abs, -7), client.submit(waits, {session.path("gate")!r}, 8)]
"""
    )
    for code in [*WAITS.values()] * 2:  # each twice, one after the other
        session.interrupt_in(code)
        assert session.value("client.submit(pow, 2, 10, pure=False).result()") == "1024", code
        assert session.value("client.gather(early)") == "[5, 4, 3, 2, 1]", code
        assert session.value("type(failed.exception())") == "ZeroDivisionError", code
        assert session.value("[f.status for f in futures]") == "['finished', 'pending']", code
    session.open("gate")
    assert session.value("client.gather(futures)") == "[7, 8]"
    session.run("client.close()")
    session.run("assert 'weft' not in str(threading.enumerate()), threading.enumerate()")


def test_as_completed_that_was_interrupted_goes_on_where_it_was(session):
    session.run(
        f"""
client = weft.Client(n_workers=2, threads_per_worker=1)
futures = [*client.map(abs, range(5)), client.submit(waits, {session.path("gate")!r}, 8)]
completed, taken = weft.as_completed(futures), []
"""
    )
    for _ in range(2):
        session.interrupt_in("for future in completed: taken.append(future.result())")
    session.open("gate")
    session.run("for future in completed: taken.append(future.result())")
    assert session.value("sorted(taken)") == "[0, 1, 2, 3, 4, 8]"
    session.run("client.close()")


@pytest.mark.parametrize(
    "step",
    [
        "made.append(client.submit(abs, -len(made)))",
        "made += client.map(abs, range(-len(made), -len(made) - 100, -1))",
    ],
    ids=["submit", "map"],
)
def test_a_client_goes_on_after_an_interrupt_while_it_submits(session, step):
    session.run("client = weft.Client(n_workers=1, threads_per_worker=1)")
    for n in range(5):
        marker = session.folder / f"submits-{n}"
        cell = session.start(
            f"""
made = []
try:
    while True:
        {step}
        if len(made) == {1000 * (n + 1)}:
            open({str(marker)!r}, "w").close()
except KeyboardInterrupt:
    # Not left to IPython, which shows no error if the interrupt hits an instruction without a line.
    print("interrupted")
"""
        )
        session.interrupt_after(marker, cell)
        assert cell.stdout == "interrupted\n", cell.messages
        assert session.value("client.gather(made) == list(range(len(made)))") == "True"
        assert session.value("client.submit(pow, 2, 10, pure=False).result()") == "1024"
    session.run("client.close()")


def test_an_asynchronous_client_goes_on_after_an_interrupt(session):
    session.run(
        f"""
client = await weft.Client(n_workers=2, threads_per_worker=1, asynchronous=True)
early = client.map(abs, range(-5, 0))
future = client.submit(waits, {session.path("gate")!r}, 8)
await client.gather(early)
"""
    )
    marker = session.folder / "awaits"
    for code in ("await future", "await client.gather([future])", "await weft.wait([future])"):
        # A callback of the loop runs when the cell's coroutine waits.
        cell = session.start(
            f"asyncio.get_running_loop().call_later(0.1, open, {str(marker)!r}, 'w')\n{code}"
        )
        session.interrupt_at(marker, cell, "CancelledError")  # as ipykernel does for coroutines
        marker.unlink()
        assert session.value("await client.gather(early)") == "[5, 4, 3, 2, 1]", code
        assert session.value("await client.submit(pow, 2, 10, pure=False)") == "1024", code
        assert session.value("future.status") == "'pending'", code
    session.open("gate")
    assert session.value("await future") == "8"
    session.run("await client.close()")
    session.run("assert 'weft' not in str(threading.enumerate()), threading.enumerate()")
