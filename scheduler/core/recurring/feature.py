"""Recurring jobs (`cron=`): at each of its times a task like it is submitted, a *run*.

The job itself is a task that never runs: it is deferred for as long as it lives. So what holds for
any task holds for it. Its client keeps it, or the journal if it is detached; who cancels it, ends
it; it keeps its function and its inputs; a scheduler that is started again gets it again.

A run is an ordinary task, whose key is that of the job and its time. A keeper wants the runs that
have not ended, and the latest that have. The option `run_of` leads from a run to its job, also when
both come from the journal.

Times are a pure function of the expression, the zone and a time (`protocol/recurrence`). Up to
which time runs have been made is recorded in the batch in which a run is, so none is made twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.errors import InvalidSchedule
from ....protocol.recurrence import due_ms, ms_of, upcoming_ms, utc_of
from ....protocol.wire import messages as m
from ....protocol.wire.failure import cancelled
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import NO_ANSWER
from ..conditions.feature import clock_s
from ..feature import Feature, LateQuestion
from ..invariants.checking import is_due
from ..journal.feature import record_change
from ..journal.jobs import journal_of
from ..moves.transitions import err, release_unneeded
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, MEMORY, RELEASED, WAITING, SchedulerTask
from ..requests import wanted_keys
from ..requests.submission import on_cancel, on_submit

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: A run that is later than this was missed: no scheduler was there, or its machine was suspended.
GRACE_S: Final = 30.0
#: A time far away is looked at again after so long: the machine may have been suspended.
LONGEST_LOOK_S: Final = 60.0
#: Runs that have ended, and whose results are kept.
N_KEPT: Final = 10
#: Times that wait for an earlier run. Later ones are looked at when half of these have come.
MAX_QUEUED: Final = 1000
#: Times that are found in one look, which the loop of the scheduler waits for; others, in the next.
MAX_DUE: Final = 100
#: Questions that wait for a run of one job; others are refused.
MAX_ASKED: Final = 1000
#: How a task can have ended.
_ENDED: Final = (MEMORY, ERRED)


class RecurringJob:
    """What is known of one recurring job."""

    __slots__ = (
        "asked",
        "is_cancelled",
        "is_over",
        "look",
        "queued",
        "running",
        "runs",
        "since_ms",
    )

    def __init__(self, since_ms: int) -> None:
        #: times up to this one have been dealt with, ms since 1970; it never decreases
        self.since_ms = since_ms
        #: {key of a run: its time}, in order, that the keeper wants: all of `running`, and the
        #: latest `N_KEPT` others
        self.runs: dict[str, int] = {}
        #: {key: None} of those that have not ended
        self.running: dict[str, None] = {}
        #: times that wait for the end of an earlier run, at most `MAX_QUEUED`
        self.queued: list[int] = []
        #: (peer, request, time) of those that wait for a run later than that
        self.asked: list[tuple[int, int, int]] = []
        #: when times are looked at again
        self.look: Deadline | None = None
        #: there are no more times: none is looked at, queued or asked for. Its client may not have
        #: read the last runs yet, so these are kept until the job is forgotten.
        self.is_over = False
        #: it was cancelled for all, not just released: so are the runs that are under way
        self.is_cancelled = False


class RecurringJobs(dict[SchedulerTask, RecurringJob]):
    """{task: what is known of it} of all recurring jobs, until they are forgotten.

    The class is in `SchedulerState.busy` while there is a job.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Wants runs. It is no client of the cluster, and has no connection.
        self.keeper = ClientHandle("", "recurring jobs", 0, receive=_note_end, is_watcher=True)
        #: {key of a run: the task of its job}
        self.jobs: dict[str, SchedulerTask] = {}
        #: {key: None} of runs that have ended since the last pass
        self.ended: dict[str, None] = {}
        #: (key, what was known) of jobs that were forgotten since then
        self.dropped: list[tuple[str, RecurringJob]] = []

    def pop(self, task: SchedulerTask, *default: Any) -> Any:
        """Note that a job is forgotten."""
        row = super().pop(task, None)
        if row is not None:
            self.dropped.append((task.key, row))
        return row


def recurring_of(state: SchedulerState) -> RecurringJobs:
    """Return the recurring jobs of a scheduler."""
    return state.record(RecurringJobs)


