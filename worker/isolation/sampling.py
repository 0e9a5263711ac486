"""What children have sampled of the stacks of their calls, while somebody asks the worker for that.

A question has the threads of the slots tell their children, each of which then looks at its own
stacks for some seconds. A child answers at once, with all that it has sampled. So what the worker
answers was sampled until the question before, and no timer is needed for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ...protocol.stack_tree import StackTree, WorkerSamples
from .process import IsolatedProcess


class ChildrenSamples:
    """The samples of one worker. For any thread."""

    def __init__(self, children: dict[int, IsolatedProcess]) -> None:
        self._children = children
        #: guards what follows
        self._lock = threading.Lock()
        #: {process: its last answer}
        self._last: dict[int, WorkerSamples] = {}
        self._new = StackTree()

    def note(self, child: IsolatedProcess, info: Mapping[str, Any]) -> None:
        """Note the answer of a child."""
        samples = WorkerSamples.from_info(info)
        with self._lock:
            last = self._last.get(child.pid)
            is_same = last is not None and last.session == samples.session
            self._new.merge(samples.tree.since(last.tree) if last and is_same else samples.tree)
            self._last[child.pid] = samples

    def read(self, keep_s: float) -> StackTree:
        """Have children sample for so long; return what they have sampled since the last call."""
        children = list(self._children.values())
        for child in children:
            if attempt := child.attempt:
                child.tell(attempt, "sample", keep_s)
        with self._lock:
            for pid in self._last.keys() - {child.pid for child in children}:
                del self._last[pid]
            new, self._new = self._new, StackTree()
        return new
