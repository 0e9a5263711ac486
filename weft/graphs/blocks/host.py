"""The interface of what runs blocks, a cluster or an executor, and what its runs share."""

from __future__ import annotations

import abc
import itertools
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any


class Learned:
    """The experience of the runs on one host, and the way of early reports to each of them.

    Attributes:
        runs: {name of a run: the queue of its events}
        numbers: of the blocks of all runs.
        functions: {hash of a function: seconds per task, and whether values stay at workers}, of
            the last ones.
        notes: folder where workers of this host note which task they run.
        topic: where blocks report before their end; "" = in files of that folder.
    """

    def __init__(self, topic: str = "") -> None:
        self.topic = topic
        self.runs: dict[str, SimpleQueue[Any]] = {}
        self.numbers = itertools.count()
        self.functions: dict[Hashable, tuple[float, bool]] = {}
        self.notes = tempfile.mkdtemp(prefix="weft-blocks-")
        weakref.finalize(self, shutil.rmtree, self.notes, ignore_errors=True)

    def on_report(self, data: bytes) -> None:
        """Queue a report that came before the end, if its run goes on."""
        name, report = pickle.loads(data)
        queue = self.runs.get(name)
        if queue is not None:
            queue.put(report)


class BlockLost(Exception):
    """The process that ran a block has ended.

    Args:
        block: its number; None = unknown.
        worker: who that was.
        reason: how it ended.
    """

    def __init__(self, block: int | None, worker: str, reason: str = "") -> None:
        super().__init__(block, worker, reason)
        self.block = block
        self.worker = worker
        self.reason = reason


class BlockHost(abc.ABC):
    """Runs blocks for one run of a graph. A *handle* stands for the result of a call there.

    Args:
        learned: by the runs before.
    """

    #: Large values stay where they were computed, and handles may be arguments. Otherwise they come
    #: with the report of their block.
    keeps_values: bool
    #: How long the driver waits for events before it calls `look`, in seconds.
    look_s: float

    def __init__(self, learned: Learned) -> None:
        self.learned = learned

    @abc.abstractmethod
    def submit(
        self, call: Callable[..., Any], arguments: Sequence[Any], workers: list[str] | None = None
    ) -> Any:
        """Have a call made there; return its handle.

        Args:
            call: a function of weft.
            arguments: values, or handles if it keeps values.
            workers: names of those that may make it; None = all.

        Raises:
            BlockLost: see there.
            WrongExecutor: nothing can be run there.
        """

    @abc.abstractmethod
    def when_done(self, handle: Any, call: Callable[[], object] | None = None) -> None:
        """Have a result fetched, and call a function, in any thread, when it is here."""

    @abc.abstractmethod
    def result(self, handle: Any) -> Any:
        """Return a result that is here. Raises BlockLost, WorkerDied, or what the call raised."""

    @abc.abstractmethod
    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """Wait for results, and return them."""

    @abc.abstractmethod
    def look(self, blocks: Iterable[int]) -> None:
        """Look for what is not reported.

        Args:
            blocks: numbers of those that have not made their last report.

        Raises:
            BlockLost: see there.
            WeftError: nothing will come any more.
        """

    @abc.abstractmethod
    def end(self, handles: Iterable[Any]) -> None:
        """Let go of calls whose results are not needed any more."""
