"""The cost of browsers that look at the task stream, for the scheduler and for themselves.

    python -m benchmarks.viewers cost           # the scheduler's CPU at 10 000 tasks/s, 3 viewers
    python -m benchmarks.viewers frames         # frames per second of 100 000 attempts, first paint

`cost` has what the row `viewers` of `benchmarks.run` measures (`clusters/viewing.py`), in several
pairs on one cluster, with the process of the pages beside it. The goal is 1 % of a core.

`frames` opens the page in a real Chromium when the cluster has run so many tasks, on 64 threads. It
zooms in each frame, so that each one is drawn anew. The goals are 30 frames per second, and a first
paint within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import weft
from tests.browser import chromium
from weft.deploy.http.stream_watch import KEEP_S
from weft.deploy.local.cluster import LocalCluster

from .clusters.viewing import watchable
from .framework.signals import ending_on_sigterm
from .tasks import inc


# -- the scheduler ---------------------------------------------------------------------------------
def cost(
    per_s: int, n_viewers: int, seconds: float, n_pairs: int, rest_s: float = KEEP_S + 2
) -> None:
    """Measure the scheduler without and with viewers, in turns.

    After `rest_s` the times of the last viewers are not recorded any more.
    """
    pairs = []
    with watchable(per_s) as scene:
        for _ in range(n_pairs):
            time.sleep(rest_s)
            pair = scene.pair(n_viewers, seconds)
            pairs.append(pair)
            print(
                f"  {pair.alone:.2%} without, {pair.watched:.2%} with; {pair.alone_per_s:.0f} and "
                f"{pair.watched_per_s:.0f} tasks/s; pages {pair.pages:.1%}, {pair.mbytes_per_s:.2f}"
                " MB/s for each viewer",
                flush=True,
            )
    more = [pair.more for pair in pairs]
    print(
        f"{n_viewers} viewers at {per_s} tasks/s: {statistics.median(more):.2%} of a core of the "
        f"scheduler more (goal: 1 %), {min(more):.2%} to {max(more):.2%} in {n_pairs} pairs of "
        f"{seconds:g} s"
    )


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
