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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.constant_calls import CONSTANT_ID
from ....protocol.wire.failure import Failure, unrecorded
from ....protocol.wire.keys import names_content
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import NO_ANSWER
from ....protocol.wire.options import DONE, TaskOptions
from ....protocol.wire.question_arguments import BadArgument, Info, keys_of
from ..feature import Feature, LateQuestion
from ..moves.transitions import err, send_erred
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, MEMORY, SchedulerTask
from ..requests import wanted_keys
from ..requests.wanted_keys import is_other
from . import forgetting, reading
from .entries import (
    PENDING,
    AskJournal,
    JobAdded,
    JobChanged,
    JobEnded,
    JobsRead,
    JournalProbed,
    JournalRead,
    JournalWritten,
    ReadJobs,
    RowsChanged,
    WriteJournal,
)
from .jobs import (
    MADE,
    NO_JOURNAL,
    DetachedJobs,
    append,
    end_job,
    failed_end,
    is_of_unrecorded,
    journal_of,
    miscounted,
    recorded,
    when_written,
)
from .resubmission import let_go, submit_again

if TYPE_CHECKING:
    from ..events import SchedulerTick
    from ..state import SchedulerState

#: Ends that could not be recorded are tried again after so long.
RETRY_S: Final = 5.0
#: Options by which a job begins late, or ends early: they were for the first time.
_OF_ONE_RUN: Final = ("conditions", "start_ms", "begin_by_ms", "end_by_ms")
_NONE: Final[Mapping[int, Failure | None]] = {}


# -- jobs come -------------------------------------------------------------------------------------
def refuse(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Collection[int],
) -> Mapping[int, Failure | None]:
    """Return the rows that the journal cannot take, and why: they fail for this client only.

    And the jobs that have ended, if the client submits again all that it wants, or their results
    are at workers.
    """
    journal = journal_of(state)
    if client is journal.keeper or not any(r.get("detached") for r in message.options):
        return _NONE  # the keeper submits what is recorded
    journal.accepted = {}
    option_of = message.option_of or [0] * len(message.keys)
    conditions = [TaskOptions.of(record).conditions for record in message.options]
    rows: dict[int, Failure | None] = {}
    ended: list[int] = []
    delivered: list[int] = []
    for row, (key, place) in enumerate(zip(message.keys, option_of, strict=True)):
        record = message.options[place]
        if not record.get("detached") or row in refused:
            continue
        task = state.tasks.get(key)
        if record.get("delivered"):  # its client has the result: it is no new job
            if journal.is_done(key) and (task is None or task.is_without_recipe):
                delivered.append(row)
            continue
        if journal.has_ended(key) and journal.is_again(client, task):
            ended.append(row)
            continue
        if task is not None and is_other(message, task, row) and not names_content(key):
            continue
        if task is not None and journal.is_done(key) and reading.is_given(task):
            ended.append(row)  # its client may submit it as an input of another task
            continue
        reads = message.dependencies[row] if message.dependencies else []
        named = conditions[place]
        if task is not None and task.args is not None:
            reads = [dependency.key for dependency in task.dependencies]
            named = task.group.options.conditions
        reason = _why_not(journal, reads, named)
        if "\0" in key:  # PostgreSQL has no such texts
            reason = reason or "its key has a NUL character"
        if reason and not _is_known(journal, key, task):
            rows[row] = unrecorded(key, reason)
        else:
            journal.accepted[key] = client
    reading.want_again(state, client, message, ended)
    reading.want_delivered(state, client, message, delivered)
    return rows | dict.fromkeys([*ended, *delivered])


def _is_known(journal: DetachedJobs, key: str, task: SchedulerTask | None) -> bool:
    """Return whether a key is that of a job that has not ended, or is done and not recorded yet.

    In the latter case the keeper may have lost its task, which was made again and cancelled.
    """
    end = journal.ending.get(key)
    goes_on = end is None or (end.state == DONE and task in journal.keeper.wants)
    return key in journal.jobs and goes_on


def _why_not(journal: DetachedJobs, reads: list[str], named: Sequence[Sequence[str]]) -> str:
    """Return why a task that waits for these cannot be a job, "" = it can.

    It may have conditions on jobs that have failed, and reads none.
    """
    if not journal.is_open:
        return NO_JOURNAL
    for key in reads:
        if key not in journal.jobs and key not in journal.accepted and not journal.is_done(key):
            return f"it waits for {key}, which is not detached, or has not succeeded"
    for _, key in named:
        if not (key in journal.jobs or key in journal.accepted or key in journal.ended):
            return f"it waits for {key}, which is not detached"
    return ""


