"""The lines that tasks print and log, until they are sent: within a limit of lines per second.

A part of the core. `worker/output.py` catches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import DROPPED_LINES, STDOUT, TaskOutput, WantOutput
from .events import CatchOutput, OutputCame

if TYPE_CHECKING:
    from .state import WorkerState

#: Lines that a worker sends in each second of what tasks write to standard output, and as many of
#: all else: warnings are not lost between prints. Of more it sends the number.
MAX_LINES: Final = 50
#: A longer line is cut.
MAX_LINE_CHARS: Final = 4000


class OutputBuffer:
    """The lines that were not sent yet. The caller makes the calls one after the other."""

    def __init__(self) -> None:
        self._message: TaskOutput | None = None
        #: {client: number of lines that were left out since the last message}.
        self._n_dropped: dict[int, int] = {}
        self._second_ends = float("-inf")
        #: {it is standard output: how many lines may be sent in this second}.
        self._n_left = {True: 0, False: 0}

    def add(self, now: float, client: int, key: str, level: int, name: str, text: str) -> None:
        """Keep a line, or count it.

        Args:
            now: seconds, from any fixed point.
            client: the number of the client for which the task runs.
            key: of the task.
            level: of logging; or STDOUT or STDERR of `TaskOutput`.
            name: of the logger, "" for what was printed.
            text: without the end of the line.
        """
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._n_left = {True: MAX_LINES, False: MAX_LINES}
        if not self._n_left[level == STDOUT]:
            self._n_dropped[client] = self._n_dropped.get(client, 0) + 1
            return
        self._n_left[level == STDOUT] -= 1
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[:MAX_LINE_CHARS]} [...]"
        self._append(client, key, level, name[:200], text)

    def take(self) -> TaskOutput | None:
        """Return what is to be sent, if there is anything."""
        for client, n in self._n_dropped.items():
            self._append(client, "", DROPPED_LINES, "", str(n))
        self._n_dropped.clear()
        message, self._message = self._message, None
        return message

    @property
    def is_filled(self) -> bool:
        """True if there is something to send."""
        return self._message is not None or bool(self._n_dropped)

    def _append(self, client: int, key: str, level: int, name: str, text: str) -> None:
        message = self._message
        if message is None:
            message = TaskOutput(clients=[], keys=[], levels=[], names=[], texts=[])
            self._message = message
        message.clients.append(client)
        message.keys.append(key)
        message.levels.append(level)
        message.names.append(name)
        message.texts.append(text)


def on_want_output(state: WorkerState, message: WantOutput) -> None:
    """The scheduler reports which clients want the output of their tasks."""
    state.before.append(CatchOutput(message.level, message.clients))


def on_output_came(state: WorkerState, event: OutputCame) -> None:
    """Send lines, before the reports of what follows."""
    state.to_scheduler.append(event.message)
