"""An executor whose calls run in other processes, or interpreters, as the host of blocks.

Arguments and results are pickled by weft, with cloudpickle where that is needed, and values pass
through the caller. Reports before the end of a block are files in the folder of notes. So where the
processes are on another host there are none: a late block ends early there.

A process that has died is found by its note. Executors break when they lose one, and end the
others; pools of multiprocessing replace it, and its calls never end.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from time import monotonic, sleep
from typing import Any, Final, NoReturn

from ...protocol.errors import WrongExecutor
from ...protocol.host.exits import describe_exit
from ..drivers.executors import MultiprocessingPool, take_back
from .host import BlockHost, BlockLost, Learned
from .packing import dumps_in_band
from .running import early_reports, running_blocks

#: How often it looks whether processes live.
_CHECK_S: Final = 0.5
#: {exit code: how likely it is of a process that the executor itself has ended}
_ENDS_OF_OTHERS: Final = {-signal.SIGKILL: 1, -signal.SIGTERM: 2, 0: 3}
#: Time in which the exit codes of dead processes become known.
_REAP_S: Final = 5.0
#: How often it looks for a code that another thread has read.
_REAP_CHECK_S: Final = 0.005


class ExecutorHost(BlockHost):
    """The processes of an executor; a handle is a future of it."""

    keeps_values = False
    look_s = 0.010

    def __init__(self, executor: Executor) -> None:
        super().__init__(_learned_by(executor))
        self._executor = executor
        #: {pid: process} of all that were seen, where the executor shows them.
        self._processes: dict[int, Any] = {}
        self._checked_s = monotonic()

    def submit(
        self, call: Callable[..., Any], arguments: Sequence[Any], workers: list[str] | None = None
    ) -> Any:
        """See `BlockHost`."""
        packed = pickle.dumps((call, [dumps_in_band(one) for one in arguments]), 5)
        try:
            future = self._executor.submit(_call_there, packed)
        except Exception as exc:  # an executor that takes no more calls may raise anything
            if isinstance(exc, BrokenExecutor):
                self._raise_death(exc)
            raise self._wrong(f"{type(exc).__name__}: {exc}") from exc
        self._note_processes()
        return future

    def when_done(self, handle: Any, call: Callable[[], object] | None = None) -> None:
        """See `BlockHost`."""
        if call is not None:
            handle.add_done_callback(lambda _future: call())

    def result(self, handle: Any) -> Any:
        """See `BlockHost`."""
        try:
            return pickle.loads(handle.result())
        except BrokenExecutor as exc:
            self._raise_death(exc)
        except CancelledError as exc:
            raise self._wrong("it dropped the call") from exc

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """See `BlockHost`."""
        return [self.result(handle) for handle in handles]

    def look(self, blocks: Iterable[int]) -> None:
        """See `BlockHost`."""
        for data in early_reports(self.learned.notes):
            self.learned.on_report(data)
        now = monotonic()
        if now - self._checked_s < _CHECK_S:
            return
        self._checked_s = now
        self._note_processes()
        unfinished = set(blocks)
        for pid, block in running_blocks(self.learned.notes).items():
            process = self._processes.get(pid)
            if block in unfinished and process is not None and not process.is_alive():
                raise BlockLost(block, f"process {pid}", describe_exit(process.exitcode))

    def end(self, handles: Iterable[Any]) -> None:
        """See `BlockHost`: cancel the calls that have not begun."""
        futures: list[Future[Any]] = list(handles)
        take_back(self._executor, futures)

    def _note_processes(self) -> None:
        executor = self._executor
        if isinstance(executor, MultiprocessingPool):
            self._processes |= {one.pid: one for one in executor.pool._pool}
        else:
            with contextlib.suppress(RuntimeError):  # a thread of the executor has changed it
                self._processes |= getattr(executor, "_processes", None) or {}

    def _raise_death(self, broken: BrokenExecutor) -> NoReturn:
        """Blame the process that ended first: the executor ends the others by a signal."""
        codes = exit_codes(self._processes)
        dead = {pid: code for pid, code in codes.items() if code is not None}
        running = running_blocks(self.learned.notes)
        pid = min(
            (pid for pid in dead if pid in running),
            key=lambda pid: _ENDS_OF_OTHERS.get(dead[pid], 0),
            default=None,
        )
        if pid is None:
            raise BlockLost(None, repr(self._executor)) from broken
        raise BlockLost(running[pid], f"process {pid}", describe_exit(dead[pid])) from broken

    def _wrong(self, text: str) -> WrongExecutor:
        return WrongExecutor(f"{self._executor!r} cannot run tasks: {text}")


def exit_codes(processes: dict[int, Any], timeout_s: float = _REAP_S) -> dict[int, int | None]:
    """Return the exit codes of processes that end; None = still running after `timeout_s`.

    A thread of the executor waits for them too. Who loses that race knows a process as neither
    running nor ended until the other thread has noted the code; so a join is not enough.
    """
    deadline_s = monotonic() + timeout_s
    while True:
        codes = {pid: process.exitcode for pid, process in processes.items()}
        if None not in codes.values() or monotonic() > deadline_s:
            return codes
        sleep(_REAP_CHECK_S)


def _call_there(packed: bytes) -> bytes:
    call, arguments = pickle.loads(packed)
    return dumps_in_band(call(*map(pickle.loads, arguments)))


_learned: weakref.WeakKeyDictionary[Executor, Learned] = weakref.WeakKeyDictionary()


def _learned_by(executor: Executor) -> Learned:
    with contextlib.suppress(TypeError):  # it has no hash, or cannot be referred to weakly
        learned = _learned.get(executor)
        if learned is None:
            learned = _learned[executor] = Learned()
        return learned
    return Learned()
