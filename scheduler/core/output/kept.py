"""What calls with `output="keep"` have printed, for who asks: by key, the latest of all.

It comes just before the report of the attempt. Most tasks are forgotten here as soon as their
client has the result, so what is kept does not end with them. Of a detached job, and of a row of an
array, the journal has it as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.question_arguments import BadArgument, Info, Page
from ..journal.entries import OutputRecorded, text_nbytes
from ..journal.jobs import append_output

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Bytes that are kept in all; the oldest go first.
MAX_NBYTES: Final = 256 << 20
#: Approximate memory of one, beside its texts.
_OVERHEAD: Final = 500


class KeptOutputs:
    """What calls have printed, the oldest first."""

    __slots__ = ("by_key", "nbytes")

    def __init__(self) -> None:
        #: {key: stdout, stderr, and whether there was more}
        #: It finds its oldest at once, which a `dict` does not that has lost many before it.
        self.by_key: OrderedDict[str, tuple[str, str, bool]] = OrderedDict()
        #: sum of their bytes
        self.nbytes = 0

    def keep(self, key: str, output: tuple[str, str, bool]) -> None:
        """Keep what the latest attempt of a task has printed."""
        self.drop(key)
        self.by_key[key] = output
        self.nbytes += _nbytes_of(key, output)
        while self.nbytes > MAX_NBYTES:
            self.drop(next(iter(self.by_key)))

    def drop(self, key: str) -> None:
        """Drop what is kept of a key, if it is anything."""
        output = self.by_key.pop(key, None)
        if output is not None:
            self.nbytes -= _nbytes_of(key, output)


def kept_of(state: SchedulerState) -> KeptOutputs:
    """Return what is kept of the output of calls."""
    return state.record(KeptOutputs)


def on_attempts_printed(
    state: SchedulerState, ws: WorkerHandle, message: m.AttemptsPrinted
) -> None:
    """A worker reports what attempts have printed that it runs; of others it is left out."""
    for attempt, stdout, stderr, cut in zip(
        message.attempts, message.stdout, message.stderr, message.cut, strict=True
    ):
        task = ws.processing.get(attempt)
        if task is None:
            continue
        output = stdout, stderr, bool(cut)
        kept_of(state).keep(task.key, output)
        options = task.group.options
        if options.detached or options.row_of:
            entry = OutputRecorded(task.key, options.row_of or task.key, output)
            append_output(state, entry)


def ask_output(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return what the last attempt of a task has printed, if that is kept."""
    key = arguments.get("key")
    if type(key) is not str:
        raise BadArgument("key= is that of a task")
    output = kept_of(state).by_key.get(key)
    return {"outputs": [] if output is None else [list(output)]}, ""


def _nbytes_of(key: str, output: tuple[str, str, bool]) -> int:
    return _OVERHEAD + sum(map(text_nbytes, (key, output[0], output[1])))


def miscounted(state: SchedulerState) -> Iterable[int]:
    """Yield the bytes that are counted, unless these are those of what is kept."""
    kept = kept_of(state)
    if kept.nbytes != sum(_nbytes_of(key, output) for key, output in kept.by_key.items()):
        yield kept.nbytes
