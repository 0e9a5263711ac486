"""Messages of the scheduler to a client."""

from __future__ import annotations

from dataclasses import field

from ..message import Blobs, Failures, Flag, Ints, Keys, Message, Number, Text, Texts, message
from ..roles import CLIENTS, PEERS, WORKERS


@message(32, to=CLIENTS, columns=("keys", "results"))
class ResultsReady(Message):
    """Send small results of keys that are in memory."""

    keys: Keys
    results: Blobs


@message(
    33,
    to=CLIENTS,
    columns=("keys", "nbytes", "holder_of"),
    optional_columns=("attempts",),
    tables=(("holders",),),
    indexes=("holder_of",),
)
class KeysInMemory(Message):
    """Report keys that are in memory; their data is at `holders[holder_of[i]]`.

    `attempts` is filled if some results are unique: the attempts that made them, 0 for others.
    """

    keys: Keys
    nbytes: Ints
    holder_of: Ints
    holders: Texts
    attempts: Ints = field(default_factory=list)


@message(
    34, to=CLIENTS, columns=("keys", "failure_of"), tables=(("failures",),), indexes=("failure_of",)
)
class KeysErred(Message):
    """Report failed keys. `failures[failure_of[i]]` is the reason (see failure.py)."""

    keys: Keys
    failure_of: Ints
    failures: Failures


@message(35, to=CLIENTS, columns=("keys",))
class KeysPending(Message):
    """Report keys as pending: their only copy was lost, or the client has just wanted them."""

    keys: Keys


@message(36, to=CLIENTS, columns=("keys",))
class KeysCancelled(Message):
    """Report keys that will not be computed."""

    keys: Keys
    reason: Text


@message(119, to=CLIENTS, columns=("keys",))
class KeysStarted(Message):
    """Answer `WithdrawKeys`: these are not cancelled; their calls have begun, as far as known."""

    keys: Keys


@message(37, to=CLIENTS + WORKERS, columns=("keys",))
class KeysUnknown(Message):
    """Report keys of which the scheduler has no task.

    To a worker: keys that it will not be sent a holder of, unless it is assigned a task that reads
    them. It gives back the tasks that wait for them.
    """

    keys: Keys


@message(
    38, by=WORKERS, to=CLIENTS + PEERS, columns=("keys", "results"), optional_columns=("files",)
)
class KeysData(Message):
    """Answer `FetchKeys` or `GetData`: the data of `keys`; `missing` are not in memory there.

    With `elsewhere` it has no data: all keys of the request are to be asked for at that worker.
    Where `files` has a name, the data is in that file of this host (`host_blobs`), and not here.
    """

    request: Number
    keys: Keys
    results: Blobs
    missing: Keys
    elsewhere: Text = ""
    acknowledge: Flag = False  #: `DataTaken` is to follow when the data is in the store
    waited_us: Number = 0  #: for so long the request waited for others
    files: Blobs = field(default_factory=list)


@message(39, to=CLIENTS)
class ClusterChanged(Message):
    """Report the number of workers and threads, at registration and at each change."""

    n_workers: Number
    nthreads: Number


@message(180, to=CLIENTS)
class ClusterStopped(Message):
    """Report that scheduler and workers end for good: waiting for a scheduler is of no use."""

    reason: Text


@message(41, to=CLIENTS)
class KeysUnrunnable(Message):
    """Report keys that no worker of the cluster may run; they wait for one that may."""

    keys: Keys
    reason: Text
