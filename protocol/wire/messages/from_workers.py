"""Messages of a worker to the scheduler, and the request that its data port answers."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from ..message import (
    Blobs,
    Failures,
    Flag,
    Ints,
    KeyLists,
    Keys,
    Message,
    Number,
    Sizes,
    Text,
    message,
)
from ..roles import PEERS, WORKERS

#: How a dropped attempt has ended: it had not begun, or that is not known; its function has
#: returned, or has raised something of its own; an interruption has ended it.
NOT_BEGUN: Final = 0
RETURNED: Final = 1
INTERRUPTED: Final = 2

#: The memory that was measured: that of the attempt's own processes; of its worker's process while
#: no other attempt ran there, or while others did.
OWN_PROCESS: Final = 0
ALONE: Final = 1
SHARED: Final = 2


@message(
    64,
    by=WORKERS,
    columns=("attempts", "nbytes", "durations_us", "results"),
    optional_columns=("queued_us", "fetched_us"),
)
class AttemptsFinished(Message):
    """Report attempts whose results are in the worker's store.

    `results` has the small results that a client wants, and None for the others. `queued_us` and
    `fetched_us` are those of the first attempt of the chunk in which an attempt ran: the time from
    its arrival to its start, and the part of it until its last fetched input came.
    """

    attempts: Ints
    nbytes: Sizes
    durations_us: Sizes
    results: Blobs
    queued_us: Sizes = field(default_factory=list)
    fetched_us: Sizes = field(default_factory=list)


@message(
    65,
    by=WORKERS,
    columns=("attempts", "durations_us", "failures"),
    optional_columns=("queued_us", "fetched_us"),
)
class AttemptsErred(Message):
    """Report attempts that raised an exception."""

    attempts: Ints
    durations_us: Sizes
    failures: Failures
    queued_us: Sizes = field(default_factory=list)
    fetched_us: Sizes = field(default_factory=list)


@message(66, by=WORKERS, columns=("attempts",))
class AttemptsReturned(Message):
    """Answer `ReturnAttempts`: these attempts have not started here and never will."""

    attempts: Ints


@message(121, by=WORKERS, columns=("attempts",), tables=(("started",),))
class AttemptsWithdrawn(Message):
    """Answer `WithdrawAttempts`: `attempts` will never start here; `started` have, or are over."""

    attempts: Ints
    started: Ints


@message(67, by=WORKERS, columns=("attempts", "keys"))
class ReplicasAdded(Message):
    """Report that the worker has fetched copies of these attempts' results."""

    attempts: Ints
    keys: Keys


@message(68, by=WORKERS, columns=("keys",), optional_columns=("attempts",))
class KeysMissing(Message):
    """Report keys that the worker could not get from `holder`.

    It does not have them, or (`unreachable`) the worker could not connect to it. `attempts` are
    those whose results it asked for, 0 = it does not know of any: what the holder has made since,
    or another process at its address has, is not missing.
    """

    keys: Keys
    holder: Text
    unreachable: Flag = False
    attempts: Ints = field(default_factory=list)


@message(69, by=PEERS)
class GetData(Message):
    """Ask a worker's data port for the data of these keys. The answer is `KeysData`.

    A reader on another host that names its own data port may be sent to another holder.
    `host` stands for the host of the reader (`host_files`), which maps files of processes there.
    """

    request: Number
    keys: Keys
    address: Text = ""
    host: Text = ""


@message(89, by=PEERS)
class DataTaken(Message):
    """Acknowledge a `KeysData` that asks for it: this worker has the values, and may give them."""

    request: Number


@message(78, by=PEERS)
class GetParts(Message):
    """Ask a worker's data port for parts of the results of these attempts, joined to one value.

    `numbers` name the part of each: `n_numbers` for each attempt, or if that is
    0 the same ones for all. The answer is `KeysData` with one result under the key "parts", or with
    the attempts that are not there as `missing`.
    """

    request: Number
    attempts: Ints
    numbers: Ints
    n_numbers: Number = 0


@message(82, by=PEERS)
class GetPromised(Message):
    """Ask a worker's data port for the result of an attempt that it has, or will be assigned.

    The answer, `KeysData`, comes when the attempt has ended. The key is `missing` if it has ended
    without a result, or lasts for too long.
    """

    request: Number
    key: Text
    attempt: Number


