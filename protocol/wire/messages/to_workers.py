"""Messages of the scheduler to a worker."""

from __future__ import annotations

from dataclasses import field

from ..message import (
    Blobs,
    Ids,
    Ints,
    KeyLists,
    Keys,
    Message,
    Number,
    Options,
    Sizes,
    Text,
    Texts,
    message,
)
from ..roles import SUPERVISORS, WORKERS

#: What `AssignTasks.wanted` has of results that a client waits for: send a small one; a large one.
WANTED = 1
WANTED_LARGE = 2


@message(
    48,
    to=WORKERS,
    columns=("keys", "function_of", "attempts", "priorities", "args", "wanted"),
    optional_columns=(
        "dependencies",
        "spec_hashes",
        "n_raised",
        "timeouts_us",
        "gangs",
        "allotted_nbytes",
        "traces",
    ),
    tables=(
        ("functions", "function_blobs", "function_clients", "function_options"),
        ("located_keys", "located_attempts", "located_nbytes", "located_holders"),
        ("promised_keys", "promised_attempts", "promised_holders"),
    ),
    indexes=("function_of",),
)
class AssignTasks(Message):
    """Run these attempts.

    Each dependency is in the worker's store, runs there earlier, is listed with its holders in
    `located_*`, or with the worker of its unfinished attempt in `promised_*`. `wanted[i]` is
    WANTED if a client waits for the result: one of up to 64 KiB is sent with the completion, and
    with WANTED_LARGE one of up to 1 MiB. `spec_hashes` has NO_HASH for keys of weft's own.
    `n_raised` counts the exceptions of earlier attempts; the worker keeps it for the next
    scheduler. `timeouts_us` is how long each may run. Of the options of the rows that point to a
    function, `function_options` has `resources`, if there are any. `gangs` has the name of a gang,
    the rank in it, and the addresses of the workers of all its tasks. What a row uses that has
    `allotted_nbytes` is measured, and reported if it is more. `traces` has the context in which a
    row was submitted, that of its span.
    """

    functions: Ids
    function_blobs: Blobs  #: None = this worker has it
    function_clients: Ints  #: the client of the rows that point here; clients take turns
    function_of: Ints
    keys: Keys
    attempts: Ints
    priorities: Ints  #: smaller runs earlier
    args: Blobs
    wanted: Ints
    dependencies: KeyLists
    located_keys: Keys
    located_attempts: Ints
    located_nbytes: Ints
    located_holders: KeyLists  #: addresses
    spec_hashes: Ids = field(default_factory=list)
    n_raised: Ints = field(default_factory=list)  #: empty if no earlier attempt of a row raised
    located_hashes: Ids = field(default_factory=list)  #: as `spec_hashes`; empty if none has one
    timeouts_us: Sizes = field(default_factory=list)  #: 0 = for ever; empty if none has a limit
    promised_keys: Keys = field(default_factory=list)
    promised_attempts: Ints = field(default_factory=list)
    promised_holders: Texts = field(default_factory=list)  #: addresses
    function_options: Options = field(default_factory=list)  #: empty if no row has any
    gangs: KeyLists = field(default_factory=list)  #: empty if no row is one of a gang
    allotted_nbytes: Sizes = field(default_factory=list)  #: 0 = not measured; empty if none is
    traces: KeyLists = field(default_factory=list)  #: names and values in turn; empty if none has


@message(49, to=WORKERS, columns=("attempts",))
class DropAttempts(Message):
    """Drop all that the worker has for these attempts.

    That is unstarted work, the result of a running attempt, or a copy of the data.
    """

    attempts: Ints


@message(50, to=WORKERS)
class ReturnAttempts(Message):
    """Ask for up to `count` unstarted attempts back, beginning with those that would run last."""

    count: Number


@message(120, to=WORKERS, columns=("attempts",))
class WithdrawAttempts(Message):
    """Ask for these attempts back, those that have not started. The answer names each of them."""

    attempts: Ints


@message(170, to=WORKERS, columns=("attempts", "texts"))
class FailWaits(Message):
    """Report that blocked attempts would wait for ever: their waits end with errors of these texts.

    Each waits for tasks that wait for it.
    """

    attempts: Ints
    texts: Texts


@message(132, to=WORKERS, columns=("attempts",))
class InterruptAttempts(Message):
    """Interrupt these attempts, which were dropped before, if they run."""

    attempts: Ints


@message(
    51,
    to=WORKERS,
    columns=("keys", "attempts", "nbytes", "holders"),
    optional_columns=("spec_hashes",),
)
class LocatedKeys(Message):
    """Report the current holders of keys that the worker was missing.

    A copy is as good as the result when a scheduler is restarted: so its hash goes with it.
    """

    keys: Keys
    attempts: Ints
    nbytes: Ints
    holders: KeyLists
    spec_hashes: Ids = field(default_factory=list)


@message(
    125,
    to=WORKERS,
    columns=("keys", "attempts", "nbytes", "holders"),
    optional_columns=("spec_hashes",),
)
class HoldCopies(Message):
    """Ask a worker to fetch these, and to keep them although no task there reads them.

    It reports each by `ReplicasAdded`, or by `KeysMissing` if no holder gave it.
    """

    keys: Keys
    attempts: Ints
    nbytes: Ints
    holders: KeyLists  #: addresses
    spec_hashes: Ids = field(default_factory=list)


@message(52, to=WORKERS, columns=("functions",))
class DropFunctions(Message):
    """Drop functions that no task uses any more."""

    functions: Ids


@message(53, to=WORKERS + SUPERVISORS)
class Stop(Message):
    """Ask the process to end. Supervisors do not start it again."""

    reason: Text


@message(56, to=WORKERS)
class LeaveCluster(Message):
    """Ask a worker to finish what it runs, start nothing more, and leave."""

    reason: Text


@message(88, to=WORKERS)
class MayLeave(Message):
    """Answer `AskToLeave`: nothing that is needed is lost when the worker ends."""

    request: Number


@message(57, to=SUPERVISORS)
class WorkersRetired(Message):
    """Notify a supervisor of workers that leave on request: it does not start them again."""

    worker_ids: Texts


@message(133, to=SUPERVISORS)
class EndWorkers(Message):
    """Ask a supervisor to end the processes of workers at once, and to start others."""

    worker_ids: Texts
    reason: Text


@message(54, to=WORKERS)
class HoldersGone(Message):
    """Report the addresses of workers that are lost or have left: no answer will come from them."""

    addresses: Texts
