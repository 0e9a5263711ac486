"""Measures the children of a worker, and ends those that the plan chooses."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from ...protocol.host.memory import taken_nbytes
from .memory_plan import ChildSeen, MemoryPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..data.store import Store
    from .process import IsolatedProcess

logger: Final = logging.getLogger("weft.worker")

#: How often children are measured, seconds: as often as a supervisor measures its workers.
_LOOK_S: Final = 0.1


class ChildrenMemory:
    """The memory of children, which the threads of their slots start and replace.

    Args:
        children: {slot: its child}.
        store: of the worker, with the values in files that children map, too.
    """

    def __init__(self, children: dict[int, IsolatedProcess], store: Store) -> None:
        self._children = children
        self._store = store

    def measure(self) -> tuple[int, list[ChildSeen]]:
        """Return the memory of this process, and of each child that may be ended. Any thread."""
        children = list(self._children.items())
        now = time.monotonic()
        shared = self._store.shared_nbytes
        seen = [
            # Files in memory that a child maps are the worker's, as far as that has any.
            ChildSeen(
                slot,
                child.attempt,
                max(0, taken_nbytes(child.pid, in_files=shared) - shared),
                is_ending=child.is_over,
                idle_s=0.0 if (since := child.idle_since) is None else now - since,
            )
            for slot, child in children
            if child.attempt or not child.is_over
        ]
        return taken_nbytes(in_files=shared), seen

    def nbytes(self) -> int:
        """Return the memory of all children, bytes. For any thread."""
        return sum(child.nbytes for child in self.measure()[1]) if self._children else 0


class MemoryWatcher:
    """The thread that ends children."""

    def __init__(
        self,
        memory: ChildrenMemory,
        children: dict[int, IsolatedProcess],
        plan: MemoryPlan,
        crashed: Callable[[BaseException], object],
    ) -> None:
        """Prepare; `crashed` is called with an error in the thread, which is a bug of weft."""
        self._memory = memory
        self._children = children
        self.plan = plan
        self._crashed = crashed
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="weft-children", daemon=True)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_LOOK_S):
                if self._children:
                    self._look()
        except Exception as bug:
            self._crashed(bug)

    def _look(self) -> None:
        for end in self.plan.choose(*self._memory.measure()):
            child = self._children.get(end.slot)
            if child is None:
                continue
            if end.attempt:
                child.end_call(end)
            else:
                logger.debug("an idle child is ended, since memory is short or others wait as well")
                child.end_idle()
