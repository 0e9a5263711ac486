"""What a worker does with a block: it runs the tasks, and reports.

A block is one call of its host, whose result is its last report. Values that others need are in
it, or if they are large or cannot be pickled, beside it in a `Kept`, which stays at the worker.

A block that comes late gives back the tasks that it has not begun, and reports what has finished
(`_LateBlocks`). The last report repeats all that: the driver takes what it does not know yet.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import itertools
import mmap
import os
import pickle
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Final, TypeAlias

from ...protocol.errors import SerializationError
from ...protocol.values.exceptions import pack_exception
from ...protocol.values.serialize import loads
from ...protocol.values.sizeof import sizeof
from ...protocol.values.staying import Staying
from . import references
from .packing import LARGE_NBYTES, RESULT, dumps_in_band, has_finalizer

#: (number, group, payload or the call itself, numbers of values to drop, numbers of buffers)
Item: TypeAlias = "tuple[int, int, Any, Sequence[int], Sequence[int]]"

#: How often a worker looks for blocks that are late.
_TICK_S: Final = 0.010
#: How often a worker reports to a run that is watched.
_SHOW_S: Final = 0.020
#: Values of a report before the last are small in sum, since it is an event of a topic.
_EARLY_NBYTES: Final = 32 * 1024
#: Types whose values are known to be small and picklable.
_SIMPLE_TYPES: Final = frozenset({bool, complex, float, int, type(None)})
_SIMPLE_TEXTS: Final = frozenset({bytes, str})
_SIMPLE_TEXT_LENGTH: Final = 256
#: Packed exceptions are named by the driver, which knows the keys.
_UNNAMED: Final = ""
#: The watcher ends after so many ticks without a block: one second.
_MAX_IDLE_TICKS: Final = 100
_NOTHING: Final = (0, 0.0)
_NOTE_NBYTES: Final = 16
#: What a simple value counts in a report before the last.
_SIMPLE_NBYTES: Final = 64
_DROPPED: Final = object()
_WEFT: Final = __name__.partition(".")[0]


@dataclass(slots=True)
class BlockOrder:
    """A block as it is sent."""

    #: Of the run, and of the block in it.
    run: str
    block: int
    #: Where to report before the end; "" = in files beside the notes.
    topic: str
    #: It is late after this time.
    give_back_s: float
    #: {number: hash of the content, and blob}
    functions: dict[int, tuple[bytes, bytes]]
    items: list[Item]
    #: {number: value} of simple values, and {number: pickle} of others.
    values: dict[int, Any] = field(default_factory=dict)
    pickles: dict[int, bytes] = field(default_factory=dict)
    #: {number: index of the input that holds it, which is a `Kept` or the value itself}
    inputs: dict[int, int] = field(default_factory=dict)
    #: Folder of the notes of workers, see `_note_in`; other hosts have no such folder.
    notes: str = ""
    #: Report the progress, and the results of all tasks.
    shows: bool = False
    wants_results: bool = False


@dataclass(slots=True)
class BlockReport:
    """What has become of a block."""

    block: int
    #: Numbers of the tasks that have finished, in order; None = all but those given back.
    finished: list[int] | None = None
    #: {number: value} of those that others need and that are simple, and {number: pickle}.
    values: dict[int, Any] = field(default_factory=dict)
    pickles: dict[int, bytes] = field(default_factory=dict)
    #: {number: bytes} of those whose value is in the `Kept`.
    kept: dict[int, int] = field(default_factory=dict)
    #: Those among them that cannot be pickled.
    pinned: list[int] = field(default_factory=list)
    #: All tasks but so many were given back; None = none was.
    n_kept: int | None = None
    #: {group: (tasks, seconds)}
    durations: dict[int, tuple[int, float]] = field(default_factory=dict)
    #: {number: type, path and text of what cannot be pickled} of those in `pinned`.
    reasons: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    #: Number of the task that failed, and its exception.
    failed: tuple[int, Any] | None = None
    #: Number of the task that runs.
    current: int = -1
    worker: str = ""
    pid: int = 0
    is_last: bool = True


class Kept(Staying):
    """The result of a block with values that stay at the worker."""

    __slots__ = ("is_copy", "report", "values")

    def __init__(
        self, report: BlockReport, values: dict[int, Any], *, is_copy: bool = False
    ) -> None:
        self.report = report
        self.values = values
        self.is_copy = is_copy

    @property
    def must_stay(self) -> bool:
        """See `Staying`: some values cannot be pickled, and some end with the object."""
        if self.is_copy:
            return False
        return bool(self.report.pinned) or any(map(has_finalizer, self.values.values()))

    def __reduce__(self) -> tuple[Any, ...]:
        pinned = self.report.pinned
        values = {number: one for number, one in self.values.items() if number not in pinned}
        return _copy_of_kept, (self.report, values)


def _copy_of_kept(report: BlockReport, values: dict[int, Any]) -> Kept:
    return Kept(report, values, is_copy=True)


def report_of(result: Any) -> BlockReport:
    """Return the report alone: a task of its own, at the worker that has the values."""
    report: BlockReport = result.report if result.__class__ is Kept else result
    return report


def value_of(kept: Kept, number: int) -> Any:
    """Return one of the values: a task of its own, for one that is requested."""
    return kept.values[number]


class _RunningBlock:
    """A block under way."""

    def __init__(self, order: BlockOrder) -> None:
        self.order = order
        self.late_s = monotonic() + order.give_back_s
        self.items = deque(order.items)
        self.n_kept: int | None = None
        self.values: dict[int, Any] = {}
        self.finished: list[int] = []
        #: Number of the task that runs, or of the value that is unpacked.
        self.current = -1
        #: {number: pickle} of all tasks, if all results are wanted.
        self.pickles: dict[int, bytes] = {}
        #: Held while one thread reports.
        self.lock = threading.Lock()
        self.tell: Callable[[bytes], object] | None = None

    def give_back(self) -> None:
        """Give back what has not begun. Called by another thread than that which runs it."""
        n_back = 0
        # The last report is made under the lock, after this: it must not miss `n_kept`.
        with self.lock:
            # A block that has not begun keeps a task: or it might come back whole, again and again.
            least = 0 if self.current >= 0 else 1
            with contextlib.suppress(IndexError):  # the other thread has taken the last one
                while len(self.items) > least:
                    self.items.pop()
                    n_back += 1
            if n_back:
                n_before = len(self.order.items) if self.n_kept is None else self.n_kept
                self.n_kept = n_before - n_back
            tell = self.tell
            if tell is None:
                return
            report = BlockReport(self.order.block, n_kept=self.n_kept, is_last=False)
            report.current, report.pid = self.current, os.getpid()
            report.finished = []
            left = _EARLY_NBYTES
            for number in self.finished.copy():
                value = self.values.get(number, _DROPPED)
                packed: bytes | None = self.pickles.get(number)
                if packed is not None:
                    packed = packed if len(packed) <= left else None
                elif value is _DROPPED or _is_simple(value):
                    packed = b""
                else:
                    packed = _early(value, left)
                if packed is None or left < 0:
                    if not self.order.shows:
                        continue  # the last report has it
                    report.current = -1  # tasks are shown in their order
                    break
                report.finished.append(number)
                left -= len(packed)
                if packed:
                    report.pickles[number] = packed
                elif value is not _DROPPED:
                    report.values[number] = value
                    left -= _SIMPLE_NBYTES
            tell(pickle.dumps((self.order.run, report), 5))


def run_block(blob: bytes, *inputs: Any) -> Any:
    """Run a block: the function of the cluster's task."""
    order: BlockOrder = loads(blob)
    running = _RunningBlock(order)
    values = running.values
    report = BlockReport(order.block, pid=os.getpid())
    report.worker = _context().name if order.topic else ""
    tables = references.Tables()
    tables.values = values
    for number, (ident, function) in order.functions.items():
        tables.blobs[number] = partial(_function, ident, function)
    references.current.tables = tables
    for number, place in order.inputs.items():
        one = inputs[place]
        values[number] = one.values[number] if one.__class__ is Kept else one
    is_watched = order.shows or len(order.items) > 1
    if is_watched:
        running.tell = _teller(order)
        _watcher.watch(running)
    try:
        values.update(order.values)
        for running.current, packed in order.pickles.items():
            values[running.current] = loads(packed)
        running.current = -1
        _run_items(running, tables, report)
    except BaseException as exc:
        report.failed = running.current, pack_exception(exc, _UNNAMED, _UNNAMED)
    finally:
        if is_watched:
            _watcher.forget(running)
        del references.current.tables  # or the last values would stay until the next block
    with running.lock:  # whoever reports early has done so
        running.tell = None
    _flush_output()
    if report.failed is not None:
        report.finished = running.finished
        _tell_failure(order, report)
    report.n_kept = running.n_kept
    return _with_values(running, report)


