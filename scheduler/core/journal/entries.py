"""What the core and the journal exchange: entries to be recorded, and what was read.

The journal itself is the shell's (`scheduler/journal`): a database, and a thread that writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ....protocol.wire.failure import Failure
from ....protocol.wire.messages import Ask
from ....protocol.wire.options import DONE
from ....protocol.wire.payload import Blob, blob_nbytes
from ..actions import Action

#: The states of a job that has not ended, and the ones in which it can end are those of conditions.
PENDING: Final = "pending"


def text_nbytes(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


@dataclass(slots=True)
class JobAdded:
    """A job as it was submitted."""

    key: str
    function_id: bytes
    function_name: str
    function_blob: Blob
    args: Blob
    dependencies: list[str]
    options: dict[str, Any]
    spec_hash: bytes
    #: the name of the client that submitted it
    client: str
    #: who has its turns and limits, "" = no user with a name
    user: str = ""
    #: when it was submitted first, seconds since 1970; 0 = it is submitted now
    submitted: float = field(default=0.0, compare=False)


@dataclass(slots=True)
class JobEnded:
    """The end of a job."""

    key: str
    #: done, failed, cancelled or lost
    state: str
    #: why, unless it is done
    failure: Failure | None = None
    #: its result; None = it is too large to be recorded, and stays with workers
    result: Blob | None = None
    nbytes: int = 0

    @property
    def is_made(self) -> bool:
        """True if it is done, and its result stays with workers."""
        return self.state == DONE and self.result is None

    @property
    def result_nbytes(self) -> int:
        """Return the bytes that its result takes in the journal."""
        return 0 if self.result is None else blob_nbytes(self.result)


@dataclass(slots=True)
class JobChanged:
    """A job that has not ended has other options now."""

    key: str
    options: dict[str, Any]


@dataclass(slots=True)
class OutputRecorded:
    """What a job, or a row of an array, has printed, just before it ends."""

    key: str
    #: the key of the array, or its own
    job: str
    #: stdout, stderr, and whether there was more
    output: tuple[str, str, bool]

    @property
    def result_nbytes(self) -> int:
        """Return the bytes that its texts take in the journal."""
        return text_nbytes(self.output[0]) + text_nbytes(self.output[1])


@dataclass(slots=True)
class RowEnded:
    """The end of a row of an array, with what is kept of it."""

    position: int
    failure: Failure | None = None
    #: its result; None = it has failed, or its result is too large to be recorded
    result: Blob | None = None
    nbytes: int = 0


@dataclass(slots=True)
class RowsChanged:
    """Rows of an array have ended, or are to run again."""

    #: of the array
    key: str
    #: {position of a row: the byte of its state; 0 = it is to run again}
    states: dict[int, int]
    #: those of which more is kept than the state; nothing is kept of the others any more
    ends: list[RowEnded] = field(default_factory=list)
    #: nothing else counts of what was recorded of this key
    is_new: bool = False

    @property
    def result_nbytes(self) -> int:
        """Return the bytes that the results take in the journal."""
        return sum(0 if end.result is None else blob_nbytes(end.result) for end in self.ends)


@dataclass(slots=True)
class JobForgotten:
    """A job that has ended is of no use any more."""

    key: str


@dataclass(slots=True)
class ValueKept:
    """A durable value of a queue, variable, dataset, or of metadata."""

    #: larger than those of all that were kept before, also by earlier schedulers
    number: int
    #: the kind of the object, and its name, or the path of metadata
    place: tuple[str, ...]
    blob: Blob | None
    #: of the futures in it, which are jobs
    keys: list[str]
    #: plain data, by which the object is made anew
    info: dict[str, Any]
    #: the numbers of those that it replaces
    replaces: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ValuesDropped:
    """Durable values that were taken, replaced, or deleted."""

    numbers: list[int]


@dataclass(slots=True)
class QueueChanged:
    """A queue of jobs is paused, or is not any more."""

    name: str
    is_paused: bool


@dataclass(slots=True)
class CategoryLearned:
    """What a category has learned from its tasks so far."""

    name: str
    #: (most memory, rounded up, number of tasks, sum of their seconds)
    peaks: list[tuple[int, int, float]]
    #: calls that have ended well, and the sum of their seconds
    n_ended: int
    sum_s: float
    #: as `peaks`, of cores
    cores: list[tuple[int, int, float]] = field(default_factory=list)


#: What is recorded.
Entry: TypeAlias = (
    CategoryLearned
    | JobAdded
    | JobChanged
    | JobEnded
    | JobForgotten
    | OutputRecorded
    | QueueChanged
    | RowsChanged
    | ValueKept
    | ValuesDropped
)


@dataclass(slots=True)
class WriteJournal(Action):
    """Record these entries, in order, and report that it is done by `JournalWritten`."""

    number: int
    entries: list[Entry]


@dataclass(slots=True)
class AskJournal(Action):
    """Answer a question about jobs to this peer."""

    peer: int
    question: Ask


@dataclass(slots=True)
class ReadEnds(Action):
    """Read how jobs have ended; report that by `EndsRead`."""

    keys: list[str]


@dataclass(slots=True)
class ReadJobs(Action):
    """Read a job that is to run again, and what it needs; report that by `JobsRead`."""

    peer: int
    request: int
    key: str
    #: of an array: the numbers of its rows that are to run again; None = all without success
    rows: list[str] | None = None


@dataclass(slots=True)
class JournalWritten:
    """The entries of a `WriteJournal` are recorded; or they are not, for this reason."""

    number: int
    error: str = ""
    #: keys of earlier jobs that were forgotten to make room
    dropped: list[str] = field(default_factory=list)
    #: keys of ends that the database does not take, and would not take another time
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class JournalRead:
    """What an earlier scheduler has recorded, with which this one begins."""

    #: those that have not ended, and those whose result is with workers, in order of submission
    jobs: list[JobAdded] = field(default_factory=list)
    #: {key: None} of `jobs` whose result is with workers, as far as known
    made: dict[str, None] = field(default_factory=dict)
    #: {key: how it has ended} of the others
    ended: dict[str, str] = field(default_factory=dict)
    #: {key: the result} of those that `jobs` read, or whose futures are in `values`
    results: dict[str, Blob] = field(default_factory=dict)
    #: the names of the queues that are paused
    paused: list[str] = field(default_factory=list)
    #: {key of an array in `jobs`: {number of a chunk: the states of its rows}}
    arrays: dict[str, dict[int, bytes]] = field(default_factory=dict)
    #: what categories have learned, the latest last
    learned: list[CategoryLearned] = field(default_factory=list)
    #: the durable ones, by their numbers
    values: list[ValueKept] = field(default_factory=list)


@dataclass(slots=True)
class JobsRead:
    """A job that is to run again was read, behind those that it reads and that have failed, too."""

    asked: ReadJobs
    read: JournalRead
    #: why the job cannot run again; "" = it can
    problem: str = ""


@dataclass(slots=True)
class EndsRead:
    """How jobs have ended, as far as they are on record."""

    asked: ReadEnds
    #: with the hashes of their contents
    ends: list[tuple[JobEnded, bytes]] = field(default_factory=list)
    #: the last keys, which are to be asked for again: these would be too many bytes at a time
    rest: list[str] = field(default_factory=list)
    #: why none could be read; "" = they were
    problem: str = ""


@dataclass(slots=True)
class JournalProbed:
    """The database was looked at, which nobody had used for a while."""

    #: why it cannot be written; "" = it can again
    error: str = ""


#: What the journal reports.
Report: TypeAlias = JournalWritten | JournalRead | JournalProbed | JobsRead | EndsRead
