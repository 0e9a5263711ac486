"""Graphs in worker processes for the tests, and the functions of their tasks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, NamedTuple

import weft


def get(dsk: Any, keys: Any, **options: Any) -> Any:
    return weft.multiprocessing.get(dsk, keys, **{"num_workers": 2, **options})


class Pair(NamedTuple):
    left: Any
    right: Any


class Oops(Exception):
    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def inc(x: int) -> int:
    return x + 1


def add(x: Any, y: Any) -> Any:
    return x + y


def same(x: Any) -> Any:
    return x


def pid_of(*_: Any) -> int:
    return os.getpid()


def boom(x: Any) -> Any:
    raise Oops(f"no {x}", code=7)


def wait_for(path: str, result: Any = None) -> Any:
    """Return when there is a file at `path`."""
    while not os.path.exists(path):
        time.sleep(0.002)  # workload
    return result


def touch(path: str, result: Any = None) -> Any:
    with open(path, "x"):
        return result


def exit_now(code: int) -> None:
    os._exit(code)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say_exit() -> None:
    sys.exit("enough")


def close_files() -> None:
    os.closerange(3, 256)


def lock(*_: Any) -> Any:
    return threading.Lock()


def is_free(one: Any, *_: Any) -> bool:
    return not one.locked()


def array(value: float, n_bytes: int) -> Any:
    import numpy as np

    return np.full(n_bytes // 8, value)


def total(*arrays: Any) -> float:
    return float(sum(a[0] + a[-1] for a in arrays))


def say(text: str) -> str:
    sys.stdout.write(f"{text}\n")  # as one piece, where output is not buffered, too
    return text


def nested(x: int) -> Any:
    result = get({"a": (inc, x), "b": (inc, "a")}, "b", num_workers=1)
    weft.multiprocessing.shutdown()
    return result


def surroundings() -> Any:
    return os.getcwd(), os.environ.get("WEFT_TEST"), list(sys.path), hash("weft")


def alive(pid: int) -> bool:
    """Return whether the process lives and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between the two
        return False
