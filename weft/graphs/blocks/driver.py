"""One graph, run in blocks by a cluster or by an executor.

It turns the decisions of `core.state` into calls on a host, and their results into its events. The
calling thread does everything; the host's threads only queue what has come.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
from collections.abc import Hashable
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn

from ...protocol.errors import UnpicklableResult, WorkerDied, WrongExecutor
from ...protocol.host.collector import paused_collector, resumed_collector
from ...protocol.values.exceptions import name_packed, set_field, unpack_exception
from ...protocol.values.serialize import loads
from ..core.reading import Graph
from ..drivers.failing import call_again
from ..drivers.observing import ELSEWHERE, Observer
from .core.state import BlockRun
from .core.tasks import Block, BlockTask
from .encoding import Encoded, Unpacked
from .host import BlockHost, BlockLost
from .running import (
    BlockOrder,
    BlockReport,
    Kept,
    report_of,
    run_block,
    running_tasks,
    value_of,
)

#: A block that lasts longer gives back what it has not begun, if that is also longer than estimated
#: by the factor.
_GIVE_BACK_S: Final = 0.020
_LATE_FACTOR: Final = 1.5
#: Collections go on when it waits for longer than this.
_SOON_S: Final = 0.05

#: Functions whose durations are kept.
_MAX_LEARNED: Final = 10_000

_run_numbers = itertools.count()
_NO_VALUES: Final[dict[int, Any]] = {}


def run_in_blocks(
    host: BlockHost,
    graph: Graph,
    n_slots: int,
    *,
    chunksize: int | None = None,
    rerun_exceptions_locally: bool = False,
    observer: Observer | None = None,
) -> Any:
    """Run a graph in blocks and return its results.

    Args:
        host: runs them.
        graph: of `BlockTask`s; used up by this.
        n_slots: how many blocks may run at once.
        chunksize: tasks of a block; None = by their duration, -1 = all ready ones, spread evenly.
        rerun_exceptions_locally: repeat a call that failed in this thread.
        observer: notified of each task, and of each result if it wants results.

    Raises:
        SerializationError: a task cannot be pickled; nothing was run.
        UnpicklableResult: a result that is needed elsewhere cannot be pickled.
        WorkerDied: a worker ended while it ran a task.
        WrongExecutor: the host takes no calls, or dropped those it had.
        BaseException: the exception of the first task that failed. Tasks that run go on, and their
            results are dropped; no other starts.
    """
    if not graph.n_tasks:
        return graph.results()
    error: BaseException | None = None
    # In one piece: a collection between two pauses would visit all tasks.
    with paused_collector():
        try:
            encoded = Encoded(graph)
            run = _BlocksRun(host, encoded, n_slots, chunksize, observer)
            run.rerun_exceptions_locally = rerun_exceptions_locally
            run.go()
        except BaseException as exc:
            graph.unlink()
            error = exc
    if error is not None:
        try:
            raise error  # not in the block, whose end would write to it: its class may forbid that
        finally:
            del error
    return graph.results()


class _KeptValue:
    """A value that is in the result of a block."""

    __slots__ = ("handle", "number", "report")

    def __init__(self, handle: Any, number: int, report: BlockReport) -> None:
        self.handle = handle
        self.number = number
        self.report = report


class _Pickled:
    """A value that is not simple."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def _finished(block: Block, report: BlockReport) -> list[int]:
    """Return the tasks that a report says to have finished and that were not known to have."""
    if report.finished is not None:
        return [number for number in report.finished if number in block.tasks]
    finished = list(block.tasks)
    if report.n_kept is not None and report.n_kept < block.n_tasks:
        del finished[report.n_kept - block.n_tasks :]
    return finished