# -- jobs and runs come ----------------------------------------------------------------------------
def on_job(state: SchedulerState, task: SchedulerTask) -> None:
    """Begin a recurring job; one that is known goes on.

    Only one of an earlier scheduler's journal has missed runs. Another is submitted by its client,
    which was there, or is retried, and had ended.
    """
    jobs = recurring_of(state)
    if task in jobs:
        return
    options = task.group.options
    since_ms = options.cron["since_ms"]
    begins = not options.detached or task.key in journal_of(state).adding
    now_ms = int(clock_s(state) * 1000)
    row = jobs[task] = RecurringJob(max(since_ms, now_ms) if begins else since_ms)
    state.busy[RecurringJobs] = None
    if begins and now_ms > since_ms + GRACE_S * 1000:
        _record(state, task, row)
    _look_soon(state, task, row)


def on_assignment_begun(state: SchedulerState) -> None:
    """Look at times from now on: before, a worker could come back with a run that has ended."""
    for task, row in recurring_of(state).items():
        _look_soon(state, task, row)


def _look_soon(state: SchedulerState, task: SchedulerTask, row: RecurringJob) -> None:
    """Look at times behind what is being handled, which may have runs, and behind the barrier."""
    if row.look is None and not (row.is_over or state.awaits_peers):
        row.look = state.call_after(0.0, _look, task)


