"""One call of dask.distributed: code that is run with it, and with weft.

The code of a row is that of a script: `dd` is the library, `client` and `cluster` are there, and so
are the names of `PREAMBLE`. It works if it runs, and its last expression is true.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from typing import Any, Final, NamedTuple

#: In the place of weft's own words: it has no counterpart, and the page says why.
NOTHING: Final = "nothing"


class Call(NamedTuple):
    """A row of the table.

    Attributes:
        name: the call as users write it; several rows of one call differ in what follows it.
        code: what is run.
        own: the code for weft, where its words differ.
        says: these words, as the page shows them; "" = `own` itself.
    """

    name: str
    code: str
    own: str = ""
    says: str = ""

    def code_for(self, side: str) -> str:
        """Return what is run with the library of this name."""
        return textwrap.dedent(self.own if self.own and side == "weft" else self.code).strip()


class Outcome(NamedTuple):
    """What came of a row: `works`, `refused` by name with a reason, `nothing`, or `fails`."""

    kind: str
    text: str = ""


#: Names that rows use. It is run once, as a script would be, so that its functions are pickled.
PREAMBLE: Final = '''
import asyncio, collections, contextlib, io, logging, os, pathlib, pickle, signal, subprocess
import sys, tempfile, threading, time, warnings
import dask, dask.array as da, dask.dataframe, numpy, pandas
from dask import delayed

folder = pathlib.Path(tempfile.mkdtemp())
Pair = collections.namedtuple("Pair", "a b")

def inc(x):
    return x + 1

def total(*parts):
    return sum(parts)

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

def error_of(function, *args, **kwargs):
    """Return what the call raises."""
    try:
        function(*args, **kwargs)
    except BaseException as error:
        return error

def addresses():
    return sorted(client.nthreads())

def until(condition):
    """Wait; for what no call waits for."""
    ended = threading.Event()
    for _ in range(400):
        if condition():
            return True
        ended.wait(0.05)
    return False

def local(**options):
    """Return a cluster of one worker in this process."""
    given = {"processes": False, "n_workers": 1, "threads_per_worker": 1, **QUIET}
    return dd.LocalCluster(**{**given, **options})

def connected(**options):
    """Return a client of such a cluster."""
    given = {"processes": False, "n_workers": 1, **QUIET, **options}
    return dd.Client(set_as_default=False, **given)

def run(coroutine):
    return asyncio.run(coroutine)
'''

#: More names for weft's own words: what is set for a cluster is an option of its commands.
DAEMONS: Final = '''
import weft.compat.distributed, weft.deploy

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
        with dd.Client(connection_file=path, set_as_default=False) as other:
            other.wait_for_workers(int(worker is not None))
            yield other, path
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
'''


def evaluated(code: str, name: str, names: dict[str, Any]) -> Any:
    """Run a script; return the value of its last expression, None without one."""
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return last and eval(compile(ast.Expression(last.value), name, "eval"), names)


def outcome_of(call: Call, side: str, names: dict[str, Any]) -> Outcome:
    """Run a row with the library of this name, among names that stay as they are."""
    if side == "weft" and call.own == NOTHING:
        return Outcome(NOTHING, call.says)
    try:
        value = evaluated(call.code_for(side), f"<{call.name}>", dict(names))
    except Exception as error:
        text = f"{error}".strip().partition("\n")[0]
        if side == "weft" and _is_refusal(error, text):
            return Outcome("refused", text)
        return Outcome("fails", f"{type(error).__name__}: {text}")
    finally:
        names["release"]()
    return Outcome("works") if value else Outcome("fails", f"gave {value!r}")


#: What errors of weft say about names that it does not have, before the reason or the advice.
_NO_NAME: Final = re.compile(
    r" has no .*[:;] (?!neither )|= is not supported by weft|leave \w+=.* out"
)


def _is_refusal(error: Exception, text: str) -> bool:
    """Return whether an error names what weft does not have, and says why or what to do."""
    from weft.protocol.errors import NotSupported

    is_named = isinstance(error, (AttributeError, TypeError)) and _NO_NAME.search(text)
    return isinstance(error, NotSupported) or bool(is_named)
