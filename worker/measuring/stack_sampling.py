"""Samples the stacks of the threads that run tasks, while somebody asks for that.

A thread of its own looks at all stacks some fifty times per second, and ends some seconds after
the last question. Without a question nothing runs. What it sees is added up as a tree
(`protocol/stack_tree.py`), in which weft's own calls around a task are left out.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from ...protocol.stack_tree import StackFrame, StackTree, WorkerSamples
from ...protocol.wire.keys import key_of, prefix_of

#: Between two samples, on average. It varies, lest it fall into step with tasks.
INTERVAL_S: Final = 0.02
#: Seconds of sampling that a question can ask for.
MAX_KEEP_S: Final = 60.0
#: Calls of one stack that are looked at; of a deeper one the outer calls are not known.
_MAX_WALKED: Final = 1000
#: The end of a key of a call that is not pure.
_NUMBER: Final = re.compile(r"-[0-9a-f]{12}-[0-9]+$")
#: Code around a task: weft's own, and the event loop on which a slot runs a coroutine.
_OWN_FOLDERS: Final = tuple(
    f"{folder}{os.sep}" for folder in (Path(__file__).parents[2], os.path.dirname(asyncio.__file__))
)


class StackSampler:
    """The sampling of one worker. `read` and `close` are for any thread.

    Args:
        running: returns the key and the thread of each task that runs now.
        own_code: of the calls around a task; the stack of the task begins above them.
        others: given how long to go on, it has other processes sample too, and returns what they
            have sampled since its last call.
        handler: of a signal, the code of a call that is no part of the task.
    """

    def __init__(
        self,
        running: Callable[[], list[tuple[str, int]]],
        own_code: Container[CodeType] = (),
        others: Callable[[float], StackTree] | None = None,
        handler: CodeType | None = None,
    ) -> None:
        self._running = running
        self._own_code = own_code
        self._others = others
        self._handler = handler
        #: Guards all below.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._until = 0.0
        self._tree = StackTree()
        self._session = ""
        #: when sampling began, and how often all threads were looked at since then
        self._began = 0.0
        self._n_looks = 0

    def read(self, keep_s: float) -> WorkerSamples:
        """Return what was sampled since sampling began, and let it go on for `keep_s` from now."""
        # A child that does not die may hold this up, and no sampling with it.
        others = None if self._others is None else self._others(keep_s)
        with self._lock:
            now = time.monotonic()
            self._until = max(self._until, now + min(keep_s, MAX_KEEP_S))
            if self._thread is None and not self._closed.is_set():
                self._session = os.urandom(8).hex()
                self._began, self._n_looks = now, 0
                name = "weft-stack-sampler"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            if others is not None:
                self._tree.merge(others)
            tree = StackTree()
            tree.merge(self._tree)
            # On a busy machine looks come later than they should.
            interval_s = (now - self._began) / self._n_looks if self._n_looks else INTERVAL_S
            return WorkerSamples(self._session, tree, max(interval_s, 1e-4))

    def close(self) -> None:
        """Stop."""
        self._closed.set()

    def join(self) -> bool:
        """Return whether nothing runs any more."""
        thread = self._thread
        if thread is not None and self._closed.is_set():
            thread.join(1.0)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        rng = random.Random(self._session)
        while not self._closed.wait(INTERVAL_S * rng.uniform(0.5, 1.5)):
            stacks = self.sample()
            with self._lock:
                self._n_looks += 1
                for stack in stacks:
                    self._tree.add(stack)
                if time.monotonic() > self._until:
                    self._thread = None
                    self._tree = StackTree()
                    return

    def sample(self) -> list[list[StackFrame]]:
        """Return the stacks of the tasks that run now, outermost call first."""
        frames = sys._current_frames()
        found = []
        for key, thread in self._running():
            innermost = frames.get(thread)
            if innermost is not None:
                calls = calls_of_task(innermost, self._own_code, self._handler)
                found.append([StackFrame(function_of_task(key, calls)), *calls])
        return found


def function_of_task(key: str, calls: Sequence[StackFrame]) -> str:
    """Return the name of a task's function, as its key has it; of a user's own key, its call."""
    made = key_of(key)
    name = prefix_of(made)
    if name == made:
        name = _NUMBER.sub("", key)
        if name == key and calls:
            name = calls[0].name.rpartition(".")[2]
    return name


def calls_of_task(
    innermost: FrameType, own_code: Container[CodeType] = (), handler: CodeType | None = None
) -> list[StackFrame]:
    """Return the calls of a thread that are the task's own, outermost first."""
    codes: list[CodeType] = []
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code not in own_code:
        codes.append(frame.f_code)
        if frame.f_code is handler:
            codes.clear()
        if len(codes) == _MAX_WALKED:
            break
        frame = frame.f_back
    while codes and codes[-1].co_filename.startswith(_OWN_FOLDERS):
        codes.pop()
    codes.reverse()
    return [
        StackFrame(
            getattr(code, "co_qualname", code.co_name), code.co_filename, code.co_firstlineno
        )
        for code in codes
    ]
