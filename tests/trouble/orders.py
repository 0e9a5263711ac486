"""Orders of a client that workers leave, and that the cluster has its size again.

A round goes on while they are under way: each is carried out by a thread of its own, whose client
reaches the scheduler without the proxy. What fails because the scheduler is away is not ordered
again, apart from a size.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import weft
from weft.protocol.errors import WeftError

#: Seconds that an order may take; its workers leave all the same.
TIMEOUT_S = 30.0
_Order: TypeAlias = Callable[[weft.Client], dict[str, Any]]


class Orders:
    """Carries out orders one by one, in a thread."""

    def __init__(self, file: Path, say: Callable[[str], None]) -> None:
        self._file = file
        self._say = say
        self._orders: queue.SimpleQueue[tuple[str, _Order] | None] = queue.SimpleQueue()
        #: the workers of the cluster are perhaps fewer than `scale` was to make them
        self.is_small = False
        self._thread = threading.Thread(target=self._run, name="orders")
        self._thread.start()

    def retire(self, n: int, *, drop: bool) -> str:
        """Let so many workers leave, those whose end costs least."""
        text = f"{n} workers{', drop' if drop else ''}"
        self._orders.put(
            (f"retire {text}", lambda c: c.retire_workers(n=n, drop=drop, timeout=TIMEOUT_S))
        )
        return text

    def scale(self, n: int) -> None:
        """Have so many workers: those that have left are not started again."""

        def scale(client: weft.Client) -> dict[str, Any]:
            self.is_small = False
            try:
                return client.scale(n)
            except WeftError:
                self.is_small = True
                raise

        self._orders.put((f"scale to {n} workers", scale))

    def close(self) -> None:
        """Let the orders under way end."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            text, carry_out = order
            try:
                with weft.Client(
                    connection_file=self._file, name="orders", reconnect_timeout=TIMEOUT_S
                ) as client:
                    ends = carry_out(client)
            except (WeftError, TimeoutError) as error:
                self._say(f"{text}: {type(error).__name__}: {error}")
            else:
                rows = [f"{row['name']} {row['end']} {row['reason']}" for row in ends.values()]
                self._say(f"{text}: {'; '.join(rows) or 'none leaves'}")
