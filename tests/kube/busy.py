"""A client that maps without a pause, and checks every result: `python -m tests.kube.busy FOLDER`.

It keeps two rounds of calls pending and prints a line for each one that was right. When the file
`stop` is in FOLDER it waits for what is pending, prints a summary, and ends with 0. A result that
is wrong, or that does not come within the limit, ends it with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import weft

ROUND = 120
GROUP = 12
#: Seconds until a call that was submitted counts as lost; a restart of a pod takes 10.
LIMIT_S = 180.0


def square(x: int) -> int:
    """Take 20 ms."""
    time.sleep(0.02)  # workload
    return x * x


def total(*parts: int) -> int:
    """Add results that may be on several workers."""
    return sum(parts)


def submit(client: weft.Client, number: int) -> tuple[list[weft.Future], list[weft.Future]]:
    """Submit a round: calls, and sums of groups of them."""
    first = number * ROUND
    squares = client.map(square, range(first, first + ROUND), pure=False)
    groups = [squares[i : i + GROUP] for i in range(0, ROUND, GROUP)]
    return squares, [client.submit(total, *group, pure=False) for group in groups]


def check(client: weft.Client, number: int, futures: tuple[list[weft.Future], ...]) -> None:
    """Raise if a result of a round is wrong or does not come."""
    squares, sums = (client.gather(part, timeout=LIMIT_S) for part in futures)
    expected = [x * x for x in range(number * ROUND, (number + 1) * ROUND)]
    if squares != expected:
        raise AssertionError(f"round {number}: wrong results: {squares}")
    if sums != [sum(expected[i : i + GROUP]) for i in range(0, ROUND, GROUP)]:
        raise AssertionError(f"round {number}: wrong sums: {sums}")


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with weft.Client() as client:
        print("connected", flush=True)
        number, pending = 0, submit(client, 0)
        while not (folder / "stop").exists():
            following = submit(client, number + 1)
            check(client, number, pending)
            print(f"round {number}", flush=True)
            number, pending = number + 1, following
        check(client, number, pending)
        n_results = (number + 1) * (ROUND + ROUND // GROUP)
        print(f"all {n_results} results were right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
