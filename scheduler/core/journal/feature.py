"""Detached jobs (`detached=True`): they are recorded, and run to their end without their client.

The journal wants the jobs that have not ended, as a client does that never leaves: by a keeper. It
has the shell record each job, and each end. Who asks for it is answered when all that it has
submitted before is recorded. What ends with a small result is recorded with it, and then let go;
a larger result stays with the workers, and is wanted on.

A scheduler that is started again is given what has not ended, and submits it as a client would. So
what workers have of it is taken over as ever. The results that these jobs read are given as
constants. A job that has failed runs again in the same way, with those that it reads and that have
failed, too: at once, whatever it waited for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.constant_calls import CONSTANT_BLOB, CONSTANT_ID, arguments_of
from ....protocol.wire.failure import Failure, cancelled, data_lost, unrecorded
from ....protocol.wire.keys import names_content
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import NO_ANSWER
from ....protocol.wire.options import CANCELLED, DONE, FAILED, LOST, TaskOptions
from ....protocol.wire.payload import Blob
from ....protocol.wire.question_arguments import BadArgument, keys_of
from ..feature import Feature, LateQuestion
from ..moves.transitions import err, release_unneeded, send_erred
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, MEMORY, RELEASED, SchedulerTask, TaskGroup
from ..requests import wanted_keys
from ..requests.submission import on_submit
from ..requests.wanted_keys import is_other
from .entries import (
    PENDING,
    AskJournal,
    Entry,
    JobAdded,
    JobEnded,
    JobForgotten,
    JobsRead,
    JournalRead,
    JournalWritten,
    ReadJobs,
    WriteJournal,
)

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..events import SchedulerTick
    from ..state import SchedulerState

#: Results that are to be recorded, in bytes. With more of them the next ones stay with workers, so
#: a slow disk costs no memory without end.
MAX_UNRECORDED_NBYTES: Final = 64 << 20
#: Ends that could not be recorded are tried again after so long.
RETRY_S: Final = 5.0
#: Rows of one message, when jobs are submitted again.
MAX_ROWS: Final = 4096
#: A job whose result is with workers: it has ended, and is wanted on.
MADE: Final = "made"
#: Options by which a job begins late, or ends early: they were for the first time.
_OF_ONE_RUN: Final = ("conditions", "start_ms", "begin_by_ms", "end_by_ms")
_STATES: Final = {"cancelled": CANCELLED, "data-lost": LOST}
_NONE: Final[Mapping[int, Failure]] = {}
_NO_JOURNAL: Final = (
    "this scheduler has no journal: start `weft scheduler` with a state directory, or a "
    "LocalCluster with journal="
)


class _Writing:
    """Entries that are being recorded."""

    __slots__ = ("entries", "nbytes", "questions")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        #: of results
        self.nbytes = 0
        #: (peer, request) of those that wait for it
        self.questions: list[tuple[int, int]] = []


class DetachedJobs:
    """The jobs that are recorded and have not ended, and what is being recorded.

    The class is in `SchedulerState.busy` while there are entries to be recorded.
    """

    __slots__ = (
        "_group",
        "_options",
        "accepted",
        "adding",
        "batches",
        "done",
        "ending",
        "is_open",
        "jobs",
        "keeper",
        "number",
        "submitters",
        "unrecorded_nbytes",
    )

    def __init__(self) -> None:
        #: The shell has a journal.
        self.is_open = False
        #: Wants all of `jobs`. It is no client of the cluster, and has no connection.
        self.keeper = ClientHandle("", "the journal", 0, receive=_note_end, is_watcher=True)
        #: {key: PENDING or MADE}
        self.jobs: dict[str, str] = {}
        #: {key: None} of those that are done, and whose result is recorded
        self.done: dict[str, None] = {}
        #: {key: its beginning, or its end, that is not recorded yet}. A job may begin anew, so
        #: entries of its key that are not the one here count no more.
        self.adding: dict[str, JobAdded] = {}
        self.ending: dict[str, JobEnded] = {}
        #: {key of `adding`: {client: None}} that have submitted it as a job.
        self.submitters: dict[str, dict[ClientHandle, None]] = {}
        #: {key: its client} of the rows that the journal takes of the message that is handled.
        self.accepted: dict[str, ClientHandle] = {}
        #: {number: what is being recorded}, in order
        self.batches: dict[int, _Writing] = {}
        #: The number of the next batch, which is in `batches` while an event is handled.
        self.number = 1
        #: of the results in `batches`
        self.unrecorded_nbytes = 0
        #: The last group of tasks, and its options as they are recorded.
        self._group: TaskGroup | None = None
        self._options: dict[str, Any] = {}

    def batch(self) -> _Writing:
        """Return the batch that the next entry joins."""
        batch = self.batches.get(self.number)
        if batch is None:
            batch = self.batches[self.number] = _Writing()
        return batch

    def options_of(self, group: TaskGroup) -> dict[str, Any]:
        """Return the options of a group as they are recorded: one map for all its tasks."""
        if group is not self._group:
            self._group = group
            self._options = group.options.changed(attempt=0, actor="").as_record()
        return self._options


def journal_of(state: SchedulerState) -> DetachedJobs:
    """Return the journal of a scheduler."""
    return state.record(DetachedJobs)


# -- jobs come -------------------------------------------------------------------------------------
def refuse(
    state: SchedulerState, client: ClientHandle, message: m.SubmitTasks
) -> Mapping[int, Failure]:
    """Return the rows that the journal cannot take, and why: they fail for this client only."""
    if client.receive is not None or not any(r.get("detached") for r in message.options):
        return _NONE
    journal = journal_of(state)
    journal.accepted = {}
    option_of = message.option_of or [0] * len(message.keys)
    conditions = [TaskOptions.of(record).conditions for record in message.options]
    refused: dict[int, Failure] = {}
    for row, (key, place) in enumerate(zip(message.keys, option_of, strict=True)):
        record = message.options[place]
        if not record.get("detached") or record.get("delivered"):
            continue  # its client has the result of the latter: it is no new job
        task = state.tasks.get(key)
        if task is not None and is_other(message, task, row) and not names_content(key):
            continue
        reads = message.dependencies[row] if message.dependencies else []
        named = conditions[place]
        if task is not None and task.args is not None:
            reads = [dependency.key for dependency in task.dependencies]
            named = task.group.options.conditions
        reason = _why_not(journal, [*reads, *(key for _, key in named)] if named else reads)
        if reason and not _is_known(journal, key, task):
            refused[row] = unrecorded(key, reason)
        else:
            journal.accepted[key] = client
    return refused


def _is_known(journal: DetachedJobs, key: str, task: SchedulerTask | None) -> bool:
    """Return whether a key is that of a job that has not ended."""
    has_ended = key in journal.ending and (task is None or task.state != MEMORY)
    return key in journal.jobs and not has_ended


def _why_not(journal: DetachedJobs, keys: list[str]) -> str:
    """Return why a task that waits for these keys cannot be a job, "" = it can."""
    if not journal.is_open:
        return _NO_JOURNAL
    for key in keys:
        if not (key in journal.jobs or key in journal.done or key in journal.accepted):
            return f"it waits for {key}, which is not detached, or has not succeeded"
    return ""


def on_detached(state: SchedulerState, task: SchedulerTask) -> None:
    """Record a new job; one that is known as a job is recorded already.

    So is one whose result its client has got: it is submitted again for others that read it.
    """
    task.group.wanted = m.WANTED_LARGE
    journal = journal_of(state)
    client = journal.accepted.pop(task.key, None)
    if client is None or task.args is None or task.state == RELEASED:
        return
    if _is_known(journal, task.key, task):
        if task.key in journal.adding:
            journal.submitters[task.key][client] = None
        return
    journal.ending.pop(task.key, None)  # it begins anew before that is recorded
    group = task.group
    added = JobAdded(
        key=task.key,
        function_id=group.function.function_id,
        function_name=group.prefix.name,
        function_blob=group.function.blob,
        args=task.args,
        dependencies=[dependency.key for dependency in task.dependencies],
        options=journal.options_of(group),
        spec_hash=task.spec_hash or m.NO_HASH,
        client=client.name,
    )
    journal.done.pop(task.key, None)
    _begin(state, added, {client: None})
    wanted_keys.want(journal.keeper, task)
    if task.state == MEMORY:  # an equal call has run before
        _end(state, JobEnded(task.key, DONE, nbytes=task.nbytes))
    elif task.state == ERRED:  # an input has failed before
        assert task.failure is not None
        _end(state, _failed(task.key, task.failure))


def _begin(state: SchedulerState, added: JobAdded, submitters: dict[ClientHandle, None]) -> None:
    """Have the beginning of a job recorded."""
    journal = journal_of(state)
    journal.jobs[added.key] = PENDING
    journal.adding[added.key] = added
    journal.submitters[added.key] = submitters
    _append(state, added)


def _append(state: SchedulerState, entry: Entry) -> None:
    journal = journal_of(state)
    batch = journal.batch()
    batch.entries.append(entry)
    if isinstance(entry, JobEnded):
        batch.nbytes += entry.result_nbytes
        journal.unrecorded_nbytes += entry.result_nbytes
    state.busy[DetachedJobs] = None


# -- jobs end --------------------------------------------------------------------------------------
def _note_end(state: SchedulerState, message: Message) -> None:
    """Have the ends recorded of which the keeper would be sent a message."""
    if isinstance(message, m.ResultsReady):
        for key, result in zip(message.keys, message.results, strict=True):
            _end(state, _done(state, key, result))
    elif isinstance(message, m.KeysInMemory):
        for key, nbytes in zip(message.keys, message.nbytes, strict=True):
            _end(state, JobEnded(key, DONE, nbytes=nbytes))
    elif isinstance(message, m.KeysErred):
        for key, place in zip(message.keys, message.failure_of, strict=True):
            _end(state, _failed(key, message.failures[place]))
    elif isinstance(message, m.KeysCancelled):
        for key in message.keys:
            _end(state, JobEnded(key, CANCELLED, cancelled(key, message.reason)))
    elif isinstance(message, m.KeysUnknown):
        for key in message.keys:
            _end(state, JobEnded(key, LOST, data_lost(key, "no worker has come back with it")))


def _failed(key: str, failure: Failure) -> JobEnded:
    return JobEnded(key, _STATES.get(failure[0], FAILED), failure)


def _done(state: SchedulerState, key: str, result: Blob | None) -> JobEnded:
    end = JobEnded(key, DONE, result=result)
    if journal_of(state).unrecorded_nbytes + end.result_nbytes > MAX_UNRECORDED_NBYTES:
        return JobEnded(key, DONE, nbytes=end.result_nbytes)
    return end


def _end(state: SchedulerState, end: JobEnded) -> None:
    """Have an end recorded. A job ends once; one whose result is with workers may yet fail."""
    journal = journal_of(state)
    before = journal.ending.get(end.key)
    if end.key not in journal.jobs or (before is not None and not before.is_made):
        return
    if end.is_made:
        if journal.jobs[end.key] == MADE:
            return
        journal.jobs[end.key] = MADE
    journal.ending[end.key] = end
    _append(state, end)


# -- the shell records -----------------------------------------------------------------------------
def settle(state: SchedulerState) -> None:
    """Hand the entries over that have come with an event."""
    journal = journal_of(state)
    del state.busy[DetachedJobs]
    state.after.append(WriteJournal(journal.number, journal.batch().entries))
    journal.number += 1


def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Take what the shell's journal reports."""
    for report in event.journal:
        if isinstance(report, JournalWritten):
            _on_written(state, report)
        elif isinstance(report, JournalRead):
            _on_read(state, report)
        elif isinstance(report, JobsRead):
            _on_jobs_read(state, report)


