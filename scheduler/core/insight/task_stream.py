"""The task stream: when attempts ran and on which threads, recorded while somebody reads it.

Nothing is recorded by itself. The question `task_stream` has workers report the times of their
attempts for the next `keep_s` seconds; each further question prolongs that. The latest attempts
are kept, so a reader that asks often enough, and reads as fast as they end, gets all of them.

A reader goes on at its *cursor*, the epoch and a position. Positions count attempts that have
ended, also those that were not recorded because nobody was reading, and those that are forgotten.
So a reader that is slow, or was away, is told how many attempts it has missed.

Workers state times by their own clocks. An attempt cannot have ended after its report came, so the
least difference between the two is what a clock is behind, and the time that the fastest report
took. With it times become those of the scheduler's clock.

The question `task_times` is the same for whoever may only look: it has what a picture of the
attempts shows, and switches recording on for seconds, not for an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....protocol.ring import Ring
from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.question_arguments import BadArgument, Info, Page, position_of
from ..feature import Departure, Feature, Question
from ..invariants.checking import is_due, unless

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import WorkerHandle
    from ..records.tasks import TaskGroup
    from ..state import SchedulerState

#: Attempts that are kept, and characters of their keys and types. The oldest are forgotten first.
MAX_ROWS: Final = 100_000
MAX_CHARS: Final = 32 << 20
#: The longest time for which one question has times recorded, seconds.
MAX_KEEP_S: Final = 3600.0
#: The same for a question that takes the view token: what is left on by a page that was closed.
MAX_LOOK_S: Final = 15.0
#: The shortest one: all workers are told when it begins and when it ends.
LEAST_KEEP_S: Final = 1.0
#: Workers whose clocks are known.
MAX_OFFSETS: Final = 10_000
#: Values of one worker that went to disk or came back before its next attempt ends.
MAX_DISK: Final = 1000
#: Attempts of one answer that run, and as many times of spilling of which no report tells yet.
MAX_RUNNING: Final = 512
#: Attempts, and reports, of one page of an answer.
N_ROWS: Final = 2000
N_REPORTS: Final = 200
#: What a time of spilling counts as, in characters.
DISK_CHARS: Final = 256


class StreamReport(NamedTuple):
    """One report of a worker, and what it does not know about its attempts."""

    worker: str
    address: str
    host: str
    #: seconds that are added to its times to make them times of the scheduler's clock
    offset_s: float
    times: m.AttemptTimes
    #: "" = the attempt was not current any more
    keys: list[str]
    #: [name of the function, tags of the span], the options that are shown, and those of each row
    kinds: list[list[Any]]
    options: list[dict[str, Any]]
    kind_of: list[int]
    #: [start, stop, bytes, whether they were read] of what went to disk or came back before the
    #: attempts were reported; seconds of the worker's clock
    disk: list[list[Any]]


class TaskStream:
    """The latest reports, and for how long others are wanted."""

    __slots__ = ("disk", "due", "n_ended", "n_raised", "offsets", "reports", "running")

    def __init__(self) -> None:
        self.reports: Ring[StreamReport] = Ring(MAX_ROWS, MAX_CHARS)
        #: {worker id: seconds that make its times those of the scheduler's clock}, while it is on
        self.offsets: dict[str, float] = {}
        #: {worker: when it reported which attempts run, and that report}, while it is on
        self.running: dict[WorkerHandle, tuple[float, m.AttemptsRunning]] = {}
        #: {worker: what the next `StreamReport` of it has as `disk`, in seconds of the scheduler's
        #: clock}, while it is on
        self.disk: dict[WorkerHandle, list[list[Any]]] = {}
        #: attempts that raised, since the scheduler started
        self.n_raised = 0
        #: attempts that had ended when positions were brought up to date, while times are not
        #: recorded
        self.n_ended = 0
        #: when it ends; pending iff times are recorded
        self.due: Deadline | None = None

    @property
    def is_on(self) -> bool:
        """True while workers are asked for times."""
        return self.due is not None

    def offset(self, worker_id: str, now: float, ended_us: int) -> float:
        """Return what to add to a worker's times, of which `ended_us` is the latest."""
        if len(self.offsets) > MAX_OFFSETS:
            self.offsets.clear()  # most are of workers that have left
        known = self.offsets.get(worker_id)
        seen = now - ended_us / 1e6
        if known is None or seen < known:
            self.offsets[worker_id] = known = seen
        return known

    def forget(self) -> None:
        """Forget all reports."""
        self.reports.clear()
        self.offsets.clear()
        self.running.clear()
        self.disk.clear()


