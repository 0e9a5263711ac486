"""Names that the rows of Ray use, and the cluster of each section."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from ..calls.names import COMMON, DAEMONS

#: Their rows need Ray's dashboard; with weft, a scheduler with a connection file and a journal.
WITH_PAGES: Final = ("State API", "Jobs", "Commands")
WITH_FILES: Final = ("Jobs", "Commands")

#: Of both sides.
BOTH: Final = '''
import textwrap

def hold(path):
    """Run until the file is there."""
    tick = threading.Event()
    open(path + "-begun", "w").close()
    while not os.path.exists(path):
        tick.wait(0.02)
    return "held"

HELD = []

def gate():
    """Return a path for `hold`; the file is made when the row has ended."""
    HELD.append(str(folder / f"gate-{time.time_ns()}"))
    return HELD[-1]

def release():
    while HELD:
        open(HELD.pop(), "w").close()

def die_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        die_now()
    return "alive"

die_now, hold_file = die, hold

def items(n):
    for i in range(n):
        yield i

class Counter:
    def __init__(self, n=0):
        self.n = n
    def add(self, k=1):
        self.n += k
        return self.n
    def twice(self, x):
        return 2 * x
    def fail(self):
        raise ValueError("no")
    def pid(self):
        return os.getpid()
    def mode(self):
        return os.environ["MODE"]
    def die(self):
        die_now()
    def die_once(self, path):
        if not os.path.exists(path):
            open(path, "w").close()
            die_now()
        return "alive"
    def once(self, path):
        if not os.path.exists(path):
            open(path, "w").close()
            raise ValueError("no")
        return "second"

class AsyncCounter(Counter):
    async def later(self):
        await asyncio.sleep(0)
        return self.n

class AsyncGate:
    def __init__(self):
        self.opened = asyncio.Event()
    async def passed(self):
        return await self.opened.wait()
    async def open(self):
        self.opened.set()

class Meeting:
    """Two calls that run at the same time."""
    def __init__(self):
        self.barrier = threading.Barrier(2)
    def meet(self):
        return self.barrier.wait(60)

def last_line(done):
    """Return the last line that a process has printed."""
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return lines[-1]

def program(code, **env):
    """Run a program of its own; return the last line that it prints."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "WEFT_CONNECTION_FILE")}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return last_line(subprocess.run(command, env=kept | env, capture_output=True, text=True))
'''

#: Of Ray's side.
OF_RAY: Final = '''
import ray, ray.actor, ray.exceptions, ray.experimental, ray.runtime_env, ray.util
import ray.util.collective, ray.util.iter, ray.util.state as state
from ray.util import ActorPool
from ray.util.multiprocessing import Pool
from ray.util.queue import Queue

inc, scaled, fail, once = map(ray.remote, (inc, scaled, fail, once))
die, hold, die_once = map(ray.remote, (die, hold, die_once))
Counter, AsyncCounter = map(ray.remote, (Counter, AsyncCounter))
AsyncGate, Meeting = map(ray.remote, (AsyncGate, Meeting))

@contextlib.contextmanager
def group(bundles, **options):
    made = ray.util.placement_group(bundles, **options)
    try:
        yield made
    finally:
        ray.util.remove_placement_group(made)

def alone(script):
    """Run a script of the shell in which `ray stop` finds the processes of the script alone."""
    enter = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    kept = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as place:
        env = kept | {"PATH": path, "RAY_TMPDIR": place}
        command = [*enter, "sh", "-c", textwrap.dedent(script)]
        return last_line(subprocess.run(command, env=env, capture_output=True, text=True))

def command(*words):
    """Return whether a command of Ray succeeds."""
    words = [sys.executable, "-m", "ray.scripts.scripts", *words]
    address = JOBS_ADDRESS if words[3] == "job" else ADDRESS
    return subprocess.run(words, env=os.environ | {"RAY_ADDRESS": address}).returncode == 0
'''

#: Of weft's side.
OF_WEFT: Final = '''
import weft.joblib

def connected(**options):
    """Return a client of a cluster of its own, of one worker in this process."""
    given = {"processes": False, "n_workers": 1, "threads_per_worker": 1, **options}
    return weft.Client(set_as_default=False, **given)

def command(*words, connection=None):
    """Return whether a command of weft succeeds."""
    env = os.environ | {"WEFT_CONNECTION_FILE": connection or CONNECTION}
    words = [sys.executable, "-m", "weft", *words]
    return subprocess.run(words, env=env, stdout=subprocess.DEVNULL).returncode == 0
'''


def preamble_of(side: str) -> str:
    """Return the script that defines the names."""
    return COMMON + BOTH + (OF_RAY if side == "ray" else DAEMONS + OF_WEFT)


@contextmanager
def opened(side: str, heading: str, names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start the cluster of a section; yield the names of it and of its client."""
    if side == "ray":
        with _ray(has_pages=heading in WITH_PAGES) as more:
            yield more
    elif heading in WITH_FILES:
        options = ["--journal", str(names["folder"] / f"{heading}.sqlite")]
        options += ["--dashboard", "--dashboard-address", "127.0.0.1:0"]
        with names["daemons"](*options, worker=("--nthreads", "4")) as (client, path):
            yield {"client": client, "CONNECTION": path}
    else:
        weft = import_module("weft")
        given = {"n_workers": 2, "threads_per_worker": 2, "resources": {"GPU": 1, "tpu": 1}}
        with weft.LocalCluster(**given) as cluster, weft.Client(cluster) as client:
            client.wait_for_workers(2)
            yield {"cluster": cluster, "client": client}


@contextmanager
def _ray(*, has_pages: bool) -> Iterator[dict[str, Any]]:
    """Start Ray; its files are in a folder of its own."""
    ray = import_module("ray")
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as place:
        os.environ["RAY_TMPDIR"] = place
        made = ray.init(
            num_cpus=4,
            num_gpus=1,
            resources={"tpu": 2},
            include_dashboard=has_pages,
            log_to_driver=False,
            logging_level="ERROR",
        )
        try:
            address = made.address_info["gcs_address"]
            more: dict[str, Any] = {"ADDRESS": address}
            if has_pages:
                more["JOBS_ADDRESS"] = f"http://{made.dashboard_url}"
                os.environ["RAY_ADDRESS"] = address
                submission = import_module("ray.job_submission")
                more["jobs"] = submission.JobSubmissionClient(more["JOBS_ADDRESS"])
            yield more
        finally:
            os.environ.pop("RAY_ADDRESS", None)
            ray.shutdown()
