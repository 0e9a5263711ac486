"""The cost of browsers that look at the task stream, for the scheduler and for themselves.

    python -m benchmarks.viewers cost           # the scheduler's CPU at 10 000 tasks/s, 3 viewers
    python -m benchmarks.viewers frames         # frames per second of 100 000 attempts, first paint

`cost` runs tasks at a steady rate, and measures the CPU time of the scheduler's process without and
with viewers, in turns. A viewer asks as the script of the page does. The goal is 1 % of a core.

`frames` opens the page in a real Chromium when the cluster has run so many tasks, on 64 threads. It
zooms in each frame, so that each one is drawn anew. The goals are 30 frames per second, and a first
paint within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil

import weft
from tests.browser import chromium
from weft.deploy.http.stream_watch import KEEP_S
from weft.deploy.local.cluster import LocalCluster

from .framework.signals import ending_on_sigterm
from .tasks import inc

#: Tasks are submitted so often.
_STEP_S: Final = 0.1
#: A browser asks again so long after an answer.
_PAUSE_S: Final = 0.5


# -- the scheduler ---------------------------------------------------------------------------------
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
            self._client.gather(self._client.map(inc, range(self._n), pure=False))
            self.n_done += self._n

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def looking(url: str, token: str, n_viewers: int) -> Iterator[list[int]]:
    """Have viewers ask as browsers do; yields a list with one number, the bytes they got."""
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


def cost(
    per_s: int, n_viewers: int, seconds: float, n_pairs: int, rest_s: float = KEEP_S + 2
) -> None:
    """Measure the scheduler without and with viewers, in turns.

    After `rest_s` the times of the last viewers are not recorded any more.
    """
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        weft.Client(cluster) as client,
    ):
        link = cluster.dashboard_link
        assert link is not None
        url, token = link.partition("?")[0], cluster.security.token_for("view")
        scheduler = psutil.Process(client.scheduler_info()["pid"])
        pages = scheduler.children()
        load = Load(client, per_s)
        try:
            for _ in range(n_pairs):
                time.sleep(rest_s)
                found[False].append(measured(scheduler, load, seconds))
                with looking(url, token, n_viewers) as got:
                    time.sleep(2.0)
                    before = sum(got), cpu_s(*pages)
                    found[True].append(measured(scheduler, load, seconds))
                    mbytes = (sum(got) - before[0]) / 1e6 / n_viewers / seconds
                    others = (cpu_s(*pages) - before[1]) / seconds
                pair = [found[looked][-1] for looked in (False, True)]
                print(
                    f"  {pair[0][0]:.2%} without, {pair[1][0]:.2%} with; "
                    f"{pair[0][1]:.0f} and {pair[1][1]:.0f} tasks/s; pages {others:.1%}, "
                    f"{mbytes:.2f} MB/s for each viewer",
                    flush=True,
                )
        finally:
            load.close()
    more = [b[0] - a[0] for a, b in zip(found[False], found[True], strict=True)]
    print(
        f"{n_viewers} viewers at {per_s} tasks/s: {statistics.median(more):.2%} of a core of the "
        f"scheduler more (goal: 1 %), {min(more):.2%} to {max(more):.2%} in {n_pairs} pairs of "
        f"{seconds:g} s"
    )


def measured(process: psutil.Process, load: Load, seconds: float) -> tuple[float, float]:
    """Return the part of a core that a process uses, and the rate of tasks."""
    start_s, start_cpu, start_n = time.monotonic(), cpu_s(process), load.n_done
    time.sleep(seconds)
    elapsed_s = time.monotonic() - start_s
    return (cpu_s(process) - start_cpu) / elapsed_s, (load.n_done - start_n) / elapsed_s


def cpu_s(*processes: psutil.Process) -> float:
    """Return the CPU time of processes."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))


