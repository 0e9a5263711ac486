"""An actor that counts, and a task that calls it."""

from __future__ import annotations

import os
import threading

from weft import Actor


class Counter:
    """Counts, and remembers in which thread it was made."""

    def __init__(self, n: int = 0) -> None:
        if n < 0:
            raise ValueError("a count is not negative")
        self.n = n
        self.thread = threading.get_ident()

    def add(self, k: int = 1) -> int:
        self.n += k
        return self.n

    def boom(self) -> None:
        raise KeyError("no such thing")

    def is_same_thread(self) -> bool:
        return self.thread == threading.get_ident()

    def die(self) -> None:
        os._exit(1)

    def lock(self) -> object:
        return threading.Lock()


def add_in_task(counter: Actor, k: int) -> int:
    return counter.add(k).result()
