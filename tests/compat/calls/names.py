"""Names that the rows use: they are defined by a script, so that its functions are pickled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

#: Of the rows of all libraries.
COMMON: Final = '''
import asyncio, collections, contextlib, io, itertools, logging, os, pathlib, pickle, signal
import subprocess, sys, tempfile, threading, time, warnings
import dask, numpy
from dask import delayed

folder = pathlib.Path(tempfile.mkdtemp())

def inc(x):
    return x + 1

def scaled(x, by=1):
    return x * by

async def later(x):
    await asyncio.sleep(0)
    return x

def fail():
    raise ValueError("no")

def once(path):
    """Fail at the first call."""
    if not os.path.exists(path):
        open(path, "w").close()
        raise ValueError("no")
    return "second"

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def error_of(function, *args, **kwargs):
    """Return what the call raises."""
    try:
        function(*args, **kwargs)
    except BaseException as error:
        return error

def until(condition):
    """Wait; for what no call waits for."""
    ended = threading.Event()
    for _ in range(400):
        if condition():
            return True
        ended.wait(0.05)
    return False

def run(coroutine):
    return asyncio.run(coroutine)
'''

#: Of the rows of dask.distributed; `dd` is the library.
OF_DASK: Final = '''
import dask.array as da, dask.dataframe, pandas

# On a busy machine a worker may take longer to be started again than the default allows.
dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
Pair = collections.namedtuple("Pair", "a b")

def total(*parts):
    return sum(parts)

def hold(name):
    """Wait for the event of this name."""
    dd.Event(name).wait()
    return name

HELD = []

def held():
    """Return the future of a task that runs until the row has ended."""
    HELD.append(f"held-{time.time_ns()}")
    return client.submit(hold, HELD[-1], pure=False)

def release():
    while HELD:
        dd.Event(HELD.pop()).set()

def here():
    return dd.get_worker().address

class Counter:
    n = 0
    def add(self, k):
        self.n += k
        return self.n
    async def later(self):
        return self.n

class Setup(dd.WorkerPlugin):
    name = "setup"
    def setup(self, worker):
        worker.is_set_up = True
    def teardown(self, worker):
        pathlib.Path(os.environ.get("TORN", os.devnull)).write_text("x")

def addresses():
    return sorted(client.nthreads())

def local(**options):
    """Return a cluster of one worker in this process."""
    given = {"processes": False, "n_workers": 1, "threads_per_worker": 1, **QUIET}
    return dd.LocalCluster(**{**given, **options})

def connected(**options):
    """Return a client of such a cluster."""
    given = {"processes": False, "n_workers": 1, **QUIET, **options}
    return dd.Client(set_as_default=False, **given)
'''

#: For weft's own words: what is set for a cluster is an option of its commands.
DAEMONS: Final = '''
import weft, weft.compat.distributed, weft.deploy

@contextlib.contextmanager
def daemons(*scheduler_options, worker=None):
    """Start a scheduler, and a worker if it has options; yield a client and the connection file."""
    path = str(folder / f"cluster-{time.time_ns()}.json")
    def start(*words):
        command = [sys.executable, "-m", "weft", *words, "--connection-file", path]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = [start("scheduler", "--port", "0", "--no-dashboard", *scheduler_options)]
    try:
        assert until(lambda: os.path.exists(path))
        if worker is not None:
            started.append(start("worker", "--nworkers", "1", *worker))
        with weft.Client(connection_file=path, set_as_default=False) as other:
            other.wait_for_workers(int(worker is not None))
            yield other, path
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
'''


def preamble_of(side: str) -> str:
    """Return the script that defines the names for the rows of dask.distributed."""
    quiet = {"dashboard_address": ":0"} if side == "distributed" else {}
    head = f"import {side}, {side} as dd\nQUIET = {quiet!r}\n"
    return head + COMMON + OF_DASK + (DAEMONS if side == "weft" else "")


@contextmanager
def opened(side: str, heading: str, names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start the cluster of a section; yield the names of it and of its client."""
    dd = names["dd"]
    options = {"n_workers": 2, "threads_per_worker": 2, "resources": {"GPU": 1}, **names["QUIET"]}
    with dd.LocalCluster(**options) as cluster, closing(dd.Client(cluster)) as client:
        client.wait_for_workers(2)
        yield {"cluster": cluster, "client": client}