@message(70, by=WORKERS, columns=("attempts",), optional_columns=("ends",))
class AttemptsEnded(Message):
    """Report dropped attempts that occupy no thread of the worker any more, or never did.

    `ends` are NOT_BEGUN, RETURNED or INTERRUPTED.
    """

    attempts: Ints
    ends: Ints = field(default_factory=list)


@message(190, by=WORKERS, columns=("attempts", "timeouts_us"))
class AttemptsOverdue(Message):
    """Report attempts that run for longer than they may. The scheduler drops them.

    They are reported again as long as it has not done so.
    """

    attempts: Ints
    timeouts_us: Sizes  #: how long each may run


@message(212, by=WORKERS, columns=("attempts", "used_nbytes"))
class AttemptsExceeded(Message):
    """Report attempts that use more memory than they may. The scheduler drops them.

    They are reported again as long as it has not done so.
    """

    attempts: Ints
    used_nbytes: Sizes


@message(
    213,
    by=WORKERS,
    columns=(
        "attempts",
        "wall_us",
        "cpu_us",
        "peaks_nbytes",
        "read_nbytes",
        "written_nbytes",
        "kinds",
    ),
    optional_columns=("failed",),
)
class AttemptsMeasured(Message):
    """Report what attempts have used that were measured, before the report of their ends.

    `kinds` are OWN_PROCESS, ALONE or SHARED: the peak is that of processes of the attempt's own; of
    its worker's, where nothing else ran; or of its worker's, with others. What is not known is 0;
    with the time of CPUs, so are the bytes.
    """

    attempts: Ints
    wall_us: Sizes
    cpu_us: Sizes
    peaks_nbytes: Sizes
    read_nbytes: Sizes
    written_nbytes: Sizes
    kinds: Ints
    failed: Ints = field(default_factory=list)  #: 1 = it has no result; empty if all have


@message(71, by=WORKERS)
class WorkerLeaving(Message):
    """Report that the worker starts nothing more, finishes what it runs, and leaves."""

    reason: Text


@message(87, by=WORKERS)
class AskToLeave(Message):
    """Ask for the word to go, which follows `WorkerLeaving`; the answer is `MayLeave`.

    It comes when the worker runs nothing, and others have the results that only it had. An earlier
    scheduler answers `Unsupported`, which is the same word. A worker that comes back asks again.
    """

    request: Number
    left_ms: Number = 0  #: until it ends without the word; 0 = it waits as long as it takes


@message(84, by=WORKERS, columns=("attempts",), optional_columns=("keys", "actors", "calls"))
class AttemptsBlocked(Message):
    """Report attempts that wait, and occupy no thread meanwhile: others may run in their place.

    `keys` are those of tasks that each of them waits for, all of them and without a time limit: the
    first ones, and none where it waits for something else. `calls` are those of actors that it
    waits for likewise, as `call_text` names them, and `actors` the key of the actor of each.
    """

    attempts: Ints
    keys: KeyLists = field(default_factory=list)
    actors: KeyLists = field(default_factory=list)
    calls: KeyLists = field(default_factory=list)


@message(85, by=WORKERS, columns=("attempts",))
class AttemptsResumed(Message):
    """Report blocked attempts that go on, and occupy a thread again."""

    attempts: Ints


@message(76, by=WORKERS)
class WorkerStatus(Message):
    """Describe the worker; sent with each heartbeat, and at once when its memory has changed much.

    What could not be measured is 0.
    """

    state: Text  #: "running", "leaving", or "paused": its process is too large to take tasks
    nthreads: Number
    n_records: Number  #: tasks and copies that it knows
    n_ready: Number  #: tasks that wait for a thread
    managed_nbytes: Number  #: of the values in its memory, as far as their sizes are known
    resident_nbytes: Number  #: of its process, pages of mapped files not counted
    cpu_percent: Number  #: of one core
    numbers: Sizes = field(default_factory=list)  #: see `protocol/reported.py`
    fetched_nbytes: Number = 0  #: of all large copies that have come from other workers
    fetched_us: Number = 0  #: the sum of the times that these took on their way
    excess_nbytes: Number = 0  #: of its values, what should leave so that none are written to disk
    spilling_nbytes: Number = 0  #: of its values, what it is writing to its disk now
    spill_bytes_per_s: Number = 0  #: how fast it wrote each of the latest ones; 0 = not known