def stream_of(state: SchedulerState) -> TaskStream:
    """Return the task stream."""
    return state.record(TaskStream)


# -- recording -------------------------------------------------------------------------------------
def _n_ended(state: SchedulerState) -> int:
    """Return how many attempts have ended since the scheduler started."""
    return state.counters.tasks_completed + stream_of(state).n_raised


def _count_unrecorded(state: SchedulerState) -> None:
    """Let positions count the attempts that have ended while times were not recorded."""
    stream = stream_of(state)
    if not stream.is_on:
        n_before, stream.n_ended = stream.n_ended, _n_ended(state)
        stream.reports.skip(stream.n_ended - n_before)


def _want(state: SchedulerState, keep_s: float) -> None:
    """Have times recorded for at least this long from now on."""
    stream = stream_of(state)
    keep_s = max(keep_s, LEAST_KEEP_S)
    if stream.due is None:
        for ws in state.workers.values():
            _send(state, ws, on=True)
    elif stream.due.when >= state.awake_s + keep_s:
        return
    state.deadlines.cancel(stream.due)
    stream.due = state.call_after(keep_s, _end)


def _end(state: SchedulerState) -> None:
    """Nobody has asked for long enough: record no more, and forget."""
    stream = stream_of(state)
    stream.due = None
    stream.forget()
    stream.n_ended = _n_ended(state)
    for ws in state.workers.values():
        _send(state, ws, on=False)


def _send(state: SchedulerState, ws: WorkerHandle, *, on: bool) -> None:
    if ws.peer in state.roles:  # else it is greeted when it is back
        state.send(ws.peer, m.RecordTimes(on=on, running=on))


def greet_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask a worker whose session begins for times, if they are wanted."""
    if stream_of(state).is_on:
        _send(state, ws, on=True)


def on_attempt_times(state: SchedulerState, ws: WorkerHandle, message: m.AttemptTimes) -> None:
    """A worker reports the times of attempts; the report that they have ended follows."""
    stream = stream_of(state)
    if not (stream.is_on and message.attempts):
        return
    offset_s = stream.offset(ws.worker_id, state.now, max(message.ended_us))
    tasks = [*map(ws.processing.get, message.attempts)]
    keys = ["" if task is None else task.key for task in tasks]
    kinds: list[list[Any]] = []
    options: list[dict[str, Any]] = []
    places: dict[tuple[str, str], int] = {}
    place_of: dict[TaskGroup, int] = {}
    for group in dict.fromkeys(task.group for task in tasks if task is not None):
        name, shown = group.prefix.name, group.options.shown
        place = place_of[group] = places.setdefault((name, repr(shown)), len(kinds))
        if place == len(kinds):
            kinds.append([name, [*group.options.span]])
            options.append(shown)
    if len(kinds) > 1:
        kind_of = [0 if task is None else place_of[task.group] for task in tasks]
    else:
        kind_of = [0] * len(tasks)
    disk = [
        [start - offset_s, stop - offset_s, *more] for start, stop, *more in stream.disk.pop(ws, ())
    ]
    rows = message, keys, kinds, options, kind_of, disk
    stream.reports.append(
        StreamReport(ws.name, ws.address, ws.host, offset_s, *rows),
        len(keys),
        sum(map(len, keys)) + sum(map(len, message.types)) + DISK_CHARS * len(disk),
    )


def on_attempts_running(
    state: SchedulerState, ws: WorkerHandle, message: m.AttemptsRunning
) -> None:
    """A worker lists the attempts that run for some time."""
    stream = stream_of(state)
    if stream.is_on:
        stream.running[ws] = state.now, message


def on_disk_times(state: SchedulerState, ws: WorkerHandle, message: m.DiskTimes) -> None:
    """A worker reports when values have gone to disk, or have come back."""
    stream = stream_of(state)
    if not stream.is_on:
        return
    kept = stream.disk.setdefault(ws, [])
    columns = message.ages_us, message.durations_us, message.nbytes, message.reads
    for age_us, duration_us, nbytes, is_read in zip(*columns, strict=True):
        start = state.now - age_us / 1e6
        kept.append([start, start + duration_us / 1e6, nbytes, is_read])
    del kept[:-MAX_DISK]


def _forget_worker(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    stream = stream_of(state)
    stream.running.pop(ws, None)
    stream.disk.pop(ws, None)


def _count_raised(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    current = [attempt for attempt in message.attempts if attempt in ws.processing]
    stream_of(state).n_raised += len(dict.fromkeys(current))


# -- reading ---------------------------------------------------------------------------------------
def ask_task_stream(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the attempts that have ended since a cursor, and have others recorded.

    `keep_s` is for how long from now on (0 = ask only), `after` the `cursor` of the answer before;
    "" = from the first attempt that is there. Of several pages each has the `cursor` of its end.
    `to_unix_s` is added to times of the scheduler's clock to make them seconds since 1970, and
    `now_unix_s` is that clock's time at the answer.
    """
    return _answer(state, arguments, page, MAX_KEEP_S, _described)


