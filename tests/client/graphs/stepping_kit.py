"""Races without luck: stop a thread before one instruction, let another one go, go on.

A race that needs two threads to meet within a microsecond is not found by running them often. Here
`Meeting(step, ...)` makes them meet at instruction number `step`; a test tries each number in turn
until the first thread has no more instructions (`was_reached`).

An instruction is one of the interpreter, in the files given. Whether the second thread is blocked
is guessed from the time that it takes. A wrong guess makes a meeting less sharp, never an error.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

#: Seconds after which a thread is taken to be blocked.
PATIENCE_S = 0.0005
#: Seconds after which a thread that should end is taken to hang.
LIMIT_S = 20.0


#: After these the interpreter looks whether there was a signal. (A function begins with RESUME.)
SIGNALS_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")


def tracer(
    step: int,
    files: Iterable[str],
    action: Callable[[], object],
    after: tuple[str, ...] = ("",),
) -> Callable[..., Any]:
    """Return a trace function that calls `action()` before instruction number `step` (from 1).

    Only the instructions that follow one whose name begins with one of `after` are counted.
    """
    n_steps = 0
    files = frozenset(files)
    #: {id of a frame: name of its last instruction}
    last: dict[int, str] = {}

    def instruction(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal n_steps
        if event == "opcode":
            if last[id(frame)].startswith(after):
                n_steps += 1
                if n_steps == step:
                    action()
            last[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return instruction

    def call(frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        last[id(frame)] = "RESUME"
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return instruction

    return call


def interrupt(step: int, files: Iterable[str], do: Callable[[], object]) -> bool:
    """Call `do()`, with the `step`-th possible Ctrl-C; return False if there are fewer."""
    was_reached = False

    def ctrl_c() -> None:
        nonlocal was_reached
        was_reached = True
        raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(tracer(step, files, ctrl_c, SIGNALS_AFTER))
    try:
        do()
    except KeyboardInterrupt:
        assert was_reached
    finally:
        sys.settrace(before)
    return was_reached


class Meeting:
    """`first` stops before its instruction number `step` until `second` has ended or is blocked."""

    def __init__(
        self,
        step: int,
        files: Iterable[str],
        first: Callable[[], object],
        second: Callable[[], object],
    ) -> None:
        self.was_reached = False
        self._trace = tracer(step, files, self._meet)
        self._is_over = threading.Event()
        self._errors: list[BaseException] = []
        self._second = threading.Thread(target=self._run, args=(second,), daemon=True)
        self._first = threading.Thread(target=self._run_first, args=(first,), daemon=True)
        self._first.start()
        # It may be waiting for what the test does next.
        self._is_over.wait(2 * PATIENCE_S)

    def _run(self, do: Callable[[], object]) -> None:
        try:
            do()
        except BaseException as error:
            self._errors.append(error)

    def _run_first(self, do: Callable[[], object]) -> None:
        sys.settrace(self._trace)
        self._run(do)
        sys.settrace(None)
        self._is_over.set()

    def _meet(self) -> None:
        self.was_reached = True
        self._second.start()
        self._second.join(PATIENCE_S)
        self._is_over.set()

    def let_go_on(self) -> None:
        """Wait until both have ended or are blocked."""
        self._first.join(PATIENCE_S)
        if self._second.is_alive():
            self._second.join(PATIENCE_S)

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