def _tell_failure(order: BlockOrder, report: BlockReport) -> None:
    """Report a failure at once: the last report may need a thread where all are busy."""
    early = BlockReport(order.block, [], failed=report.failed, is_last=False)
    early.pid = report.pid
    early.current = report.failed[0] if report.failed is not None else -1
    with contextlib.suppress(Exception):  # the last report says it again
        tell = _teller(order)
        if tell is not None:
            tell(pickle.dumps((order.run, early), 5))


def _run_items(running: _RunningBlock, tables: references.Tables, report: BlockReport) -> None:
    """Run the tasks. Most of the cost of small ones is in this loop."""
    values, functions, take = running.values, tables.functions, running.items.popleft
    finished, durations = running.finished, report.durations
    note = _note_in(running.order.notes)
    note[0] = running.order.block
    wants_results = running.order.wants_results
    began_s = perf_counter()
    while running.items:
        try:
            number, group, payload, drops, buffers = take()
        except IndexError:  # the last ones were given back just now
            return
        running.current = note[1] = number
        call: Any = (
            payload
            if payload.__class__ is tuple
            else pickle.loads(payload, buffers=[values[buffer] for buffer in buffers])
            if buffers
            else pickle.loads(payload)
        )
        func, args = call[0], call[1]
        if len(call) == 3:
            for i, ref in call[2]:
                args[i] = values[ref]
        elif len(call) == 4:
            references.fill(args, call[2], call[3], values)
        if func.__class__ is int:
            func = functions[func] if func in functions else tables.function(func)
        value = values[number] = func(*args)
        if wants_results:
            with contextlib.suppress(SerializationError):
                running.pickles[number] = dumps_in_band(value)
        finished.append(number)
        # Otherwise they would stay alive during the next call.
        call = func = args = value = None
        for other in drops:
            values.pop(other, None)
        now_s = perf_counter()
        n_tasks, seconds = durations.get(group, _NOTHING)
        durations[group] = n_tasks + 1, seconds + now_s - began_s
        began_s = now_s