def on_detached(state: SchedulerState, task: SchedulerTask) -> None:
    """Record a new job; one that is known as a job is recorded already.

    So is one whose result its client has got: it is submitted again for others that read it.
    """
    group = task.group
    group.wanted = m.WANTED_LARGE
    group.needed_again = reading.on_needed_again
    journal = journal_of(state)
    key = task.key
    client = journal.accepted.pop(key, None)
    if client is None or task.args is None:
        return
    if _is_known(journal, key, task):
        if key in journal.adding:
            submitters = journal.submitters[key]
            if client not in submitters:
                journal.submitters[key] = (*submitters, client)
        return
    if journal.is_done(key) and group.function.function_id == CONSTANT_ID:
        return  # its result on record is to be given to others
    dependencies = task.dependencies
    added = JobAdded(
        key,
        group.function.function_id,
        group.prefix.name,
        group.function.blob,
        task.args,
        [dependency.key for dependency in dependencies] if dependencies else [],
        journal.options_of(group),
        task.spec_hash or m.NO_HASH,
        client.name,
        # Those in tasks have the user of their task.
        (client.user if client.worker is None else group.user).name,
    )
    _begin(state, added, client.alone)
    wanted_keys.want(journal.keeper, task)
    if task.state == MEMORY:  # an equal call has run before
        end_job(state, JobEnded(task.key, DONE, nbytes=task.nbytes))
    elif task.state == ERRED:  # an input has failed before
        assert task.failure is not None
        end_job(state, failed_end(task.key, task.failure))


def _begin(state: SchedulerState, added: JobAdded, submitters: tuple[ClientHandle, ...]) -> None:
    """Have the beginning of a job recorded."""
    journal = journal_of(state)
    before = journal.ending.pop(added.key, None)  # it may begin anew before its end is recorded
    if before is not None or added.key in journal.ended:
        journal.tell_followers(state, [added.key])
    journal.jobs[added.key] = PENDING
    journal.unrecorded.pop(added.key, None)
    journal.adding[added.key] = added
    journal.submitters[added.key] = submitters
    append(state, added)


def record_change(state: SchedulerState, task: SchedulerTask, options: TaskOptions) -> None:
    """Record other options of a job that has not ended; no effect on a task that is no job."""
    if journal_of(state).jobs.get(task.key) == PENDING:
        append(state, JobChanged(task.key, recorded(options)))


# -- the shell records -----------------------------------------------------------------------------
def settle(state: SchedulerState) -> None:
    """Hand the entries over that have come with an event."""
    journal = journal_of(state)
    del state.busy[DetachedJobs]
    if journal.number in journal.batches:
        state.after.append(WriteJournal(journal.number, journal.batch().entries))
        journal.number += 1
    reading.hand_over(state)


def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Take what the shell's journal reports."""
    for report in event.journal:
        if isinstance(report, JournalWritten):
            _on_written(state, report)
        elif isinstance(report, JournalRead):
            _on_read(state, report)
        elif isinstance(report, JournalProbed):
            _note_error(state, report.error)
        elif isinstance(report, JobsRead):
            _on_jobs_read(state, report)


def _on_written(state: SchedulerState, report: JournalWritten) -> None:
    """Let go of the jobs whose end is recorded; fail those whose beginning is not."""
    journal = journal_of(state)
    _note_error(state, report.error)
    batch = journal.batches.pop(report.number)
    journal.unrecorded_nbytes -= batch.nbytes
    jobs, adding, ending, error = journal.jobs, journal.adding, journal.ending, report.error
    again: list[JobEnded | RowsChanged] = []
    over: list[str] = []
    for entry in batch.entries:
        if type(entry) is JobAdded:
            key = entry.key
            if adding.get(key) is entry:
                del adding[key]
                submitters = journal.submitters.pop(key)
                if error:
                    journal.note_unrecorded(key, error)
                    _fail(state, key, error, submitters)
                else:
                    journal.ended.pop(key, None)
        elif type(entry) is JobEnded:
            key = entry.key
            if ending.get(key) is not entry:
                continue
            if error:
                again.append(entry)
                continue
            del ending[key]
            if entry.is_made:
                continue
            del jobs[key]
            over.append(key)
            if key not in report.refused and not is_of_unrecorded(entry):
                journal.ended[key] = entry.state
        elif error and type(entry) is RowsChanged:
            again.append(entry)  # its array records it again after the same time
    journal.tell_followers(state, report.dropped)
    for key in report.dropped:
        journal.ended.pop(key, None)
        journal.followers.pop(key, None)
    if again:
        journal.again[report.number] = again
        journal.unrecorded_nbytes += sum(entry.result_nbytes for entry in again)
        state.call_after(RETRY_S, _end_again, report.number)
    let_go(state, over)
    for then in batch.then:
        then(state, report.error)
    for question in batch.questions:
        _answer_recorded(state, *question)