class _BlocksRun:
    """A graph under way."""

    rerun_exceptions_locally = False

    def __init__(
        self,
        host: BlockHost,
        encoded: Encoded,
        n_slots: int,
        chunksize: int | None,
        observer: Observer | None,
    ) -> None:
        self._name = f"{os.getpid()}-{next(_run_numbers)}"
        self._host = host
        self._encoded = encoded
        self._tasks: list[Any] = [*encoded.tasks]
        self._observer = observer
        self._learned = host.learned
        #: {group: what it is called in `_learned`}
        self._names: dict[int, Hashable] = {**encoded.function_ids}
        self._names |= {group: label for label, group in encoded.labels.items()}
        seconds = {
            group: known[0]
            for group, name in self._names.items()
            if (known := self._learned.functions.get(name)) is not None
        }
        self._state = BlockRun(
            self._tasks,
            encoded.ready,
            encoded.n_groups,
            n_slots,
            chunksize,
            seconds,
        )
        self._functions = {
            number: (encoded.function_ids[number], blob)
            for number, blob in encoded.functions.items()
        }
        #: {number of a block: it, and the handle of its result}
        self._blocks: dict[int, tuple[Block, Any]] = {}
        #: Groups of tasks whose values stay at their workers.
        self._large = {
            group
            for group, name in self._names.items()
            if self._learned.functions.get(name, (0.0, False))[1]
        }
        #: Numbers of tasks that were shown to begin.
        self._begun: set[int] = set()
        self._outputs = {task.number for task in self._tasks if task.is_output}
        #: {task: handle of its value, or of the block whose result has it}
        self._fetched: dict[BlockTask, Any] = {}
        #: These handles, each once, in their order.
        self._wanted: dict[Any, None] = {}
        #: (number of a block, the handle of its report), or a report before the last.
        self._events: SimpleQueue[Any] = SimpleQueue()

    def go(self) -> None:
        """Run all tasks; then the outputs have their values."""
        state = self._state
        learned = self._learned
        learned.runs[self._name] = self._events
        try:
            while state.n_unfinished:
                while (block := state.next_block()) is not None:
                    self._submit(block)
                if state.torn:
                    self._refuse_torn(state.torn[0])
                self._handle_events()
        except BlockLost as lost:
            self._raise_lost(lost)
        finally:
            del learned.runs[self._name]
            self._host.end([handle for _, handle in self._blocks.values()])
            self._blocks.clear()
        for group, name in self._names.items():
            known_s = state.durations_s[group]
            if known_s is not None:
                learned.functions.pop(name, None)  # to the end
                learned.functions[name] = known_s, group in self._large
        while len(learned.functions) > _MAX_LEARNED:
            del learned.functions[next(iter(learned.functions))]
        self._fetch()

    def _fetch(self) -> None:
        """Wait for the large outputs, and store them."""
        handles = [*self._wanted]
        found = dict(zip(handles, self._host.gather(handles), strict=True))
        for task, handle in self._fetched.items():
            value = found[handle]
            task.value = value.values[task.number] if value.__class__ is Kept else value

    # --- To workers -------------------------------------------------------------------------------

    def _submit(self, block: Block) -> None:
        tasks = block.tasks.values()
        items = [(t.number, t.group, t.payload, t.drops, t.buffers) for t in tasks]
        values: dict[int, Any] = {}
        pickles: dict[int, bytes] = {}
        inputs: dict[int, int] = {}
        arguments: list[Any] = []
        places: dict[int, int] = {}
        for task in block.imports:
            exported = task.exported
            if exported.__class__ is _KeptValue:
                argument = exported.handle
            elif exported.__class__ is Unpacked:
                argument = exported.value
            elif exported.__class__ is _Pickled:
                pickles[task.number] = exported.data
                continue
            else:
                values[task.number] = exported
                continue
            place = places.get(id(argument))
            if place is None:
                place = places[id(argument)] = len(arguments)
                arguments.append(argument)
            inputs[task.number] = place
        needed = {task.group for task in tasks}
        inner = self._encoded.inner_functions
        if inner:
            for task in tasks:
                needed.update(inner.get(task.number, ()))
        functions = {n: self._functions[n] for n in needed if n in self._functions}
        number = next(self._learned.numbers)
        late_s = max(_GIVE_BACK_S, _LATE_FACTOR * block.load_s)
        order = BlockOrder(self._name, number, self._learned.topic, late_s, functions, items)
        order.values, order.pickles, order.inputs = values, pickles, inputs
        order.notes = self._learned.notes
        if self._observer is not None:
            order.shows = True
            order.wants_results = self._observer.wants_results
        workers = None if block.place is None else [block.place]
        submit = self._host.submit
        blob = pickle.dumps(order, 5)
        handle = submit(run_block, [blob, *arguments], workers)
        report = handle
        if not self._large.isdisjoint(needed) and not all(map(self._is_to_come, tasks)):
            report = submit(report_of, [handle], workers)
        self._blocks[number] = block, handle
        self._host.when_done(report, lambda: self._events.put((number, report)))

    def _is_to_come(self, task: BlockTask) -> bool:
        """Return whether a value comes with its block: it is small, or only the caller gets it."""
        if not self._host.keeps_values:
            return True
        return task.group not in self._large or (bool(task.is_output) and not task.dependents)

    # --- From workers -----------------------------------------------------------------------------

    def _handle_events(self) -> None:
        event: Any = None
        with contextlib.suppress(Empty):
            event = self._events.get(timeout=min(_SOON_S, self._host.look_s))
        while event is None:
            self._host.look(self._blocks)
            with contextlib.suppress(Empty), resumed_collector():
                event = self._events.get(timeout=self._host.look_s)
        while event is not None:
            if event.__class__ is tuple:
                self._on_result(*event)
            elif event.block in self._blocks:
                self._on_report(self._blocks[event.block][0], event, None)
            try:
                event = self._events.get_nowait()
            except Empty:
                event = None

    def _on_result(self, number: int, done: Any) -> None:
        block, handle = self._blocks[number]
        try:
            result = self._host.result(done)
        except WorkerDied as error:
            self._raise_death(number, block, error)
        del self._blocks[number]
        values = result.values if result.__class__ is Kept else _NO_VALUES
        self._on_report(block, report_of(result), handle, values)

    def _on_report(
        self,
        block: Block,
        report: BlockReport,
        handle: Any,
        large: dict[int, Any] = _NO_VALUES,
    ) -> None:
        finished = _finished(block, report)
        exported: dict[int, Any] = report.values
        places: dict[int, str] = {}
        tasks, outputs = self._tasks, self._outputs
        sent = block.tasks
        for number in exported.keys() & outputs:
            tasks[number].value = exported[number]
        if report.pickles or report.kept:
            # The report is a part of the handle's result, and must not refer to the handle.
            exported = exported.copy()
        if report.pickles:
            for number, data in report.pickles.items():
                if number not in sent:
                    continue
                exported[number] = _Pickled(data)
                if number in outputs:
                    tasks[number].value = loads(data)
        # Then they come with the block's result, without a task for each.
        has_outputs_only = report.kept.keys() - report.pinned <= outputs
        for number in report.kept:
            if number not in sent:
                continue
            task = tasks[number]
            self._large.add(task.group)
            if number in large and not self._host.keeps_values:
                exported[number] = Unpacked(large[number])
            else:
                exported[number] = _KeptValue(handle, number, report)
            if number in report.pinned:
                if not self._host.keeps_values:  # who needs it may come to run elsewhere
                    self._refuse_unpicklable(task, report)
                places[number] = report.worker
                if number in outputs:
                    self._refuse_unpicklable(task, report)
            elif number not in outputs:
                continue
            elif number in large:
                task.value = large[number]
            else:
                source = handle
                if not has_outputs_only:
                    source = self._host.submit(value_of, [handle, number])
                if source not in self._wanted:
                    self._wanted[source] = None
                    self._host.when_done(source)
                self._fetched[task] = source
        if self._observer is not None:
            self._show(self._observer, block, report, finished)
        if report.failed is not None:
            self._on_failed(report)
        self._state.on_report(
            block,
            finished,
            exported,
            n_kept=report.n_kept,
            places=places,
            durations=report.durations,
            is_over=report.is_last,
        )
        for task in self._state.released:
            task.exported = None
        self._state.released.clear()

    def _show(
        self, observer: Observer, block: Block, report: BlockReport, finished: list[int]
    ) -> None:
        """Show what has begun and ended, in the worker's order."""
        for number in finished:
            task = self._tasks[number]
            self._begin(observer, task)
            value: Any = ELSEWHERE
            if number in self._outputs and task not in self._fetched:
                value = task.value
            elif observer.wants_results and number in report.values:
                value = report.values[number]
            elif observer.wants_results and number in report.pickles:
                value = loads(report.pickles[number])
            observer.posttask(task, value, report.pid)
        number = report.current
        if number in block.tasks and number not in finished:
            self._begin(observer, self._tasks[number])

    def _begin(self, observer: Observer, task: BlockTask) -> None:
        if task.number not in self._begun:
            self._begun.add(task.number)
            observer.pretask(task)

    # --- Failures ---------------------------------------------------------------------------------

    def _on_failed(self, report: BlockReport) -> NoReturn:
        number, packed = report.failed  # type: ignore[misc]
        task = self._tasks[number]
        where = f"weft: task {task.key!r} in worker process {report.pid}"
        exc = unpack_exception(name_packed(packed, _text(task.key), where))
        try:
            if self.rerun_exceptions_locally:
                for dependency in dict.fromkeys(task.dependencies):
                    self._bring(dependency)
                call_again(task, exc)
            raise exc
        finally:
            del exc  # its traceback points here

    def _bring(self, task: Any) -> None:
        """Fetch an input of the task that failed."""
        exported = task.exported
        if exported.__class__ is Unpacked:
            task.value = exported.value
            return
        if exported.__class__ is _KeptValue:
            fetched = self._host.submit(value_of, [exported.handle, task.number])
            task.value = self._host.gather([fetched])[0]
        else:
            is_pickled = exported.__class__ is _Pickled
            task.value = loads(exported.data) if is_pickled else exported

    def _refuse_torn(self, task: BlockTask) -> NoReturn:
        for dependency in task.dependencies:
            exported = dependency.exported  # type: ignore[attr-defined]
            if exported.__class__ is _KeptValue and dependency.number in exported.report.pinned:  # type: ignore[attr-defined]
                self._refuse_unpicklable(dependency, exported.report)  # type: ignore[arg-type]
        raise AssertionError("its inputs are pinned")

    def _refuse_unpicklable(self, task: BlockTask, report: BlockReport) -> NoReturn:
        type_name, path, text = report.reasons[task.number]
        text = f"{path.lstrip('.')}: {text}" if path else text
        raise UnpicklableResult(_text(task.key), type_name, text)

    def _raise_lost(self, lost: BlockLost) -> NoReturn:
        for number, (block, _) in self._blocks.items():
            if lost.block in (None, number):
                self._raise_death(number, block, WorkerDied("", 1, lost.worker, lost.reason))
        raise WrongExecutor(f"{lost.worker} cannot run tasks: it has lost a process") from lost

    def _raise_death(self, block_number: int, block: Block, error: WorkerDied) -> NoReturn:
        number = running_tasks(self._learned.notes).get(block_number, -1)
        task = block.tasks.get(number) or next(iter(block.tasks.values()))
        died = WorkerDied(_text(task.key), 1, error.last_worker, error.reason, error.facts)
        set_field(died, "__cause__", None)
        raise died from None


def _text(key: Hashable) -> str:
    return key if isinstance(key, str) else repr(key)