def _with_values(running: _RunningBlock, report: BlockReport) -> Any:
    """Return the report of a block with the values that others need."""
    kept: dict[int, Any] = {}
    simple = report.values
    report.pickles = running.pickles
    get = running.values.get
    for number in running.finished:
        value = get(number, _DROPPED)
        cls = value.__class__
        if cls in _SIMPLE_TYPES or (cls in _SIMPLE_TEXTS and len(value) < _SIMPLE_TEXT_LENGTH):
            simple[number] = value
            continue
        if value is _DROPPED:
            continue
        try:
            packed = _packed_if_small(value, LARGE_NBYTES)
        except SerializationError as exc:
            report.pinned.append(number)
            report.reasons[number] = exc.type_name, exc.where.removeprefix(RESULT), exc.text
            packed = None
        except BaseException as exc:  # the user's code
            report.failed = number, pack_exception(exc, _UNNAMED, _UNNAMED)
            report.finished = running.finished
            return report
        if packed is None or has_finalizer(value):
            kept[number] = value
            report.kept[number] = int(sizeof(value))
        else:
            report.pickles[number] = packed
    if kept and not running.order.topic:  # nobody keeps the result of the call
        _kept_here.hold(running.order.run, [one for one in kept.values() if has_finalizer(one)])
    return Kept(report, kept) if kept else report


class _KeptHere:
    """What must not be finalized before a run is over, as far as this process can know that."""

    def __init__(self) -> None:
        self._run = ""
        self._values: list[Any] = []
        self._is_registered = False

    def hold(self, run: str, values: list[Any]) -> None:
        """Hold values of a run, until there is another one, or the process ends."""
        if run != self._run:
            self._run, self._values = run, []
        self._values += values
        if values and not self._is_registered:
            self._is_registered = True
            util = sys.modules.get("multiprocessing.util")
            if util is None:
                atexit.register(self._let_go)
            else:  # whose processes end without more ado
                util.Finalize(None, self._let_go, exitpriority=0)

    def _let_go(self) -> None:
        self._values = []


_kept_here = _KeptHere()


def _is_simple(value: Any) -> bool:
    """Return whether a value is small and certainly can be pickled."""
    cls = value.__class__
    return cls in _SIMPLE_TYPES or (cls in _SIMPLE_TEXTS and len(value) < _SIMPLE_TEXT_LENGTH)


def _early(value: Any, most: int) -> bytes | None:
    """Return the pickle of a value before the end; None = it must stay, or cannot be pickled."""
    try:
        return None if has_finalizer(value) else _packed_if_small(value, most)
    except BaseException:  # the last report says why
        return None


def _packed_if_small(value: Any, most: int) -> bytes | None:
    """Return the pickle of a value; None = it is large. Raises SerializationError."""
    if sizeof(value) > most:
        return None
    packed = dumps_in_band(value)
    return packed if len(packed) <= most else None


def _flush_output() -> None:
    """Flush the output of tasks, if stdout and stderr still exist."""
    for stream in (sys.stdout, sys.stderr):
        # None: there is none. ValueError: a task has closed it. OSError: its reader has ended.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


# --- Functions ------------------------------------------------------------------------------------

