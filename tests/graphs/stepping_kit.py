"""Reproducible races: stop a thread before one instruction, let another one run, then go on.

A race that needs two threads to meet within a microsecond is not found by running them often. Here
`Meeting(step, ...)` makes them meet at instruction number `step`, and `every_step` tries each
number in turn until the first thread has no more instructions.

An instruction is one of the interpreter, in the module given. Whether the second thread is blocked
is guessed from the time that it takes. A wrong guess makes a meeting less sharp, never an error.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from tests.graphs.graph_kit import has_interpreter_lock

#: Seconds after which a thread is taken to be blocked.
PATIENCE_S = 0.0005
#: Seconds after which a thread that should end is taken to hang.
LIMIT_S = 20.0

#: After these the interpreter checks for signals. (A function begins with RESUME.)
SIGNALS_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")


def every_step(try_step: Callable[[int], bool], at_least: int) -> None:
    """Call `try_step(1)`, `try_step(2)`... until it returns False; `at_least` so many times."""
    step = 1
    # The trace of a build without interpreter lock misses a whole thread now and then.
    while try_step(step) or (step <= at_least and not has_interpreter_lock()):
        step += 1
    assert step > at_least


@contextmanager
def before_step(
    step: int,
    module: ModuleType,
    action: Callable[[], object],
    after: tuple[str, ...] = ("",),
    thread_name: str | None = None,
) -> Iterator[None]:
    """In this block, call `action()` before instruction number `step` (from 1) of `module`.

    Only the instructions that follow one whose name begins with one of `after` are counted, and
    only those of this thread, or of threads called `thread_name` that are started in the block.
    """
    n_steps = 0
    me = threading.get_ident()
    #: {id of a frame: name of its last instruction}
    last: dict[int, str] = {}

    def count(frame: FrameType, code: CodeType, offset: int) -> None:
        nonlocal n_steps
        if threading.current_thread().name != thread_name and threading.get_ident() != me:
            return
        is_counted = offset == 0 or last.get(id(frame), "").startswith(after)
        last[id(frame)] = dis.opname[code.co_code[offset]]
        if is_counted and (thread_name is None or threading.get_ident() != me):
            n_steps += 1
            if n_steps == step:
                action()

    with _each_instruction(module, count, thread_name is None):
        yield


if sys.version_info >= (3, 12):  # settrace shows instructions in some frames only, from then on

    @contextmanager
    def _each_instruction(
        module: ModuleType, count: Callable[..., None], _in_this_thread: bool
    ) -> Iterator[None]:
        monitoring = sys.monitoring
        tool, event = 4, monitoring.events.INSTRUCTION
        codes = list(_codes_of(module))
        monitoring.use_tool_id(tool, "stepping")
        monitoring.register_callback(
            tool, event, lambda code, offset: count(sys._getframe(1), code, offset)
        )
        for code in codes:
            monitoring.set_local_events(tool, code, event)
        try:
            yield
        finally:
            for code in codes:
                monitoring.set_local_events(tool, code, 0)
            monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

    def _codes_of(module: ModuleType) -> Iterator[CodeType]:
        """Every function of a module, those in its classes and functions included."""
        found: list[Any] = list(vars(module).values())
        while found:
            thing = found.pop()
            if isinstance(thing, type) and thing.__module__ == module.__name__:
                found += vars(thing).values()
            elif isinstance(thing, property):
                found.append(thing.fget)
            elif isinstance(thing, FunctionType):
                found.append(thing.__code__)
            elif isinstance(thing, CodeType) and thing.co_filename == module.__file__:
                yield thing
                found += thing.co_consts

else:

    @contextmanager
    def _each_instruction(
        module: ModuleType, count: Callable[..., None], in_this_thread: bool
    ) -> Iterator[None]:
        def instruction(frame: FrameType, event: str, _arg: object) -> Any:
            if event == "opcode":
                count(frame, frame.f_code, frame.f_lasti)
            return instruction

        def call(frame: FrameType, _event: str, _arg: object) -> Any:
            if frame.f_code.co_filename != module.__file__:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return instruction

        set_trace = sys.settrace if in_this_thread else threading.settrace
        before = sys.gettrace() if in_this_thread else threading.gettrace()
        set_trace(call)
        try:
            yield
        finally:
            set_trace(before)  # type: ignore[arg-type]


def interrupt(step: int, module: ModuleType, do: Callable[[], object]) -> bool:
    """Call `do()`, with the `step`-th possible Ctrl-C; return False if there are fewer.

    In a thread of its own: an exception that a trace function raises may leave its traces there.
    """
    was_reached = False
    errors = []

    def ctrl_c() -> None:
        nonlocal was_reached
        was_reached = True
        raise KeyboardInterrupt

    def run() -> None:
        with before_step(step, module, ctrl_c, SIGNALS_AFTER):
            try:
                do()
            except BaseException as error:
                errors.append(type(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "it hangs"
    assert errors in ([], [KeyboardInterrupt])
    return was_reached


class Meeting:
    """`first` stops before its instruction number `step` until `second` has ended or is blocked."""

    def __init__(
        self,
        step: int,
        module: ModuleType,
        first: Callable[[], object],
        second: Callable[[], object],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.was_reached = False
        self._patience_s = patience_s
        self._is_over = threading.Event()
        self._errors: list[BaseException] = []
        self._second = threading.Thread(target=self._run, args=(second,), daemon=True)
        self._first = threading.Thread(
            target=self._run_first, args=(step, module, first), daemon=True
        )
        self._first.start()
        # It may be waiting for the next step of the test.
        self._is_over.wait(2 * patience_s)

    def _run(self, do: Callable[[], object]) -> None:
        try:
            do()
        except BaseException as error:
            self._errors.append(error)

    def _run_first(self, step: int, module: ModuleType, do: Callable[[], object]) -> None:
        with before_step(step, module, self._meet):
            self._run(do)
        self._is_over.set()

    def _meet(self) -> None:
        self.was_reached = True
        self._second.start()
        self._second.join(self._patience_s)
        self._is_over.set()

    def let_go_on(self) -> None:
        """Wait until both have ended or are blocked."""
        self._first.join(self._patience_s)
        if self._second.is_alive():
            self._second.join(self._patience_s)

    def end(self) -> None:
        """Wait for both. If they did not meet, `second` runs now."""
        self._first.join(LIMIT_S)
        assert not self._first.is_alive(), "the first thread hangs"
        if not self.was_reached:
            self._second.start()
        self._second.join(LIMIT_S)
        assert not self._second.is_alive(), "the second thread hangs"
        if self._errors:
            raise self._errors[0]
