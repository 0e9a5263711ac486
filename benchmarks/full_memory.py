"""Results that do not fit into the memory of the workers, beside a neighbour whose results do.

`python -m benchmarks.full_memory` starts two workers of 400 MB for each case. A neighbour has 50
small results that are not pure, an actor, and makes a small call all the time; a greedy client
makes more data than fits, or nearly. Each row: how long it took, how it ended, how many
processes of workers were killed, how often the neighbour's results were computed (50 = once each),
whether its actor lives, and the slowest of its small calls. It fails if a case has no end within
`LIMIT_S`, or if the neighbour is harmed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import weft

from .clusters.systems import Weft
from .framework import machine
from .framework.driving import ROOT

MB: Final = 1_000_000
LARGE: Final = 20 * MB
#: Each case has an end within this time, seconds.
LIMIT_S: Final = 60.0
#: Results of the neighbour, how often they may be computed, and how many workers may be killed.
N_SMALL: Final = 50
MAX_COMPUTED: Final = 60
MAX_KILLED: Final = 2


def block(_: int, nbytes: int = LARGE) -> bytes:
    """Return data that no page of memory has twice."""
    return os.urandom(nbytes)


def note(folder: str, i: int) -> int:
    """Leave a file for each time that this is called."""
    Path(folder, uuid.uuid4().hex).touch()
    return i


class Count:
    """The neighbour's actor."""

    def __init__(self) -> None:
        self.n = 0

    def add(self) -> int:
        """Count one more."""
        self.n += 1
        return self.n


def hold(client: weft.Client, n: int) -> list[Any]:
    """Hold n blocks."""
    return client.map(block, range(n), pure=False)


def gather(client: weft.Client, n: int) -> list[Any]:
    """Read n blocks from the workers, one after the other, and hold them there."""
    futures = client.map(block, range(n), pure=False)
    for future in weft.as_completed(futures):
        if future.status == "finished":
            len(future.result())
    return futures


def stream(client: weft.Client, n: int) -> list[Any]:
    """Have each of n blocks read by one task, and let it go."""
    blocks = client.map(block, range(n), pure=False)
    return client.map(len, blocks, pure=False)


def newer(_: bytes, other: bytes) -> bytes:
    """Make one block of two."""
    return bytes(bytearray(other))


def reduce(client: weft.Client, n: int) -> list[Any]:
    """Reduce n blocks in pairs to one."""
    level = client.map(block, range(n), pure=False)
    while len(level) > 1:
        level = client.map(newer, level[::2], level[1::2], pure=False)
    return level


def scatter(client: weft.Client, n: int) -> list[Any]:
    """Scatter n blocks, one by one; the end of that is an exception."""
    futures: list[Any] = []
    try:
        futures.extend(client.scatter(block(i)) for i in range(n))
    except weft.errors.MemoryExceeded as error:
        futures.append(client.submit(raise_, error))
    return futures


def raise_(error: Exception) -> None:
    """Fail with an error."""
    raise error


def pass_arguments(client: weft.Client, n: int) -> list[Any]:
    """Give n calls an argument of their own, which is let go with the call."""
    return [client.submit(len, block(i), pure=False) for i in range(n)]


#: {name: (what the greedy client does, with how many blocks, whether all of it must succeed)}
CASES: Final[dict[str, tuple[Callable[[weft.Client, int], list[Any]], int, bool]]] = {
    "24 held": (hold, 24, True),
    "30 held": (hold, 30, False),
    "100 held": (hold, 100, False),
    "100 gathered": (gather, 100, False),
    "100 scattered": (scatter, 100, False),
    "100 streamed": (stream, 100, True),
    "64 reduced": (reduce, 64, True),
    "100 arguments": (pass_arguments, 100, True),
}


def play(name: str, limit_s: float) -> bool:
    """Play one case, print its row, and return whether it ended well."""
    make, n, must_succeed = CASES[name]
    with (
        tempfile.TemporaryDirectory() as folder,
        weft.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=400 * MB, processes=True
        ) as cluster,
        weft.Client(cluster) as neighbour,
        weft.Client(cluster) as greedy,
    ):
        neighbour.wait_for_workers(2)
        small = neighbour.map(note, [folder] * N_SMALL, range(N_SMALL), pure=False)
        actor = neighbour.submit(Count, actor=True).result(limit_s)
        weft.wait(small, timeout=limit_s)
        began = time.monotonic()
        futures = make(greedy, n)
        slowest_s = 0.0
        while time.monotonic() - began < limit_s and not all(f.done() for f in futures):
            asked = time.monotonic()
            neighbour.submit(abs, -1, pure=False).result(limit_s)
            slowest_s = max(slowest_s, time.monotonic() - asked)
        took_s = time.monotonic() - began
        ends = Counter(_end(future) for future in futures)
        try:
            lives = bool(actor.add().result(limit_s))
        except weft.errors.ActorLost:
            lives = False
        right = neighbour.gather(small, timeout=limit_s) == [*range(N_SMALL)]
        n_computed = len(os.listdir(folder))
        n_killed = sum(event["event"] == "worker-lost" for _, event in events(neighbour))
    ended = ", ".join(f"{number} {end}" for end, number in sorted(ends.items()))
    print(
        f"| {name} | {took_s:.1f} | {ended} | {n_killed} | {n_computed} | "
        f"{'lives' if lives else 'lost'} | {slowest_s:.2f} |",
        flush=True,
    )
    is_kind = right and lives and n_computed <= MAX_COMPUTED and n_killed <= MAX_KILLED
    is_over = "pending" not in ends and (not must_succeed or set(ends) == {"finished"})
    return is_kind and is_over


def events(client: weft.Client) -> list[Any]:
    """Return the events of the scheduler."""
    return list(client.get_events("scheduler"))


def _end(future: Any) -> str:
    if future.status != "error":
        return str(future.status)
    return type(future.exception()).__name__


def main(arguments: list[str] | None = None) -> int:
    """Play the cases that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_memory", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each case")
    options = parser.parse_args(arguments)
    print(machine.headline("full memory", machine.describe(ROOT), Weft.version()))
    print("| case | s | ended | killed | neighbour's 50 ran | its actor | its slowest call, s |")
    print("|:--|--:|:--|--:|--:|:--|--:|")
    ends = [play(name, options.limit) for name in options.only]
    return 0 if all(ends) else 1


if __name__ == "__main__":
    sys.exit(main())