def _on_written(state: SchedulerState, report: JournalWritten) -> None:
    """Let go of the jobs whose end is recorded; fail those whose beginning is not."""
    journal = journal_of(state)
    batch = journal.batches.pop(report.number)
    journal.unrecorded_nbytes -= batch.nbytes
    again: list[JobEnded] = []
    over: list[str] = []
    for entry in batch.entries:
        key = entry.key
        if journal.adding.get(key) is entry:
            del journal.adding[key]
            submitters = journal.submitters.pop(key)
            if report.error:
                _fail(state, key, report.error, submitters)
        elif isinstance(entry, JobEnded) and journal.ending.get(key) is entry:
            if report.error:
                again.append(entry)
                continue
            del journal.ending[key]
            if entry.is_made:
                continue
            del journal.jobs[key]
            over.append(key)
            if entry.state == DONE:
                journal.done[key] = None
    if again:
        state.call_after(RETRY_S, _end_again, again)
    _let_go(state, over)
    for peer, request in batch.questions:
        if peer in state.roles:
            state.send(peer, m.Answer(request=request, info={}))


def _fail(
    state: SchedulerState, key: str, reason: str, submitters: dict[ClientHandle, None]
) -> None:
    """Fail a job whose beginning is not recorded, unless it has failed or was cancelled.

    If others want it, who have not submitted it as a job, it goes on as a task of theirs. In either
    case this end is recorded: an earlier job of the key may be on record.
    """
    journal = journal_of(state)
    task = state.tasks.get(key)
    if task is None or task not in journal.keeper.wants or task.state == ERRED:
        return
    journal.ending.pop(key, None)
    failure = unrecorded(key, reason)
    if all(client in submitters or client.receive is not None for client in task.wanted_by):
        err(state, task, failure)
        return
    for client in submitters:
        if task in client.wants:
            wanted_keys.unwant(client, task)
            wanted_keys.keep_function(client, task.group.function)
            send_erred(state, client, [key], failure)
            wanted_keys.drop_functions(state, client)
    for dependent in list(task.dependents or ()):
        if dependent.key in journal.jobs and dependent in journal.keeper.wants:
            err(state, dependent, failure, inherited=True)
    _end(state, _failed(key, failure))