# -- the browser -----------------------------------------------------------------------------------
#: Zooms in and out in each frame; returns milliseconds between frames, and of script in each.
_FRAMES: Final = """new Promise((done) => {
  const plot = document.querySelector('.plot'), canvas = document.querySelector('#lanes');
  const context = canvas.getContext('2d'), clear = context.clearRect.bind(context);
  let nDrawn = 0, last = 0, first = 0;
  const between = [];
  context.clearRect = (...box) => { nDrawn += 1; clear(...box); };
  const step = (now) => {
    if (last) between.push(now - last);
    first = first || now;
    last = now;
    if (now - first > %d) {
      between.sort((a, b) => a - b);
      done({drawn: nDrawn, seconds: (now - first) / 1000,
            median: between[between.length >> 1], worst: between[between.length - 1]});
      return;
    }
    const key = nDrawn %% 2 ? '-' : '+';  // all of them, and half of them
    plot.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
    requestAnimationFrame(step);
  };
  document.querySelector('#live-button').click();
  requestAnimationFrame(step);
})"""
_PAINTED: Final = """({
  paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
  drawn: performance.getEntriesByName('drawn')[0]?.startTime,
})"""


async def _frames(cluster: LocalCluster, client: weft.Client, n: int, seconds: float) -> None:
    link = cluster.dashboard_link
    assert link is not None
    with tempfile.TemporaryDirectory() as folder:
        async with chromium(Path(folder)) as browser:
            page = await browser.open(link, width=1600, height=1200)
            await page.wait_for("document.querySelector('.tiles') !== null")
            await page.go(f"{link.partition('?')[0]}stream")
            count = "document.querySelector('#count').innerText"
            await page.wait_for(f"{count} !== ''")
            await asyncio.to_thread(_run_tasks, client, n)
            await page.wait_for("document.querySelector('.timeline').dataset.drawn === '1'")
            for _ in range(3):  # with all of them there already
                await page.go(f"{link.partition('?')[0]}stream?last=3600")
                for name in ("drawn", "first-contentful-paint"):  # which may come a frame later
                    await page.wait_for(f"performance.getEntriesByName('{name}').length > 0")
                painted = await page.js(_PAINTED)
                print(
                    f"first paint {painted['paint']:.0f} ms, attempts drawn "
                    f"{painted['drawn']:.0f} ms after the navigation (goal: 1 000 ms)"
                )
            await page.wait_for(f"parseInt({count}.replace(/\\D/g, '')) > 0")
            lanes = await page.js("document.querySelectorAll('#labels div').length")
            print(f"{(await page.js(count)).partition(' since')[0]} on {lanes} threads")
            found = await page.js(_FRAMES % (1000 * seconds))
            print(
                f"{found['drawn'] / found['seconds']:.0f} frames per second (goal: 30), between "
                f"two {found['median']:.1f} ms as a rule, {found['worst']:.1f} ms at worst"
            )


def _run_tasks(client: weft.Client, n: int) -> None:
    for start in range(0, n, 5000):
        client.gather(client.map(inc, range(start, min(start + 5000, n)), pure=False))


def frames(n_attempts: int, seconds: float) -> None:
    """Measure what the page takes in a browser."""
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=16, dashboard_address="127.0.0.1:0"
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        asyncio.run(_frames(cluster, client, n_attempts, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.viewers")
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("cost")
    one.add_argument("--rate", type=int, default=10_000, metavar="TASKS_PER_S")
    one.add_argument("--viewers", type=int, default=3, metavar="N")
    one.add_argument("--seconds", type=float, default=15.0)
    one.add_argument("--pairs", type=int, default=5, metavar="N")
    one = kinds.add_parser("frames")
    one.add_argument("--attempts", type=int, default=100_000, metavar="N")
    one.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with ending_on_sigterm():
        if options.kind == "cost":
            cost(options.rate, options.viewers, options.seconds, options.pairs)
        else:
            frames(options.attempts, options.seconds)


if __name__ == "__main__":
    main()