def ask_task_times(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the same with what a picture shows: neither options nor results of tasks."""
    info, next_page = _answer(state, arguments, page, MAX_LOOK_S, _drawn)
    if not next_page:
        info["running"] = _running(state, info["to_unix_s"])
        info["disk"] = _on_disk(state, info["to_unix_s"])
    return info, next_page


def _running(state: SchedulerState, to_unix_s: float) -> list[list[Any]]:
    """Return [host, worker, address, thread, key, function, start] of attempts that run now.

    The start is in seconds since 1970.
    """
    found: list[list[Any]] = []
    for ws, (when, message) in stream_of(state).running.items():
        rows = zip(message.attempts, message.threads, message.ages_us, strict=True)
        for attempt, thread, age_us in rows:
            task = ws.processing.get(attempt)
            if task is None:
                continue
            start_s = to_unix_s + when - age_us / 1e6
            place = [ws.host, ws.name, ws.address, thread]
            found.append([*place, task.key, task.group.prefix.name, start_s])
            if len(found) == MAX_RUNNING:
                return found
    return found


def _on_disk(state: SchedulerState, to_unix_s: float) -> list[list[Any]]:
    """Return [host, worker, address, start, stop, bytes, whether they were read] of values.

    They went to disk or came back since the last report of attempts of their worker, whose next
    one has the same. Times are in seconds since 1970.
    """
    return [
        [ws.host, ws.name, ws.address, to_unix_s + start, to_unix_s + stop, *more]
        for ws, kept in stream_of(state).disk.items()
        for start, stop, *more in kept
    ][-MAX_RUNNING:]


def _answer(
    state: SchedulerState,
    arguments: Info,
    page: str,
    max_keep_s: float,
    describe: Callable[[StreamReport, int], Info],
) -> Page:
    keep_s = arguments.get("keep_s", 0)
    if type(keep_s) not in (int, float) or not 0 <= keep_s <= max_keep_s:
        raise BadArgument(f"keep_s= is a number of seconds up to {max_keep_s:g}")
    after = arguments.get("after", "")
    if type(after) is not str:
        raise BadArgument("after= is the cursor of an answer")
    stream = stream_of(state)
    # A page begins at a cursor, and ends where the stream did when the first one was asked for.
    text, _, end_text = page.rpartition(".") if page else (after, "", "")
    epoch_text, _, position_text = text.partition(".")
    is_known = epoch_text == str(state.epoch)
    position, limit = (position_of(one) if is_known else 0 for one in (position_text, end_text))
    _count_unrecorded(state)
    if keep_s:
        _want(state, keep_s)
    ring = stream.reports
    start = min(position, ring.end) if is_known else ring.first
    end = min(limit, ring.end) if is_known and page else ring.end
    first = max(start, ring.first)
    reports, stop = _reports(ring, first, end, describe)
    started = state.now if state.started is None else state.started
    cursor = f"{state.epoch}.{stop}"
    to_unix_s = state.epoch / 1e9 - started
    info = {
        "reports": reports,
        "n_missed": first - start,
        "cursor": cursor,
        "to_unix_s": to_unix_s,
        "now_unix_s": to_unix_s + state.now,
    }
    return info, f"{cursor}.{end}" if stop < end else ""


def _reports(
    ring: Ring[StreamReport],
    first: int,
    end: int,
    describe: Callable[[StreamReport, int], Info],
) -> tuple[list[Info], int]:
    """Return reports from the one with position `first` on, and the position after the last."""
    found: list[Info] = []
    n_left = N_ROWS
    for position, report in ring.since(first):
        if position >= end:
            break
        if n_left <= 0 or len(found) >= N_REPORTS:
            return found, position
        skip = max(first - position, 0)
        if skip < len(report.keys):
            found.append(describe(report, skip))
            n_left -= len(report.keys) - skip + len(report.disk)
    return found, max(first, end)


def _described(report: StreamReport, skip: int) -> Info:
    """Return a report without its first rows."""
    times = report.times
    columns = {
        name: getattr(times, name)[skip:] for name in (*times.columns, *times.optional_columns)
    }
    return {
        "worker": report.worker,
        "address": report.address,
        "offset_s": report.offset_s,
        "keys": report.keys[skip:],
        "kinds": report.kinds,
        "options": report.options,
        "kind_of": report.kind_of[skip:],
        **columns,
    }


def _drawn(report: StreamReport, skip: int) -> Info:
    """Return of a report without its first rows what a picture shows.

    A column of zeros is empty.
    """
    times = report.times
    threads = times.threads[skip:]
    failed = times.failed[skip:]
    return {
        "worker": report.worker,
        "address": report.address,
        "host": report.host,
        "offset_s": report.offset_s,
        "keys": report.keys[skip:],
        "functions": [name for name, _ in report.kinds],
        "function_of": report.kind_of[skip:] if len(report.kinds) > 1 else [],
        "ended_us": times.ended_us[skip:],
        "durations_us": times.durations_us[skip:],
        "threads": threads if any(threads) else [],
        "waited_us": times.waited_us[skip:],
        "arrived_us": times.arrived_us[skip:],
        "fetched_us": times.fetched_us[skip:],
        # [row, the type of what it raised]
        "raised": [[row, times.types[skip + row]] for row, raised in enumerate(failed) if raised],
        "disk": [] if skip else report.disk,
    }


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
STREAM_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "the task stream ends iff it is on": lambda s: unless(
        not stream_of(s).is_on or is_due(stream_of(s).due), stream_of(s).due
    ),
    "nothing is kept that nobody wants": lambda s: unless(
        stream_of(s).is_on or not stream_of(s).reports.n_rows, stream_of(s).reports.n_rows
    ),
    "what workers report now is of workers that are here": lambda s: [
        ws.name
        for ws in (*stream_of(s).running, *stream_of(s).disk)
        if s.workers.get(ws.peer) is not ws
    ],
    "the task stream counts its rows": lambda s: unless(
        stream_of(s).reports.n_rows == sum(len(one.keys) for one in stream_of(s).reports),
        stream_of(s).reports.n_rows,
    ),
}

FEATURE: Final = Feature(
    name="task stream",
    records=(TaskStream,),
    questions={
        # It has workers report more than they do otherwise, and has what users say of their tasks.
        "task_stream": Question(ask_task_stream, Level.CLIENT),
        "task_times": Question(ask_task_times),
    },
    handlers={
        m.AttemptTimes: on_attempt_times,
        m.AttemptsRunning: on_attempts_running,
        m.DiskTimes: on_disk_times,
    },
    invariants=STREAM_INVARIANTS,
    worker_connected=(greet_worker,),
    attempts_erred=(_count_raised,),
    worker_gone=(_forget_worker,),
)
