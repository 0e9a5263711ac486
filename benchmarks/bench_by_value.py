"""The cost of `submit` for its caller when a function of a script is called or is in an argument.

    python -m benchmarks.bench_by_value --calls 1000 --repeat 5

Microseconds of CPU time of the calling thread for one `submit`; the kinds take turns, and the least
of each is shown. The rows of `cloudpickle` are that library's time for the same argument alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cloudpickle

import weft

OFFSET = 3


def helper(x: int) -> int:
    """Read a variable of this script."""
    return x + OFFSET


def double(x: int) -> int:
    """Call another function of this script."""
    return 2 * helper(x)


class Call:
    """A class of this script that holds a function, as batches of calls do."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.args = args


def run_call(call: Any) -> Any:
    """Run the function inside the argument."""
    return call.function(*call.args)


def imported(i: int) -> Any:
    """Return an object of an importable class that holds a function of this script."""
    return SimpleNamespace(function=double, args=(i,))


def own(i: int) -> Any:
    """Return an object of a class of this script that holds such a function."""
    return Call(double, i)


def run(client: weft.Client, calls: int, repeat: int) -> dict[str, float]:
    """Return the least microseconds for one call, by kind."""
    kinds: dict[str, Callable[[int], object]] = {
        "plain function": lambda i: client.submit(double, i, pure=False),
        "in an object": lambda i: client.submit(run_call, imported(i), pure=False),
        "in an object of an own class": lambda i: client.submit(run_call, own(i), pure=False),
        "in an object, cloudpickle": lambda i: cloudpickle.dumps(imported(i)),
        "in an own class, cloudpickle": lambda i: cloudpickle.dumps(own(i)),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeat):
        for kind, one in kinds.items():
            begin = time.thread_time()
            made = [one(i) for i in range(calls)]
            taken[kind].append((time.thread_time() - begin) / calls * 1e6)
            if isinstance(made[0], weft.Future):
                assert client.gather(made[-1]) == double(calls - 1)
    return {kind: min(times) for kind, times in taken.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_by_value")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    with weft.Client(n_workers=1) as client:
        for kind, microseconds in run(client, given.calls, given.repeat).items():
            print(f"{kind:32}{microseconds:8.1f} us")


if __name__ == "__main__":
    main()