def _end_again(state: SchedulerState, ends: list[JobEnded]) -> None:
    for end in ends:
        if journal_of(state).ending.get(end.key) is end:
            _append(state, end)


def _on_read(state: SchedulerState, read: JournalRead) -> None:
    """Go on with the jobs of earlier schedulers."""
    journal = journal_of(state)
    journal.is_open = True
    journal.jobs.update((job.key, MADE if job.key in read.made else PENDING) for job in read.jobs)
    _submit_again(state, read)
    journal.done = read.done


def _submit_again(state: SchedulerState, read: JournalRead) -> None:
    """Submit jobs again, behind the results that they read and that are not here."""
    results = {key: result for key, result in read.results.items() if key not in state.tasks}
    rows = [*(_constant(key, result) for key, result in results.items()), *read.jobs]
    for start in range(0, len(rows), MAX_ROWS):
        message = _submission(rows[start : start + MAX_ROWS], read.made)
        on_submit(state, journal_of(state).keeper, message)
    _let_go(state, results)


def _let_go(state: SchedulerState, keys: Iterable[str]) -> None:
    """End the wants of the keeper."""
    keeper = journal_of(state).keeper
    unneeded = []
    for key in keys:
        if (task := state.tasks.get(key)) is not None and task in keeper.wants:
            wanted_keys.unwant(keeper, task)
            unneeded.append(task)
    release_unneeded(state, unneeded)
    wanted_keys.drop_functions(state, keeper)