def on_ready(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a job that has ended, and is retried, go on with the times after this one."""
    row = recurring_of(state).get(task)
    if row is not None and row.is_over:
        row.is_over = False
        row.since_ms = max(row.since_ms, int(clock_s(state) * 1000))
        _look_soon(state, task, row)


def on_run(state: SchedulerState, task: SchedulerTask) -> None:
    """Keep a run, of this scheduler or one before; the journal has one whose result was made."""
    jobs = recurring_of(state)
    key, _, text = task.key.rpartition("@")
    job = state.tasks.get(key)
    row = None if job is None or key != task.group.options.run_of else jobs.get(job)
    time_ms = ms_of(text)  # None = a client has submitted it
    if row is None or job is None or time_ms is None or task.key in row.runs:
        return
    if task.state == RELEASED:  # a want would have it made again
        return
    row.runs[task.key] = time_ms
    jobs.jobs[task.key] = job
    wanted_keys.want(jobs.keeper, task)
    row.running[task.key] = None
    if task.state in _ENDED:
        jobs.ended[task.key] = None
        state.busy[RecurringJobs] = None


# -- times come ------------------------------------------------------------------------------------
def _look(state: SchedulerState, task: SchedulerTask) -> None:
    """Make the runs whose time has come, and look again at the next one."""
    jobs = recurring_of(state)
    row = jobs.get(task)
    if row is None:
        return
    row.look = None
    if task.state != WAITING:  # an input has failed, say
        _end(state, task, row)
        return
    cron = task.group.options.cron
    now_ms = int(clock_s(state) * 1000) + 1  # a deadline may come a little early
    last_ms = min(now_ms, cron["until_ms"] or now_ms)
    late_ms = min(now_ms - int(GRACE_S * 1000), last_ms)
    times = cron["expression"], cron["zone"]
    limit = min(MAX_QUEUED - len(row.queued), MAX_DUE)
    try:
        due, row.since_ms = due_ms(*times, row.since_ms, last_ms, late_ms, cron["missed"], limit)
        next_ms = upcoming_ms(cron, row.since_ms)
    except InvalidSchedule as error:  # this scheduler does not know the zone, say
        err(state, task, cancelled(task.key, str(error)))
        _end(state, task, row)
        return
    for time_ms in due:
        is_wanted = cron["missed"] == "all" and time_ms <= late_ms
        _come(state, task, row, time_ms, "queue" if is_wanted else cron["overlap"])
    if due:
        _record(state, task, row)
    if len(row.queued) >= MAX_QUEUED:
        return
    if next_ms is None:
        if row.running:
            return  # its end is looked at with that of the last run
        err(state, task, cancelled(task.key, "it has ended: it has no later time"))
        _end(state, task, row)
        return
    left_s = min(max(next_ms / 1000 - clock_s(state), 0.0), LONGEST_LOOK_S)
    row.look = state.call_after(left_s, _look, task)


def _come(
    state: SchedulerState, task: SchedulerTask, row: RecurringJob, time_ms: int, overlap: str
) -> None:
    """Make a run, or do with it what the job says if an earlier one is under way."""
    jobs = recurring_of(state)
    # Of some the end was noted, and not handled yet.
    running = [key for key in row.running if key not in jobs.ended]
    if (running and overlap == "queue") or (row.queued and overlap != "skip"):
        row.queued.append(time_ms)
        return
    if (running or row.queued) and overlap == "skip":
        state.story.note(state.now, "a run was left out: an earlier one is under way", [task.key])
        return
    if running:
        _cancel_runs(state, running, f"the next run of {task.key} has replaced it")
    _submit(state, task, row, time_ms)


def _submit(state: SchedulerState, task: SchedulerTask, row: RecurringJob, time_ms: int) -> None:
    key = f"{task.key}@{utc_of(time_ms)}"
    if key in state.tasks:
        return
    group = task.group
    options = group.options.changed(cron=None, run_of=task.key, attempt=0, actor="")
    message = m.SubmitTasks(
        functions=[group.function.function_id],
        function_names=[group.prefix.name],
        function_blobs=[group.function.blob],
        function_of=[0],
        keys=[key],
        args=[task.args],
        dependencies=[[d.key for d in task.dependencies]] if task.dependencies else [],
        spec_hashes=[],
        options=[options.as_record()],
    )
    keeper = recurring_of(state).keeper
    keeper.number, keeper.user = group.client, group.user  # a run has the turns of its job
    on_submit(state, keeper, message)
    if key not in row.runs:
        return
    asked, row.asked = row.asked, []
    for one in asked:
        _ask(state, task, row, *one)


def _record(state: SchedulerState, task: SchedulerTask, row: RecurringJob) -> None:
    """Record up to which time runs have been made; those that wait are missed if it ends now."""
    since_ms = min([row.since_ms, *(time_ms - 1 for time_ms in row.queued[:1])])
    options = task.group.options
    record_change(state, task, options.changed(cron={**options.cron, "since_ms": since_ms}))


# -- runs and jobs end -----------------------------------------------------------------------------
def _note_end(state: SchedulerState, message: Message) -> None:
    """Note what the keeper would be sent: its sender may be in the middle of a batch."""
    ends = (m.ResultsReady, m.KeysInMemory, m.KeysErred, m.KeysCancelled, m.KeysUnknown)
    if isinstance(message, ends):
        recurring_of(state).ended.update(dict.fromkeys(message.keys))
        state.busy[RecurringJobs] = None


def settle(state: SchedulerState) -> None:
    """Handle the runs that have ended, and the jobs that were forgotten, since the last pass."""
    jobs = recurring_of(state)
    while jobs.ended or jobs.dropped:
        dropped, jobs.dropped = jobs.dropped, []
        for key, row in dropped:
            _drop(state, key, row)
        ended, jobs.ended = jobs.ended, {}
        for key in ended:
            if (task := jobs.jobs.get(key)) is not None:
                _on_run_ended(state, task, jobs[task], key)
    if not jobs:
        state.busy.pop(RecurringJobs, None)


def _on_run_ended(state: SchedulerState, task: SchedulerTask, row: RecurringJob, key: str) -> None:
    if key not in row.running:
        return
    del row.running[key]
    if key not in state.tasks:  # it was cancelled
        _let_go(state, row, [key])
    over = [one for one in row.runs if one not in row.running]
    _let_go(state, row, over[: max(len(over) - N_KEPT, 0)])
    n_queued = len(row.queued)
    while row.queued and not row.running and task.state == WAITING:
        _submit(state, task, row, row.queued.pop(0))
    if len(row.queued) < n_queued:
        _record(state, task, row)
    if not row.running or len(row.queued) <= MAX_QUEUED // 2 < n_queued:
        _look_soon(state, task, row)


def _let_go(state: SchedulerState, row: RecurringJob, keys: list[str]) -> None:
    jobs = recurring_of(state)
    unneeded = []
    for key in keys:
        del row.runs[key], jobs.jobs[key]
        row.running.pop(key, None)
        task = state.tasks.get(key)
        if task is not None and task in jobs.keeper.wants:
            wanted_keys.unwant(jobs.keeper, task)
            unneeded.append(task)
    release_unneeded(state, unneeded)
    wanted_keys.drop_functions(state, jobs.keeper)


def _cancel_runs(state: SchedulerState, keys: list[str], reason: str) -> None:
    """Cancel runs for all, also while they run."""
    keeper = recurring_of(state).keeper
    on_cancel(state, keeper, m.CancelKeys(keys=keys, force=True, reason=reason, running=True))


def on_cancelled(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Let the runs that are under way be cancelled with their job."""
    jobs = recurring_of(state)
    for task in tasks if jobs else ():
        if (row := jobs.pop(task, None)) is not None:
            row.is_cancelled = True
            state.busy[RecurringJobs] = None


def _end(state: SchedulerState, task: SchedulerTask, row: RecurringJob) -> None:
    """End a job whose task stays if it is wanted; then what has run is kept for as long."""
    row.is_over = True
    row.queued.clear()
    _answer_over(state, row)
    if not task.wanted_by:
        _let_go(state, row, [*row.runs])


def _drop(state: SchedulerState, key: str, row: RecurringJob) -> None:
    """End all that a job has: its times, and the wants of its runs."""
    if row.look is not None and row.look.is_pending:
        state.deadlines.cancel(row.look)
    if row.is_cancelled:
        _cancel_runs(state, [*row.running], f"{key} was cancelled")
    _let_go(state, row, [*row.runs])
    _answer_over(state, row)


def _answer_over(state: SchedulerState, row: RecurringJob) -> None:
    """Answer those that wait for a run that there is none any more."""
    asked, row.asked = row.asked, []
    for peer, request, _ in asked:
        if peer in state.roles:
            state.send(peer, m.Answer(request=request, info={"runs": [], "next_ms": 0}))


# -- questions -------------------------------------------------------------------------------------
def on_ask_runs(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Answer with the runs of a job after a time that are kept; with `wait`, when there is one."""
    key, after_ms = message.arguments.get("key"), message.arguments.get("after_ms", 0)
    task = state.tasks.get(key) if isinstance(key, str) else None
    row = None if task is None else recurring_of(state).get(task)
    if row is None or task is None or not isinstance(after_ms, int):
        state.send(peer, m.Answer(request=message.request, info={"runs": [], "next_ms": 0}))
    elif message.arguments.get("wait"):
        if len(row.asked) >= MAX_ASKED:
            row.asked = [one for one in row.asked if one[0] in state.roles]
        if len(row.asked) < MAX_ASKED:
            _ask(state, task, row, peer, message.request, after_ms)
            return
        # An answer without a run would be asked for again at once.
        text = f"{MAX_ASKED} questions wait for the next run of {key!r}: ask with fewer clients"
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
    else:
        runs = [[key, time_ms] for key, time_ms in row.runs.items() if time_ms > after_ms]
        _answer(state, task, row, peer, message.request, runs)


def _ask(
    state: SchedulerState,
    task: SchedulerTask,
    row: RecurringJob,
    peer: int,
    request: int,
    after_ms: int,
) -> None:
    runs = [[key, time_ms] for key, time_ms in row.runs.items() if time_ms > after_ms]
    if runs or row.is_over:
        _answer(state, task, row, peer, request, runs)
    else:
        row.asked.append((peer, request, after_ms))


def _answer(
    state: SchedulerState,
    task: SchedulerTask,
    row: RecurringJob,
    peer: int,
    request: int,
    runs: list[Any],
) -> None:
    next_ms = 0 if row.is_over else upcoming_ms(task.group.options.cron, row.since_ms) or 0
    info = {"runs": runs, "next_ms": next_ms, "is_there": bool(runs) or not row.is_over}
    if peer in state.roles:
        state.send(peer, m.Answer(request=request, info=info))


def why_recurring(state: SchedulerState, task: SchedulerTask) -> str:
    """Return what a recurring job waits for; "" = the task is none."""
    row = recurring_of(state).get(task)
    if row is None or row.is_over:
        return ""
    next_ms = upcoming_ms(task.group.options.cron, row.since_ms)
    when = "there is none any more" if next_ms is None else f"the next one is at {utc_of(next_ms)}"
    parts = ["it is recurring: its runs are tasks of their own", when]
    parts += [f"{key} is under way" for key in list(row.running)[:1]]
    parts += [f"{len(row.queued)} more wait for that"] * bool(row.queued)
    return "; ".join(parts)


FEATURE: Final = Feature(
    name="recurring jobs",
    records=(RecurringJobs,),
    notes=(RecurringJobs,),
    submitted_with={"cron": on_job, "run_of": on_run},
    tasks_cancelled=(on_cancelled,),
    assignment_begun=(on_assignment_begun,),
    deferred_ready=(on_ready,),
    settling=((RecurringJobs, settle),),
    orders={"runs": LateQuestion(on_ask_runs, Level.CLIENT)},
    invariants={
        "the keeper of recurring jobs wants runs of theirs": lambda s: [
            task.key
            for task in recurring_of(s).keeper.wants
            if task.key not in recurring_of(s).jobs
        ],
        "a run that is kept is one of its job": lambda s: [
            key
            for key, task in recurring_of(s).jobs.items()
            if task not in recurring_of(s) or key not in recurring_of(s)[task].runs
        ],
        "runs of a recurring job are under way only if they are kept": lambda s: [
            key for row in recurring_of(s).values() for key in row.running if key not in row.runs
        ],
        "times of a recurring job wait for a run of it, and not too many": lambda s: [
            task.key
            for task, row in recurring_of(s).items()
            if row.queued
            and (len(row.queued) > MAX_QUEUED or not row.running)
            and task.state == WAITING
        ],
        "a recurring job is looked at again, or waits for a run": lambda s: [
            task.key
            for task, row in recurring_of(s).items()
            if not s.awaits_peers
            if not (row.is_over or row.running or (row.look is not None and is_due(row.look)))
        ],
    },
)
