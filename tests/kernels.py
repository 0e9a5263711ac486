"""A real Jupyter kernel for tests: cells are run in it, and what a front end would show is kept.

The test files that use it import the fixture `kernel`. Its connections are Unix sockets.
"""

from __future__ import annotations

import asyncio
import os
import queue
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

#: Longest time for a cell, on a machine that is busy with other things.
CELL_S = 120.0


class Cell:
    """One execution of a cell, and what came out of it."""

    def __init__(self, kernel, msg_id):
        self._kernel, self._msg_id = kernel, msg_id
        self.is_idle = False
        #: Messages of this cell, in order: (type, content).
        self.messages = []

    def wait(self, condition=None, timeout_s=CELL_S):
        """Take messages until `condition(self)`, or until the kernel has done the cell."""
        deadline = time.monotonic() + timeout_s
        while not (self.is_idle if condition is None else condition(self)):
            left = deadline - time.monotonic()
            assert left > 0, f"the cell shows only: {self.messages}"
            try:
                message = self._kernel.client.get_iopub_msg(timeout=min(left, 1.0))
            except queue.Empty:
                continue
            self._kernel.take(message)
        return self

    @property
    def stdout(self):
        return self._text("stdout")

    @property
    def stderr(self):
        return self._text("stderr")

    def _text(self, name):
        return "".join(c["text"] for t, c in self.messages if t == "stream" and c["name"] == name)

    @property
    def error(self):
        """The name of the exception and the printed traceback, without colours."""
        found = [c for t, c in self.messages if t == "error"]
        return (found[0]["ename"], plain("\n".join(found[0]["traceback"]))) if found else None

    def displayed(self, kind):
        """Return what was displayed, with updates, of this MIME type."""
        types = ("display_data", "update_display_data", "execute_result")
        return [c["data"][kind] for t, c in self.messages if t in types and kind in c["data"]]


def plain(text):
    """Return a text without the colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class Kernel:
    """A kernel process. `terminal` is what it writes into the terminal of Jupyter."""

    def __init__(self, folder: Path):
        from jupyter_client.manager import KernelManager

        self._terminal_path = folder / "terminal"
        self._terminal = self._terminal_path.open("wb")
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json")
        )
        self.cells = {}
        self.manager.start_kernel(
            stdout=self._terminal, stderr=self._terminal, cwd=os.getcwd(), env=environment()
        )
        self._connect()

    def _connect(self):
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=CELL_S)

    @property
    def pid(self):
        return self.manager.provisioner.process.pid

    @property
    def terminal(self):
        return self._terminal_path.read_text()

    def start(self, code):
        """Start a cell, without waiting for it."""
        msg_id = self.client.execute(code)
        self.cells[msg_id] = cell = Cell(self, msg_id)
        return cell

    def run(self, code):
        """Run a cell to its end; it must not fail."""
        cell = self.start(code).wait()
        assert cell.error is None, cell.error[1]
        return cell

    def value(self, expression):
        """Return the text of an expression's value."""
        (found,) = self.run(expression).displayed("text/plain")
        return found

    def take(self, message):
        cell = self.cells.get(message["parent_header"].get("msg_id"))
        if cell is not None:
            content = message["content"]
            cell.messages.append((message["msg_type"], content))
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                cell.is_idle = True

    def interrupt(self):
        self.manager.interrupt_kernel()

    def restart(self):
        self.client.stop_channels()
        self.manager.restart_kernel(now=False)
        self._connect()

    def descendants(self):
        return psutil.Process(self.pid).children(recursive=True)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def close(self):
        from jupyter_core.utils import ensure_event_loop

        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self.manager.cleanup_resources()
        self.client.context.destroy(0)
        self.manager.context.destroy(0)
        self._terminal.close()
        ensure_event_loop().close()  # in which jupyter_client runs its coroutines
        asyncio.set_event_loop(None)


def environment():
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    # In tests of its own a kernel leaves file descriptors alone; users' kernels watch them.
    inherited = {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(paths),
        "JUPYTER_PLATFORM_DIRS": "1",
        "IPYTHONDIR": os.environ.get("IPYTHONDIR", "/nonexistent-ipython"),
        "PYTHONWARNINGS": "default",
    }


@pytest.fixture
def kernel(tmp_path) -> Iterator[Kernel]:
    pytest.importorskip("ipykernel", reason="ipykernel is missing: pip install ipykernel")
    started = Kernel(tmp_path)
    try:
        yield started
    finally:
        started.close()