def _note_error(state: SchedulerState, error: str) -> None:
    """Log when the journal cannot be written, and when it can again."""
    journal = journal_of(state)
    if error and not journal.error:
        state.log(
            "warning",
            f"{error}; new detached calls are refused until it can be written",
            "journal-failed",
        )
    elif journal.error and not error:
        state.log("info", "the journal is written again")
    journal.error = error
    if error:
        journal.failed_at = state.now


def _fail(
    state: SchedulerState, key: str, reason: str, submitters: tuple[ClientHandle, ...]
) -> None:
    """Fail a job whose beginning is not recorded, unless it has failed or was cancelled.

    If others want it, who have not submitted it as a job, it goes on as a task of theirs. In any
    case this end is recorded: an earlier job of the key may be on record. How the job has ended
    before is that of no job on record.
    """
    journal = journal_of(state)
    task = state.tasks.get(key)
    failure = unrecorded(key, reason)
    journal.ending.pop(key, None)
    if task is None or task not in journal.keeper.wants or task.state == ERRED:
        end_job(state, failed_end(key, failure))
        return
    is_theirs = all(c in submitters or c.receive is not None for c in task.wanted_by)
    if is_theirs or any(c.peer is None for c in submitters):  # one that is away asks later
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
    end_job(state, failed_end(key, failure))


def _end_again(state: SchedulerState, number: int) -> None:
    """Try again to record the ends of a batch, unless they count no more."""
    journal = journal_of(state)
    for entry in journal.again.pop(number):
        journal.unrecorded_nbytes -= entry.result_nbytes
        if isinstance(entry, JobEnded) and journal.ending.get(entry.key) is entry:
            append(state, entry)


def _on_read(state: SchedulerState, read: JournalRead) -> None:
    """Go on with the jobs of earlier schedulers."""
    journal = journal_of(state)
    journal.is_open = True
    journal.jobs.update((job.key, MADE if job.key in read.made else PENDING) for job in read.jobs)
    journal.ended = read.ended
    submit_again(state, read)