#: {hash of its content: function}, of all runs; the oldest make room.
_functions: dict[bytes, Callable[..., Any]] = {}
_MAX_FUNCTIONS: Final = 1000


def _function(ident: bytes, blob: bytes) -> Callable[..., Any]:
    func: Callable[..., Any] | None = _functions.get(ident)
    if func is None:
        func = loads(blob)
        assert func is not None
        if len(_functions) >= _MAX_FUNCTIONS:
            del _functions[next(iter(_functions))]
        _functions[ident] = func
    return func


# --- The task that runs ---------------------------------------------------------------------------

#: {folder: the note of this process in it}, of the last ones.
_notes: dict[str, Any] = {}
_MAX_NOTES: Final = 16


def _note_in(folder: str) -> Any:
    """Return two numbers that outlive this process: of the block and of the task that it runs.

    They are in a file of this host. A client of another host has made no such folder.
    """
    note = _notes.get(folder)
    if note is not None:
        return note
    note = [0, 0]
    if folder:
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(folder, str(os.getpid())), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.ftruncate(fd, _NOTE_NBYTES)
                note = memoryview(mmap.mmap(fd, _NOTE_NBYTES)).cast("q")
            finally:
                os.close(fd)
    if len(_notes) >= _MAX_NOTES:
        _notes.pop(next(iter(_notes)), None)
    _notes[folder] = note
    return note


def running_tasks(folder: str) -> dict[int, int]:
    """Return {block: task that runs, or was running when its worker died}, by the notes."""
    return {block: number for _, block, number in _read_notes(folder)}


def running_blocks(folder: str) -> dict[int, int]:
    """Return {pid: the last block that it has begun}, by the notes."""
    return {pid: block for pid, block, _ in _read_notes(folder)}


def _read_notes(folder: str) -> Iterator[tuple[int, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.isdigit():
                with open(entry.path, "rb") as file:
                    note = file.read(_NOTE_NBYTES).ljust(_NOTE_NBYTES)
                yield int(entry.name), *struct.unpack("=qq", note)


def early_reports(folder: str) -> Iterator[bytes]:
    """Yield the reports that blocks have written before their ends, and remove them."""
    with os.scandir(folder) as entries:
        paths = [entry.path for entry in entries if entry.name.startswith(_REPORT)]
    for path in sorted(paths):
        with open(path, "rb") as file:
            data = file.read()
        os.unlink(path)
        yield data


# --- Late blocks ----------------------------------------------------------------------------------


def _context() -> Any:
    """Return the context of the worker: its package is above this one, and loaded here."""
    return sys.modules[f"{_WEFT}.worker.context"].get_worker()


def _teller(order: BlockOrder) -> Callable[[bytes], object] | None:
    """Return a function that reports before the end of a block; None = none can."""
    topic, folder = order.topic, order.notes
    if topic:
        host = _context().host
        module = f"{_WEFT}.client.in_tasks"
        return lambda data: importlib.import_module(module).task_client(host).log_event(topic, data)
    if not os.path.isdir(folder):
        return None

    def write(data: bytes) -> None:
        name = f"{os.getpid()}-{next(_report_numbers):010}"
        path = os.path.join(folder, f".{name}")
        with contextlib.suppress(OSError):  # the run is over
            with open(path, "xb") as file:
                file.write(data)
            os.rename(path, os.path.join(folder, f"{_REPORT}{name}"))  # complete when it is seen

    return write


_report_numbers = itertools.count()
#: How the names of files with reports begin.
_REPORT: Final = "report-"


class _LateBlocks:
    """The thread that looks for blocks that are late, as long as there are any."""

    def __init__(self) -> None:
        self._blocks: set[_RunningBlock] = set()
        self._lock = threading.Lock()
        self._is_looking = False

    def watch(self, running: _RunningBlock) -> None:
        with self._lock:
            self._blocks.add(running)
            if self._is_looking:
                return
            self._is_looking = True
        thread = threading.Thread(target=self._look, name="weft-blocks", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # interpreters but the main one have no daemons
            self._is_looking = False

    def forget(self, running: _RunningBlock) -> None:
        self._blocks.discard(running)

    def _look(self) -> None:
        n_idle = 0
        running: _RunningBlock | None
        while True:
            time.sleep(_TICK_S)
            now = monotonic()
            with self._lock:
                n_idle = 0 if self._blocks else n_idle + 1
                if n_idle > _MAX_IDLE_TICKS:
                    self._is_looking = False
                    return
                blocks = list(self._blocks)
            for running in blocks:
                if now >= running.late_s:
                    if running.order.shows:
                        running.late_s = now + _SHOW_S
                    else:
                        self._blocks.discard(running)
                    running.give_back()
            running = None  # nor may this thread keep the values of the last one
            blocks.clear()


_watcher = _LateBlocks()