def _constant(key: str, result: object) -> JobAdded:
    """Return the call of a function that returns this result."""
    return JobAdded(
        key=key,
        function_id=CONSTANT_ID,
        function_name="constant",
        function_blob=CONSTANT_BLOB,
        args=arguments_of(result),  # type: ignore[arg-type]
        dependencies=[],
        options={},
        spec_hash=m.NO_HASH,
        client="",
    )


def _submission(jobs: list[JobAdded], made: Iterable[str]) -> m.SubmitTasks:
    """Return one message for these jobs; those that were made run only if their result is lost."""
    functions: dict[bytes, JobAdded] = {job.function_id: job for job in jobs}
    places = {function_id: place for place, function_id in enumerate(functions)}
    options: dict[str, int] = {}
    records: list[dict[str, object]] = []
    option_of = []
    for job in jobs:
        record = {**job.options, "delivered": True} if job.key in made else job.options
        text = repr(record)
        if text not in options:
            options[text] = len(records)
            records.append(record)
        option_of.append(options[text])
    return m.SubmitTasks(
        functions=list(functions),
        function_names=[job.function_name for job in functions.values()],
        function_blobs=[job.function_blob for job in functions.values()],
        function_of=[places[job.function_id] for job in jobs],
        keys=[job.key for job in jobs],
        args=[job.args for job in jobs],
        dependencies=[job.dependencies for job in jobs],
        spec_hashes=[job.spec_hash for job in jobs],
        options=records,
        option_of=option_of,
    )