# -- questions -------------------------------------------------------------------------------------
def on_ask_recorded(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Answer when all is recorded that was submitted before, with those `keys` that are not.

    A job may have ended before that is known. Then no failure of it tells its client.
    """
    keys = keys_of(message.arguments) if message.arguments.get("keys") else ()
    _answer_later(state, peer, message.request, keys)


def answer_when_recorded(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Answer a question when all is recorded that was to be recorded before."""
    _answer_later(state, peer, message.request, ())


def _answer_later(state: SchedulerState, peer: int, request: int, keys: Sequence[str]) -> None:
    journal = journal_of(state)
    if journal.batches:
        last = journal.batches[max(journal.batches)]
        last.questions.append((peer, request, keys))
    else:
        _answer_recorded(state, peer, request, keys)


def _answer_recorded(state: SchedulerState, peer: int, request: int, keys: Sequence[str]) -> None:
    journal = journal_of(state)
    if peer not in state.roles:
        return
    info: Info = {}
    if keys:
        why = journal.unrecorded if journal.is_open else dict.fromkeys(keys, NO_JOURNAL)
        info["unrecorded"] = {key: why[key] for key in keys if key in why}
    state.send(peer, m.Answer(request=request, info=info))


def on_retry_job(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Have a job read that is to run again; its question is answered when that is recorded."""
    key = message.arguments.get("key")
    if type(key) is not str:
        raise BadArgument("key= is that of a job")
    if text := why_not_again(state, key):
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
    else:
        state.after.append(ReadJobs(peer, message.request, key))


def why_not_again(state: SchedulerState, key: str) -> str:
    """Return why a job cannot run again, "" = it can."""
    journal = journal_of(state)
    if not journal.is_open:
        return NO_JOURNAL
    if journal.is_done(key) or journal.jobs.get(key) == MADE:
        return f"job {key!r} is done: forget it, and submit it anew"
    return f"job {key!r} has not ended" if key in journal.jobs else ""


def _on_jobs_read(state: SchedulerState, report: JobsRead) -> None:
    """Record the beginning of jobs anew, and submit them."""
    journal, asked, read = journal_of(state), report.asked, report.read
    if text := report.problem or why_not_again(state, asked.key):  # another question was faster
        if asked.peer in state.roles:
            failed = m.AskFailed(request=asked.request, kind=NO_ANSWER, text=text)
            state.send(asked.peer, failed)
        return
    read.jobs = [_without_times(job) for job in read.jobs if job.key not in journal.jobs]
    for job in read.jobs:
        _begin(state, job, ())
    when_written(state, partial(_answer_again, asked=asked))
    state.counters.tasks_retried += len(read.jobs)
    submit_again(state, read)


def _answer_again(state: SchedulerState, error: str, asked: ReadJobs) -> None:
    """Answer that a job runs again: that is recorded, or it has failed."""
    if asked.peer not in state.roles:
        return
    if error:
        text = f"job {asked.key!r} does not run again: {error}"
        state.send(asked.peer, m.AskFailed(request=asked.request, kind=NO_ANSWER, text=text))
    else:
        state.send(asked.peer, m.Answer(request=asked.request, info={}))


def _without_times(job: JobAdded) -> JobAdded:
    options = TaskOptions.of(job.options).changed(**dict.fromkeys(_OF_ONE_RUN))
    return replace(job, options=options.as_record())


def on_ask_jobs(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Have the journal answer a question about jobs."""
    if journal_of(state).is_open:
        state.after.append(AskJournal(peer, message))
    else:
        failed = m.AskFailed(request=message.request, kind=NO_ANSWER, text=NO_JOURNAL)
        state.send(peer, failed)


def _misjudged(state: SchedulerState) -> Iterable[str]:
    """Yield what is wanted and no job, and jobs whose end has not come that are not wanted."""
    journal = journal_of(state)
    wants = {task.key for task in journal.keeper.wants}
    yield from wants - journal.jobs.keys() - journal.forgetting.keys()
    yield from (
        key for key in journal.jobs.keys() - journal.ending.keys() - wants if key in state.tasks
    )


FEATURE: Final = Feature(
    name="journal",
    records=(DetachedJobs, reading.GivenResults),
    notes=(reading.GivenResults,),
    refusing=(refuse,),
    submitted_with={"detached": on_detached},
    settling=((DetachedJobs, settle),),
    ticked=(on_ticked, reading.on_ticked),
    assigned={CONSTANT_ID: reading.on_assigned},
    client_connected=(reading.note_client,),
    client_gone=(reading.note_gone,),
    may_come=(reading.is_on_record,),
    recipe_needed=(reading.on_needed,),
    orders={
        "recorded": LateQuestion(on_ask_recorded, Level.CLIENT),
        "forget_jobs": LateQuestion(forgetting.on_forget, Level.CLIENT),
        "retry_job": LateQuestion(on_retry_job, Level.CLIENT),
        "jobs": LateQuestion(on_ask_jobs, Level.VIEW),
        "job": LateQuestion(on_ask_jobs, Level.CLIENT),
        "job_output": LateQuestion(on_ask_jobs, Level.CLIENT),
        "job_counts": LateQuestion(on_ask_jobs, Level.VIEW),
    },
    invariants={
        "the journal wants its jobs, and no other tasks": _misjudged,
        "results that are to be recorded are counted": lambda s: miscounted(journal_of(s)),
        "clients are noted of the jobs whose beginning is not recorded, and of no others": (
            lambda s: journal_of(s).submitters.keys() ^ journal_of(s).adding.keys()
        ),
        "entries of the journal are handed over with the event": lambda s: [
            number for number in journal_of(s).batches if number == journal_of(s).number
        ],
        "ends of jobs are asked for with the event": lambda s: [
            key
            for key in journal_of(s).reading
            if not journal_of(s).asked and reading.given_in(s).look is None
        ],
    },
)
