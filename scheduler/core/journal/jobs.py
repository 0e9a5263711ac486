"""The jobs of the journal that have not ended, their ends, and what is being recorded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import UNRECORDED, Failure, cancelled, data_lost
from ....protocol.wire.options import CANCELLED, DONE, FAILED, LOST
from ....protocol.wire.payload import nbytes_of
from ..records.peers import ClientHandle
from ..records.tasks import SchedulerTask, TaskGroup
from .entries import Entry, JobAdded, JobEnded, OutputRecorded, RowsChanged

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ....protocol.wire.options import TaskOptions
    from ..state import SchedulerState

#: Bytes of results and output that are to be recorded. With more of them the next results stay with
#: workers, and output is left out. So a disk that is slow, or full, costs no memory without end.
MAX_UNRECORDED_NBYTES: Final = 64 << 20
#: Jobs that are known to be on no record; the oldest go first. Whoever submitted them asks at once.
MAX_UNRECORDED: Final = 10_000
#: A job whose result is with workers: it has ended, and is wanted on.
MADE: Final = "made"
NO_JOURNAL: Final = (
    "this scheduler has no journal: start `weft scheduler` with a state directory, or a "
    "LocalCluster with journal="
)
#: Entries whose bytes are counted.
_LARGE: Final = (JobEnded, OutputRecorded, RowsChanged)
_STATES: Final = {"cancelled": CANCELLED, "data-lost": LOST}


class _Writing:
    """Entries that are being recorded."""

    __slots__ = ("entries", "nbytes", "questions", "then")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        #: of results and output
        self.nbytes = 0
        #: (peer, request, keys that are asked about) of those that wait for it
        self.questions: list[tuple[int, int, Sequence[str]]] = []
        #: called with the error of this batch, "" = it is recorded
        self.then: list[Callable[[SchedulerState, str], None]] = []


@dataclass(slots=True)
class Forgotten:
    """A job that is being forgotten: what is known of it if that cannot be recorded."""

    #: see `DetachedJobs`; "" and None = it was not there
    job: str
    ended: str
    ending: JobEnded | None
    #: those who have asked for it, and are not answered yet
    n_questions: int = 0
    #: for one of them
    is_recorded: bool = False


class SubmitsAgain(Enum):
    """The jobs that a client submits again first, and that do not begin anew if they have ended."""

    NOTHING = auto()
    ALL = auto()  #: it was at an earlier scheduler, or here, and its lease has ended since
    WANTED = auto()  #: what it wants here: its connection broke, and others may be new jobs


class DetachedJobs:
    """The jobs that are recorded and have not ended, and what is being recorded.

    The class is in `SchedulerState.busy` while there are entries to be recorded.
    """

    __slots__ = (
        "_group",
        "_options",
        "accepted",
        "adding",
        "again",
        "asked",
        "batches",
        "ended",
        "ending",
        "error",
        "failed_at",
        "followers",
        "forgetting",
        "is_open",
        "jobs",
        "keeper",
        "number",
        "read_problem",
        "reading",
        "returning",
        "submitters",
        "unrecorded",
        "unrecorded_nbytes",
    )

    def __init__(self) -> None:
        #: The shell has a journal.
        self.is_open = False
        #: Wants all of `jobs`. It is no client of the cluster, and has no connection.
        self.keeper = ClientHandle("", "the journal", 0, receive=_note_end, is_watcher=True)
        #: {key: PENDING or MADE}
        self.jobs: dict[str, str] = {}
        #: {key: how it has ended} of those on record. The result of one that is done is, too.
        #: One that begins anew is here, as it ended before, until that is recorded.
        self.ended: dict[str, str] = {}
        #: {key: None} of these that the journal reads or is to read, and those that it reads now
        self.reading: dict[str, None] = {}
        self.asked: list[str] = []
        #: why they could not be read the last time; "" = they were
        self.read_problem = ""
        #: {client: what it submits again before anything else}
        self.returning: dict[ClientHandle, SubmitsAgain] = {}
        #: {key: why} of those whose beginning could not be recorded, the latest. It finds its
        #: oldest at once.
        self.unrecorded: OrderedDict[str, str] = OrderedDict()
        #: {key: called with it, before its job leaves the record or begins anew}, of the keys that
        #: other jobs name
        self.followers: dict[str, Callable[[SchedulerState, list[str]], None]] = {}
        #: {key: its beginning, or its end, that is not recorded yet}. A job may begin anew, so
        #: entries of its key that are not the one here count no more.
        self.adding: dict[str, JobAdded] = {}
        self.ending: dict[str, JobEnded] = {}
        #: Those of which it is to be recorded that they are forgotten. The keeper may want them.
        self.forgetting: dict[str, Forgotten] = {}
        #: {key of `adding`: the clients that have submitted it as a job}
        self.submitters: dict[str, tuple[ClientHandle, ...]] = {}
        #: {key: its client} of the rows that the journal takes of the message that is handled.
        self.accepted: dict[str, ClientHandle] = {}
        #: {number: what is being recorded}, in order
        self.batches: dict[int, _Writing] = {}
        #: The number of the next batch, which is in `batches` while an event is handled.
        self.number = 1
        #: {number of a batch that could not be recorded: its ends}, until they are tried again
        self.again: dict[int, list[JobEnded | RowsChanged]] = {}
        #: of the results and the output in `batches`, and of those in `again`
        self.unrecorded_nbytes = 0
        #: why the last batch could not be recorded, and when that was; "" = it was
        self.error = ""
        self.failed_at = 0.0
        #: The last group of tasks, and its options as they are recorded.
        self._group: TaskGroup | None = None
        self._options: dict[str, Any] = {}

    def batch(self) -> _Writing:
        """Return the batch that the next entry joins."""
        batch = self.batches.get(self.number)
        if batch is None:
            batch = self.batches[self.number] = _Writing()
        return batch

    def tell_followers(self, state: SchedulerState, keys: list[str]) -> None:
        """Tell others that jobs which have ended are to leave the record, or to begin anew."""
        followed: dict[Callable[[SchedulerState, list[str]], None], list[str]] = {}
        for key in keys if self.followers else ():
            if (follow := self.followers.get(key)) is not None:
                followed.setdefault(follow, []).append(key)
        for follow, named in followed.items():
            follow(state, named)

    def is_done(self, key: str) -> bool:
        """Return whether the result of a job is recorded."""
        return key not in self.jobs and self.ended.get(key) == DONE

    def end_of(self, key: str) -> str:
        """Return how a job has ended that is on record, or soon will be; "" = it has not."""
        if (end := self.ending.get(key)) is not None:
            return end.state
        return "" if key in self.jobs else self.ended.get(key, "")

    def note_unrecorded(self, key: str, reason: str) -> None:
        """Note that a job is on no record, for those who ask whether it is."""
        self.unrecorded[key] = reason
        if len(self.unrecorded) > MAX_UNRECORDED:
            self.unrecorded.popitem(last=False)

    def has_ended(self, key: str) -> bool:
        """Return whether a job has ended, and has not begun anew."""
        return key in self.ended and key not in self.jobs

    def is_again(self, client: ClientHandle, task: SchedulerTask | None) -> bool:
        """Return whether a client submits a job only because it has come back."""
        again = self.returning.get(client)  # keepers have no connection
        return again is SubmitsAgain.ALL or (again is SubmitsAgain.WANTED and task in client.wants)

    def options_of(self, group: TaskGroup) -> dict[str, Any]:
        """Return the options of a group as they are recorded: one map for all its tasks."""
        if group is not self._group:
            self._group = group
            self._options = recorded(group.options)
        return self._options


def recorded(options: TaskOptions) -> dict[str, Any]:
    """Return options as they are recorded: without what is said of one submission."""
    return options.changed(attempt=0, actor="", delivered=False).as_record()


def journal_of(state: SchedulerState) -> DetachedJobs:
    """Return the journal of a scheduler."""
    return state.record(DetachedJobs)


def append(state: SchedulerState, *entries: Entry) -> None:
    """Have entries recorded, in this order."""
    journal = journal_of(state)
    batch = journal.batch()
    batch.entries += entries
    nbytes = 0
    for entry in entries:
        if isinstance(entry, _LARGE):
            nbytes += entry.result_nbytes
    batch.nbytes += nbytes
    journal.unrecorded_nbytes += nbytes
    state.busy[DetachedJobs] = None


def when_written(state: SchedulerState, then: Callable[[SchedulerState, str], None]) -> None:
    """Call `then` when the entries of this event are recorded, "", or cannot be, with a reason."""
    journal_of(state).batch().then.append(then)
    state.busy[DetachedJobs] = None


def append_output(state: SchedulerState, entry: OutputRecorded) -> None:
    """Have output recorded; with too much that waits, only that there was some."""
    if journal_of(state).unrecorded_nbytes + entry.result_nbytes > MAX_UNRECORDED_NBYTES:
        entry.output = "", "", True
    append(state, entry)


def _note_end(state: SchedulerState, message: Message) -> None:
    """Have the ends recorded of which the keeper would be sent a message."""
    end_jobs(state, ends_in(state, message))


def ends_in(state: SchedulerState, message: Message) -> Iterator[JobEnded]:
    """Yield the ends of tasks of which a keeper would be sent a message."""
    if isinstance(message, m.ResultsReady):
        room = MAX_UNRECORDED_NBYTES - journal_of(state).unrecorded_nbytes
        for key, result in zip(message.keys, message.results, strict=True):
            nbytes = nbytes_of(result)
            if nbytes <= room:
                room -= nbytes
                yield JobEnded(key, DONE, None, result)
            else:
                yield JobEnded(key, DONE, nbytes=nbytes)
    elif isinstance(message, m.KeysInMemory):
        for key, nbytes in zip(message.keys, message.nbytes, strict=True):
            yield JobEnded(key, DONE, nbytes=nbytes)
    elif isinstance(message, m.KeysErred):
        for key, place in zip(message.keys, message.failure_of, strict=True):
            yield failed_end(key, message.failures[place])
    elif isinstance(message, m.KeysCancelled):
        for key in message.keys:
            yield JobEnded(key, CANCELLED, cancelled(key, message.reason))
    elif isinstance(message, m.KeysUnknown):
        for key in message.keys:
            yield JobEnded(key, LOST, data_lost(key, "no worker has come back with it"))


def failed_end(key: str, failure: Failure) -> JobEnded:
    return JobEnded(key, _STATES.get(failure[0], FAILED), failure)


def is_of_unrecorded(end: JobEnded) -> bool:
    """Return whether a job has ended because it could not be recorded itself."""
    return end.failure is not None and end.failure[:2] == [UNRECORDED, end.key]


def end_job(state: SchedulerState, end: JobEnded) -> None:
    """Have an end recorded."""
    end_jobs(state, (end,))


def end_jobs(state: SchedulerState, ends: Iterable[JobEnded]) -> None:
    """Have ends recorded. A job ends once; one whose result is with workers may yet fail."""
    journal = journal_of(state)
    jobs, ending = journal.jobs, journal.ending
    entries = []
    for end in ends:
        key = end.key
        before = ending.get(key)
        if key not in jobs or (before is not None and not before.is_made):
            continue
        if end.result is None and end.is_made:
            if jobs[key] == MADE:
                continue
            jobs[key] = MADE
        ending[key] = end
        entries.append(end)
    if entries:
        append(state, *entries)


def miscounted(journal: DetachedJobs) -> Iterable[int]:
    """Yield the bytes that are counted, unless these are those of what waits to be recorded."""
    entries = [entry for batch in journal.batches.values() for entry in batch.entries]
    entries += [entry for ends in journal.again.values() for entry in ends]
    found = sum(entry.result_nbytes for entry in entries if isinstance(entry, _LARGE))
    if found != journal.unrecorded_nbytes:
        yield journal.unrecorded_nbytes
