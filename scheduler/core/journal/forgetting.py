"""Jobs that have ended are forgotten, with their results.

Nothing is known of them from then on, but a result that is with workers stays there until that is
recorded. If it cannot be, the jobs are on record as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.messages.questions import NO_ANSWER
from ....protocol.wire.question_arguments import keys_of
from .entries import PENDING, JobForgotten
from .jobs import NO_JOURNAL, Forgotten, append, journal_of, when_written
from .resubmission import let_go

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_forget(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Forget jobs that have ended, with their results; answer when that is recorded."""
    journal = journal_of(state)
    keys = [*dict.fromkeys(keys_of(message.arguments))]
    reasons = map(partial(_why_kept, state), keys)
    text = next(filter(None, reasons), "") if journal.is_open else NO_JOURNAL
    if text:
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
        return
    journal.tell_followers(state, keys)
    for key in keys:
        if key in journal.jobs or key in journal.ended or key not in journal.forgetting:
            journal.forgetting[key] = Forgotten(
                journal.jobs.pop(key, ""),
                journal.ended.pop(key, ""),
                journal.ending.pop(key, None),
            )
            for of_keys in (journal.followers, journal.adding, journal.submitters):
                of_keys.pop(key, None)
        append(state, JobForgotten(key))
    forgotten = {key: journal.forgetting[key] for key in keys}
    for one in forgotten.values():
        one.n_questions += 1
    when_written(state, partial(_on_written, peer, message.request, forgotten))


def _on_written(
    peer: int,
    request: int,
    forgotten: Mapping[str, Forgotten],
    state: SchedulerState,
    error: str,
) -> None:
    """Answer that jobs are forgotten, or why they are not: they stay on record."""
    journal = journal_of(state)
    over = []
    for key, one in forgotten.items():
        one.n_questions -= 1
        one.is_recorded |= not error
        if one.n_questions or journal.forgetting.get(key) is not one:
            continue
        del journal.forgetting[key]
        if key in journal.jobs:
            continue  # it has begun anew
        if one.is_recorded:
            over.append(key)
        else:
            _restore(state, key, one)
    let_go(state, over)
    answer: m.Answer | m.AskFailed = m.Answer(request=request, info={})
    if error:
        text = f"the jobs are not forgotten: {error}"
        answer = m.AskFailed(request=request, kind=NO_ANSWER, text=text)
    if peer in state.roles:
        state.send(peer, answer)


def _restore(state: SchedulerState, key: str, one: Forgotten) -> None:
    journal = journal_of(state)
    if one.job:
        journal.jobs[key] = one.job
    if one.ended:
        journal.ended[key] = one.ended
    if one.ending is not None:  # nobody has noted whether it is recorded
        journal.ending[key] = one.ending
        append(state, one.ending)


def _why_kept(state: SchedulerState, key: str) -> str:
    """Return why a job cannot be forgotten, "" = it can."""
    if _is_open(state, key):
        return f"job {key!r} has not ended: cancel it first"
    task = state.tasks.get(key)
    for dependent in (task and task.dependents) or ():
        if _is_open(state, dependent.key):
            return f"job {dependent.key!r} reads {key!r}, and has not ended: cancel it first"
    return ""


def _is_open(state: SchedulerState, key: str) -> bool:
    journal = journal_of(state)
    return journal.jobs.get(key) == PENDING and key not in journal.ending
