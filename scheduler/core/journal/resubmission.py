"""Submits the jobs of the journal again, as a client does after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ....protocol.rotation import USER_SHIFT
from ....protocol.wire import messages as m
from ....protocol.wire.constant_calls import CONSTANT_BLOB, CONSTANT_ID, arguments_of
from ..moves.transitions import release_unneeded
from ..records.users import user_of
from ..requests import wanted_keys
from ..requests.submission import on_submit
from ..upkeep.running_limits import note_user
from .entries import JobAdded, JournalRead
from .jobs import journal_of

if TYPE_CHECKING:
    from ....protocol.wire.payload import Blob
    from ..state import SchedulerState

#: Rows of one message.
MAX_ROWS: Final = 4096


def submit_again(state: SchedulerState, read: JournalRead, *, lets_go: bool = True) -> None:
    """Submit jobs again, behind the results that they read and that are not here.

    The keeper wants these results then, unless it `lets_go` of what nobody else wants.
    """
    results = {key: result for key, result in read.results.items() if key not in state.tasks}
    rows = [*(_constant(key, result) for key, result in results.items()), *read.jobs]
    keeper = journal_of(state).keeper
    own = keeper.number, keeper.user
    for name, jobs in _messages(rows):
        if name:
            keeper.user = user = user_of(state.users, name)
            keeper.number = user.number << USER_SHIFT
            note_user(state, user)
        on_submit(state, keeper, _submission(jobs, read.made))
        keeper.number, keeper.user = own
    if lets_go:
        let_go(state, results)


def give_results(state: SchedulerState, results: Mapping[str, tuple[Blob, bytes]]) -> None:
    """Give the tasks of jobs that are done the results on record, with their contents' hashes."""
    keeper = journal_of(state).keeper
    rows = [replace(_constant(key, one), spec_hash=of) for key, (one, of) in results.items()]
    for _, constants in _messages(rows):
        on_submit(state, keeper, _submission(constants, ()))
    let_go(state, results)


def _messages(jobs: Iterable[JobAdded]) -> Iterator[tuple[str, list[JobAdded]]]:
    """Yield the users of jobs, with jobs for one message; no job comes before those it waits for.

    Users take turns, so the jobs of one may pass those of others.
    """
    by_user: dict[str, list[JobAdded]] = {}
    user_by_key: dict[str, str] = {}  # of those in `by_user`
    for job in jobs:
        waits_for = [*job.dependencies, *(key for _, key in job.options.get("conditions", ()))]
        of_user = by_user.setdefault(job.user, [])
        if len(of_user) >= MAX_ROWS or any(
            user_by_key.get(key, job.user) != job.user for key in waits_for
        ):
            yield from by_user.items()
            of_user = []
            by_user, user_by_key = {job.user: of_user}, {}
        of_user.append(job)
        user_by_key[job.key] = job.user
    yield from by_user.items()


def let_go(state: SchedulerState, keys: Iterable[str]) -> None:
    """End the wants of the keeper."""
    keeper = journal_of(state).keeper
    tasks, wants = state.tasks, keeper.wants
    unneeded = []
    for key in keys:
        if (task := tasks.get(key)) in wants:
            assert task is not None
            wanted_keys.unwant(keeper, task)
            if not task.wanted_by:
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
