"""The cost of viewers of the task stream for the scheduler: its CPU time without and with them.

A viewer asks as the script of the page does.
"""

from __future__ import annotations

import contextlib
import http.client
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import psutil

import weft
from weft.deploy.local.cluster import LocalCluster

from ..framework.work import check
from ..tasks import inc

#: Tasks are submitted so often.
_STEP_S: Final = 0.1
#: A browser asks again so long after an answer.
_PAUSE_S: Final = 0.5
#: Viewers look so long before they are measured.
_SETTLED_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The parts of a core that are used and the rates of tasks, without and with viewers.

    Attributes:
        alone: of the scheduler, without viewers.
        watched: of the scheduler, with them.
        alone_per_s: tasks/s without viewers.
        watched_per_s: tasks/s with them.
        pages: of the process of the pages, with them.
        mbytes_per_s: to each viewer.
    """

    alone: float
    watched: float
    alone_per_s: float
    watched_per_s: float
    pages: float
    mbytes_per_s: float

    @property
    def more(self) -> float:
        """The part of a core that viewers cost the scheduler; noise can make it negative."""
        return self.watched - self.alone


class Load:
    """Tasks at a steady rate, until it is closed."""

    def __init__(self, client: weft.Client, per_s: int) -> None:
        self._client = client
        self._n = round(per_s * _STEP_S)
        self.n_done = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(due - time.monotonic(), 0)):
            due = max(due + _STEP_S, time.monotonic() - 1.0)
            found = self._client.gather(self._client.map(inc, range(self._n), pure=False))
            self.n_done += check(len(found), self._n)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def looking(url: str, token: str, n_viewers: int) -> Iterator[list[int]]:
    """Have viewers ask as browsers do; yields the bytes that each has got."""
    place = urlsplit(url)
    over = threading.Event()
    got = [0] * n_viewers

    def look(number: int) -> None:
        after = ""
        assert place.hostname
        while not over.wait(_PAUSE_S):
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("GET", f"/stream/data?after={after}", headers=headers)
            answer = connection.getresponse().read()
            connection.close()
            (n,) = struct.unpack_from("<I", answer)
            after = answer[4 : 4 + n].decode().partition('"next": "')[2].partition('"')[0]
            got[number] += len(answer)

    threads = [threading.Thread(target=look, args=(i,)) for i in range(n_viewers)]
    for thread in threads:
        thread.start()
    try:
        yield got
    finally:
        over.set()
        for thread in threads:
            thread.join()


class Scene:
    """A cluster at work, whose pages can be looked at."""

    def __init__(self, cluster: LocalCluster, client: weft.Client, load: Load) -> None:
        link = cluster.dashboard_link
        assert link is not None
        self._url, self._token = link.partition("?")[0], cluster.security.token_for("view")
        self._scheduler = psutil.Process(client.scheduler_info()["pid"])
        self._pages = self._scheduler.children()
        self._load = load

    def pair(self, n_viewers: int, seconds: float) -> Pair:
        """Measure the scheduler without and with viewers, for so long each."""
        alone, alone_per_s = self._measured(seconds)
        with looking(self._url, self._token, n_viewers) as got:
            time.sleep(_SETTLED_S)
            n_before, cpu_before = sum(got), cpu_s(*self._pages)
            watched, watched_per_s = self._measured(seconds)
            mbytes = (sum(got) - n_before) / 1e6
            pages = (cpu_s(*self._pages) - cpu_before) / seconds
        per_viewer = mbytes / n_viewers / seconds
        return Pair(alone, watched, alone_per_s, watched_per_s, pages, per_viewer)

    def _measured(self, seconds: float) -> tuple[float, float]:
        """Return the part of a core that the scheduler uses, and the rate of tasks."""
        start_s, start_cpu = time.monotonic(), cpu_s(self._scheduler)
        start_n = self._load.n_done
        time.sleep(seconds)
        elapsed_s = time.monotonic() - start_s
        cpu = (cpu_s(self._scheduler) - start_cpu) / elapsed_s
        return cpu, (self._load.n_done - start_n) / elapsed_s


@contextlib.contextmanager
def watchable(per_s: int) -> Iterator[Scene]:
    """Run a cluster with so many tasks per second."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        weft.Client(cluster) as client,
    ):
        load = Load(client, per_s)
        try:
            yield Scene(cluster, client, load)
        finally:
            load.close()


def cpu_s(*processes: psutil.Process) -> float:
    """Return the CPU time of processes."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))
