"""A program that keeps a cluster busy with work of all kinds, until it is ended.

Run with the address of the scheduler: functions of different lengths, results that workers fetch
from each other, exceptions with and without retries, and a result that is lost with its worker.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import weft


def load(n: int) -> bytes:
    return bytes(n)


def combine(*parts: bytes) -> int:
    return sum(map(len, parts))


def wait(seconds: float) -> float:
    time.sleep(seconds)  # workload
    return seconds


def stumble(i: int) -> int:
    raise ValueError(f"{i} cannot be done")


def die_once(marker: str) -> int:
    if not os.path.exists(marker):
        with open(marker, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def main(address: str, marker: str) -> None:
    with weft.Client(address) as client:
        kept = client.submit(load, 1000)
        kept.result()
        client.submit(die_once, marker).result()
        unrunnable = client.submit(wait, 0, resources={"GPU": 1})
        print("busy", flush=True)
        turn = 0
        while True:
            turn += 1
            parts = client.map(load, range(100_000 + turn, 100_016 + turn))
            sums = [client.submit(combine, *parts[i::2], pure=False) for i in range(2)]
            waits = client.map(wait, [0.001 * (i % 9) for i in range(64)], pure=False)
            failing = client.map(stumble, range(turn, turn + 4), retries=1)
            weft.wait([*sums, *waits, *failing])
            assert unrunnable.status == "pending"


if __name__ == "__main__":
    main(*sys.argv[1:])