# -- questions -------------------------------------------------------------------------------------
def on_ask_recorded(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Answer when all is recorded that was submitted before."""
    journal = journal_of(state)
    if journal.batches:
        last = journal.batches[max(journal.batches)]
        last.questions.append((peer, message.request))
    else:
        state.send(peer, m.Answer(request=message.request, info={}))


def on_forget(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Forget jobs that have ended, with their results; answer when that is recorded."""
    journal = journal_of(state)
    keys = keys_of(message.arguments)
    pending = [k for k in keys if journal.jobs.get(k) == PENDING and k not in journal.ending]
    if not journal.is_open or pending:
        text = f"job {pending[0]!r} has not ended: cancel it first" if pending else _NO_JOURNAL
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
        return
    for key in keys:
        for of_keys in (
            journal.jobs, journal.done, journal.adding, journal.ending, journal.submitters
        ):  # fmt: skip
            of_keys.pop(key, None)
        _append(state, JobForgotten(key))
    _let_go(state, keys)
    on_ask_recorded(state, peer, message)


def on_retry_job(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Have a job read that is to run again; its question is answered when that is recorded."""
    key = message.arguments.get("key")
    if type(key) is not str:
        raise BadArgument("key= is that of a job")
    if text := _why_not_again(state, key):
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
    else:
        state.after.append(ReadJobs(peer, message.request, key))


def _why_not_again(state: SchedulerState, key: str) -> str:
    journal = journal_of(state)
    if not journal.is_open:
        return _NO_JOURNAL
    if key in journal.done or journal.jobs.get(key) == MADE:
        return f"job {key!r} is done: forget it, and submit it anew"
    return f"job {key!r} has not ended" if key in journal.jobs else ""


def _on_jobs_read(state: SchedulerState, report: JobsRead) -> None:
    """Record the beginning of jobs anew, and submit them."""
    journal, asked, read = journal_of(state), report.asked, report.read
    if text := report.problem or _why_not_again(state, asked.key):  # another question was faster
        if asked.peer in state.roles:
            failed = m.AskFailed(request=asked.request, kind=NO_ANSWER, text=text)
            state.send(asked.peer, failed)
        return
    read.jobs = [_without_times(job) for job in read.jobs if job.key not in journal.jobs]
    for job in read.jobs:
        _begin(state, job, {})
    journal.batch().questions.append((asked.peer, asked.request))
    state.counters.tasks_retried += len(read.jobs)
    _submit_again(state, read)


def _without_times(job: JobAdded) -> JobAdded:
    options = TaskOptions.of(job.options).changed(**dict.fromkeys(_OF_ONE_RUN))
    return replace(job, options=options.as_record())


def on_ask_jobs(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Have the journal answer a question about jobs."""
    if journal_of(state).is_open:
        state.after.append(AskJournal(peer, message))
    else:
        failed = m.AskFailed(request=message.request, kind=NO_ANSWER, text=_NO_JOURNAL)
        state.send(peer, failed)


def _misjudged(state: SchedulerState) -> Iterable[str]:
    """Yield what is wanted and no job, and jobs whose end has not come that are not wanted."""
    journal = journal_of(state)
    wants = {task.key for task in journal.keeper.wants}
    yield from wants - journal.jobs.keys()
    yield from (
        key for key in journal.jobs.keys() - journal.ending.keys() - wants if key in state.tasks
    )


def _miscounted(journal: DetachedJobs) -> Iterable[int]:
    """Yield the bytes that are counted, unless these are those of the results in batches."""
    entries = [entry for batch in journal.batches.values() for entry in batch.entries]
    found = sum(entry.result_nbytes for entry in entries if isinstance(entry, JobEnded))
    if found != journal.unrecorded_nbytes:
        yield journal.unrecorded_nbytes


FEATURE: Final = Feature(
    name="journal",
    records=(DetachedJobs,),
    refusing=(refuse,),
    submitted_with={"detached": on_detached},
    settling=((DetachedJobs, settle),),
    ticked=(on_ticked,),
    orders={
        "recorded": LateQuestion(on_ask_recorded, Level.CLIENT),
        "forget_jobs": LateQuestion(on_forget, Level.CLIENT),
        "retry_job": LateQuestion(on_retry_job, Level.CLIENT),
        "jobs": LateQuestion(on_ask_jobs, Level.VIEW),
        "job": LateQuestion(on_ask_jobs, Level.CLIENT),
        "job_counts": LateQuestion(on_ask_jobs, Level.VIEW),
    },
    invariants={
        "the journal wants its jobs, and no other tasks": _misjudged,
        "results that are to be recorded are counted": lambda s: _miscounted(journal_of(s)),
        "clients are noted of the jobs whose beginning is not recorded, and of no others": (
            lambda s: journal_of(s).submitters.keys() ^ journal_of(s).adding.keys()
        ),
        "entries of the journal are handed over with the event": lambda s: [
            number for number in journal_of(s).batches if number == journal_of(s).number
        ],
    },
)
