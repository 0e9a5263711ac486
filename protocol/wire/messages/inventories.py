"""The messages by which a session goes on, with the same scheduler or with a new one.

A worker that had a session before (`RegisterWorker.last_epoch` > 0) sends an inventory right after
its `Welcome`: what it holds, what it runs or was assigned, which failures it keeps, and the
functions that it has, in any number of messages, and `InventoryEnd` last. The scheduler merges each
row at once and answers `InventoryEnd` with `Reconciled`; what it does not want it drops with
`DropAttempts`. It assigns nothing to the worker before that.

A client that had a session with another scheduler submits again what it has recipes for, wants the
other keys, and sends `Resubmitted`. In a later session with the same one it does so when it has
submitted again what that does not know. A new scheduler that waits for the peers of the last one
sends each client `Recovering`, and `Recovered` when it begins to assign tasks. Until then it does
not answer for keys that it does not know: a worker that holds them may be on its way.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from ..message import Failures, Ids, Ints, Keys, Message, Number, Sizes, Text, message
from ..roles import CLIENTS, WORKERS

#: The phases of the rows of `InventoryUnfinished`: not started, running, and dropped while it ran.
ASSIGNED: Final = 0
RUNNING: Final = 1
DROPPED: Final = 2


# -- of a worker to the scheduler -----------------------------------------------------------------
@message(72, by=WORKERS, columns=("keys", "attempts", "nbytes"), optional_columns=("spec_hashes",))
class InventoryKept(Message):
    """List results, and copies of other workers' results, that are in the worker's store."""

    keys: Keys
    attempts: Ints
    nbytes: Sizes
    spec_hashes: Ids = field(default_factory=list)


@message(
    73,
    by=WORKERS,
    columns=("keys", "attempts", "phases"),
    optional_columns=("spec_hashes", "n_raised"),
)
class InventoryUnfinished(Message):
    """List attempts that have not ended, in the order of their numbers."""

    keys: Keys
    attempts: Ints
    phases: Ints  #: ASSIGNED, RUNNING or DROPPED
    spec_hashes: Ids = field(default_factory=list)
    n_raised: Ints = field(default_factory=list)  #: as in `AssignTasks`


@message(
    74,
    by=WORKERS,
    columns=("keys", "attempts", "failures"),
    optional_columns=("spec_hashes", "n_raised"),
)
class InventoryFailed(Message):
    """List attempts that raised, as far as the worker keeps their failures, the oldest first."""

    keys: Keys
    attempts: Ints
    failures: Failures
    spec_hashes: Ids = field(default_factory=list)
    n_raised: Ints = field(default_factory=list)  #: as in `AssignTasks`: before this attempt


@message(77, by=WORKERS, columns=("functions",))
class InventoryFunctions(Message):
    """List the functions that the worker has."""

    functions: Ids


@message(75, by=WORKERS)
class InventoryEnd(Message):
    """End the inventory, which had `n_rows` kept, unfinished and failed attempts."""

    n_rows: Number


# -- of the scheduler to a worker -----------------------------------------------------------------
@message(55, to=WORKERS)
class Reconciled(Message):
    """Answer `InventoryEnd`: the inventory is merged, and the worker gets work again."""

    n_kept: Number  #: results that the scheduler wants, or may be asked for
    n_adopted: Number  #: unfinished attempts that go on
    n_dropped: Number  #: rows that it does not want


# -- of a client to the scheduler -----------------------------------------------------------------
@message(9, by=CLIENTS)
class Resubmitted(Message):
    """Report that the client has sent all that it wants, after the start of a later session."""


# -- of the scheduler to a client -----------------------------------------------------------------
@message(42, to=CLIENTS)
class Recovering(Message):
    """Report that a new scheduler waits for the peers of the last one, and assigns nothing yet."""

    reason: Text


@message(43, to=CLIENTS)
class Recovered(Message):
    """Report that a new scheduler begins to assign tasks, and what it has found."""

    n_workers: Number
    n_clients: Number
    n_tasks: Number
    n_kept: Number  #: results that workers had kept
    n_adopted: Number  #: unfinished attempts that workers had kept, running or not
    n_lost: Number  #: keys that clients wanted and that no peer knew
