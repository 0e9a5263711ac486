"""The last hour: numbers of the cluster every other second, for pages that draw them over time.

A sample is a row of numbers that are known anyway: counters, and the sums over workers. It is
taken when a worker or supervisor reports, or time passes, and the last one is old enough: so there
is no timer, and nothing is asked for. What only grows is kept as it is, and not as a rate, so a
reader may leave out samples and loses nothing but detail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.reported import OF_WORKERS, SPILLED_BYTES, places_of
from ....protocol.samples import Samples
from ....protocol.wire.message import MAX_NUMBER
from ....protocol.wire.question_arguments import BadArgument, Info, Page, position_of
from ..events import SchedulerTick
from ..feature import Feature, Question
from .cluster_totals import totals_of
from .info import task_counts

if TYPE_CHECKING:
    from ..records.peers import SupervisorHandle, WorkerHandle
    from ..state import SchedulerState

#: Two samples are at least so far apart; workers report every 2 s, if there are few.
SAMPLE_S: Final = 1.5
#: Samples of an hour.
MAX_SAMPLES: Final = 2400
#: Samples of one page of an answer.
N_SAMPLES: Final = 600

#: The columns: times by the scheduler's clock, what only grows since its start, and what is now.
COLUMNS: Final = (
    "at_ms",
    # what only grows
    "completed", "failed", "cpu_us", "received", "sent", "spill_written", "spill_read",
    # bytes
    "managed", "unmanaged", "spilled", "limit",
    # numbers
    "workers", "threads", "busy", "processing", "queued", "waiting",
)  # fmt: skip

#: Places in the numbers of workers.
_CPU, _SENT_IN, _SPILL_WRITTEN, _SPILLED = (
    places_of(OF_WORKERS, name)
    for name in (
        "weft_worker_cpu_seconds_total",
        "weft_worker_transfer_bytes_total",
        "weft_worker_spill_bytes_total",
        SPILLED_BYTES,
    )
)


class History:
    """The samples."""

    __slots__ = ("due", "samples")

    def __init__(self) -> None:
        self.samples = Samples(COLUMNS, MAX_SAMPLES)
        #: when the next one may be taken
        self.due = 0.0


def history_of(state: SchedulerState) -> History:
    """Return the samples."""
    return state.record(History)


def sample(state: SchedulerState) -> list[int]:
    """Return the numbers of now, in the order of COLUMNS. O(workers + task classes)."""
    totals, counters = totals_of(state), state.counters
    own, others = totals.of_workers.numbers, totals.of_pages.numbers
    grown = [own[place] + others[place] for place in (*_CPU, *_SENT_IN, *_SPILL_WRITTEN, *_SPILLED)]
    cpu, received, sent, written, read, spilled = grown
    counts = task_counts(state)
    busy = sum(
        min(len(ws.processing), ws.nthreads) for ws in state.workers.values() if ws.processing
    )
    row = [
        int(state.now * 1000),
        *(counters.tasks_completed, counters.n_failed, cpu, received, sent, written, read),
        totals.managed,
        max(totals.resident - totals.managed, 0),
        spilled,
        totals.memory_limit,
        *(len(state.workers), totals.nthreads, busy, counts["processing"]),
        counts["queued"] + counts["no_worker"],
        counts["waiting"],
    ]
    return [min(n, MAX_NUMBER) for n in row]


def _note(state: SchedulerState) -> None:
    """Take a sample if the last one is old enough."""
    history = history_of(state)
    if state.now >= history.due:
        history.due = state.now + SAMPLE_S
        history.samples.append(sample(state))


def _on_ticked(state: SchedulerState, tick: SchedulerTick) -> None:
    _note(state)


def _on_numbers(
    state: SchedulerState, process: WorkerHandle | SupervisorHandle, numbers: Sequence[int]
) -> None:
    _note(state)


# -- reading ---------------------------------------------------------------------------------------
def ask_history(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the samples since a cursor, in columns.

    `after` is the `cursor` of the answer before; "" = all that there are. `to_unix_s` makes the
    times seconds since 1970, and `now_unix_s` is the time of the answer. `is_new`: the samples do
    not follow those before the cursor, because they are of another scheduler.
    """
    after = page or arguments.get("after", "")
    if type(after) is not str:
        raise BadArgument("after= is the cursor of an answer")
    _note(state)
    epoch_text, _, position_text = after.partition(".")
    is_known = epoch_text == str(state.epoch)
    samples = history_of(state).samples
    position = position_of(position_text) if is_known else 0
    columns, stop = samples.since(position, N_SAMPLES)
    started = state.now if state.started is None else state.started
    to_unix_s = state.epoch / 1e9 - started
    cursor = f"{state.epoch}.{stop}"
    info = {
        "columns": columns,
        "cursor": cursor,
        "is_new": not is_known,
        "to_unix_s": to_unix_s,
        "now_unix_s": to_unix_s + state.now,
    }
    return info, cursor if stop < samples.end else ""


# -- invariants ------------------------------------------------------------------------------------
def _ragged(state: SchedulerState) -> Iterable[object]:
    columns = history_of(state).samples.columns
    return [name for name, column in columns.items() if len(column) != len(columns["at_ms"])]


#: {what holds: what breaks it}
HISTORY_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "each sample has a number for each column": _ragged,
}

FEATURE: Final = Feature(
    name="history",
    records=(History,),
    questions={"history": Question(ask_history)},
    invariants=HISTORY_INVARIANTS,
    ticked=(_on_ticked,),
    numbers_reported=(_on_numbers,),
)
