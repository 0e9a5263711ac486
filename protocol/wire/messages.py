"""Every message of weft, by direction. Messages about tasks are columns: one list per field.

Rules for all of them:

- After `handle` has put a message into an out-box, its lists must not change: within one process
  the message itself is handed over, without a copy.
- Tasks are named by **key** between client and scheduler, and by **attempt** (a number that no
  scheduler of the cluster uses twice) between scheduler and worker; so a stale report cannot be
  mistaken for a current one.
- Results, arguments, functions and exceptions are opaque `Blob`s to the scheduler.
"""

from __future__ import annotations

from dataclasses import field

from .message import (
    Amounts,
    Blobs,
    Facts,
    Failures,
    Flag,
    Ids,
    Info,
    Ints,
    KeyLists,
    Keys,
    Message,
    Number,
    Priority,
    Text,
    Texts,
    message,
)

#: The spec hash of a row whose key is weft's own, among rows that have one.
NO_HASH = bytes(16)


# -- opening a session: the first message of each peer, and the answer ----------------------------
@message(1)
class RegisterClient(Message):
    """Ask for a client's session. `session` counts its connections; `last_epoch` is 0 at first."""

    client_id: Text
    name: Text
    session: Number
    last_epoch: Number
    facts: Facts


@message(2)
class RegisterWorker(Message):
    """Ask for a worker's session. Peers and clients fetch data from it at `address`."""

    worker_id: Text
    name: Text
    session: Number
    last_epoch: Number
    address: Text
    nthreads: Number
    memory_limit: Number  #: bytes; 0 = none
    resources: Amounts
    supervisor_id: Text  #: '' = this worker has no supervisor
    facts: Facts


@message(3)
class RegisterSupervisor(Message):
    """Open a supervisor's connection, which reports the workers that it watches."""

    supervisor_id: Text
    session: Number
    last_epoch: Number
    facts: Facts


@message(4)
class Welcome(Message):
    """Accept a registration. From now on every frame carries `epoch` and `session`."""

    epoch: Number
    session: Number
    heartbeat_ms: Number  #: send a heartbeat at least this often
    facts: Facts


@message(5)
class Refused(Message):
    """Refuse an authenticated peer (versions, a higher epoch) and close the connection.

    `is_final`: the same process would be refused again.
    """

    reason: Text
    is_final: Flag = False


@message(6)
class Bye(Message):
    """End a session for good: the receiver keeps nothing for a return of the sender."""

    reason: Text


@message(7)
class Heartbeat(Message):
    """Show that the sender is alive. `facts` are measurements for display (bytes, seconds)."""

    facts: Facts


# -- client -> scheduler --------------------------------------------------------------------------


@message(
    16,
    columns=("keys", "function_of", "args"),
    optional_columns=("dependencies", "spec_hashes"),
    tables=(("functions", "function_names", "function_blobs"),),
    index="function_of",
)
class SubmitTasks(Message):
    """Submit tasks with the same options: `keys[i]` calls `functions[function_of[i]]`.

    The client wants every key. A function's blob is None if the client holds another wanted key
    of that function, so that the scheduler still has it. `spec_hashes` is filled for keys that the
    user named.
    """

    functions: Ids
    function_names: Texts
    function_blobs: Blobs
    function_of: Ints
    keys: Keys
    args: Blobs
    dependencies: KeyLists
    spec_hashes: Ids
    priority: Priority
    retries: Number
    workers: Texts  #: names, hosts or addresses; empty = any
    allow_other_workers: Flag
    resources: Amounts


@message(17, columns=("keys",), optional_columns=("spec_hashes",))
class WantKeys(Message):
    """Want keys that the client did not submit in this session; the answer is their state.

    `spec_hashes` is filled for keys that the user named, as far as the client knows them: a task of
    the same name with another hash is a different task.
    """

    keys: Keys
    spec_hashes: Ids = field(default_factory=list)


@message(18, columns=("keys",))
class ReleaseKeys(Message):
    """Release keys: the client's last future of each is gone."""

    keys: Keys


@message(24, columns=("keys", "spec_hashes"))
class ReleaseOthers(Message):
    """Release each key unless its task has this hash.

    The client is about to submit tasks of these names, which may be the same tasks or others.
    """

    keys: Keys
    spec_hashes: Ids


@message(19, columns=("keys",))
class CancelKeys(Message):
    """Cancel tasks that are not done; with `force` even if other clients want them."""

    keys: Keys
    force: Flag
    reason: Text


@message(20)
class FetchKeys(Message):
    """Ask for the data of these keys by way of the scheduler, if a worker cannot be reached."""

    request: Number
    keys: Keys


@message(21, columns=("keys",))
class ReportMissing(Message):
    """Report that `holder` does not have these keys, and ask for their current holders."""

    keys: Keys
    holder: Text


@message(22)
class GetClusterInfo(Message):
    """Ask for a description of workers, clients and tasks."""

    request: Number


@message(23)
class ShutdownCluster(Message):
    """Stop the scheduler and all workers."""

    reason: Text


# -- scheduler -> client --------------------------------------------------------------------------


@message(32, columns=("keys", "results"))
class ResultsReady(Message):
    """Send small results of keys that are in memory."""

    keys: Keys
    results: Blobs


@message(33, columns=("keys", "nbytes", "holder_of"), tables=(("holders",),), index="holder_of")
class KeysInMemory(Message):
    """Report keys that are in memory; their data is at `holders[holder_of[i]]`."""

    keys: Keys
    nbytes: Ints
    holder_of: Ints
    holders: Texts


@message(34, columns=("keys", "failure_of"), tables=(("failures",),), index="failure_of")
class KeysErred(Message):
    """Report failed keys. `failures[failure_of[i]]` is the reason (see failure.py)."""

    keys: Keys
    failure_of: Ints
    failures: Failures


@message(35, columns=("keys",))
class KeysPending(Message):
    """Report keys as pending: their only copy was lost, or the client has just wanted them."""

    keys: Keys


@message(36, columns=("keys",))
class KeysCancelled(Message):
    """Report keys that will not be computed."""

    keys: Keys
    reason: Text


@message(37, columns=("keys",))
class KeysUnknown(Message):
    """Report keys of which the scheduler has no task."""

    keys: Keys


@message(38, columns=("keys", "results"))
class KeysData(Message):
    """Answer `FetchKeys` or `GetData`: the data of `keys`; `missing` are not in memory there."""

    request: Number
    keys: Keys
    results: Blobs
    missing: Keys


@message(39)
class ClusterChanged(Message):
    """Report the number of workers and threads, at registration and at each change."""

    n_workers: Number
    nthreads: Number


@message(40)
class ClusterInfo(Message):
    """Answer `GetClusterInfo`."""

    request: Number
    info: Info


@message(41)
class KeysUnrunnable(Message):
    """Report keys that no worker of the cluster may run; they wait for one that may."""

    keys: Keys
    reason: Text


# -- scheduler -> worker --------------------------------------------------------------------------


@message(
    48,
    columns=("keys", "function_of", "attempts", "priorities", "args", "wanted"),
    optional_columns=("dependencies",),
    tables=(
        ("functions", "function_blobs", "function_clients"),
        ("located_keys", "located_attempts", "located_nbytes", "located_holders"),
    ),
    index="function_of",
)
class AssignTasks(Message):
    """Run these attempts.

    Each dependency is in the worker's store, runs there earlier, or is listed with its holders in
    `located_*`. `wanted[i]` is 1 if a client waits for the result: a small one is sent with the
    completion.
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


@message(49, columns=("attempts",))
class DropAttempts(Message):
    """Drop all that the worker has for these attempts.

    That is unstarted work, the result of a running attempt, or a copy of the data.
    """

    attempts: Ints


@message(50)
class ReturnAttempts(Message):
    """Ask for up to `count` unstarted attempts back, beginning with those that would run last."""

    count: Number


@message(51, columns=("keys", "attempts", "nbytes", "holders"))
class LocatedKeys(Message):
    """Report the current holders of keys that the worker was missing."""

    keys: Keys
    attempts: Ints
    nbytes: Ints
    holders: KeyLists


@message(52, columns=("functions",))
class DropFunctions(Message):
    """Drop functions that no task uses any more."""

    functions: Ids


@message(53)
class Stop(Message):
    """Ask the process to end. Supervisors do not start it again."""

    reason: Text


@message(54)
class HoldersGone(Message):
    """Report the addresses of workers that are lost or have left: no answer will come from them."""

    addresses: Texts


# -- worker -> scheduler --------------------------------------------------------------------------


@message(64, columns=("attempts", "nbytes", "durations_us", "results"))
class AttemptsFinished(Message):
    """Report attempts whose results are in the worker's store.

    `results` has the small results that a client wants, and None for the others.
    """

    attempts: Ints
    nbytes: Ints
    durations_us: Ints
    results: Blobs


@message(65, columns=("attempts", "durations_us", "failures"))
class AttemptsErred(Message):
    """Report attempts that raised an exception."""

    attempts: Ints
    durations_us: Ints
    failures: Failures


@message(66, columns=("attempts",))
class AttemptsReturned(Message):
    """Answer `ReturnAttempts`: these attempts have not started here and never will."""

    attempts: Ints


@message(67, columns=("attempts", "keys"))
class ReplicasAdded(Message):
    """Report that the worker has fetched copies of these attempts' results."""

    attempts: Ints
    keys: Keys


@message(68, columns=("keys",))
class KeysMissing(Message):
    """Report keys that the worker could not get from `holder`.

    It does not have them, or (`unreachable`) the worker could not connect to it.
    """

    keys: Keys
    holder: Text
    unreachable: Flag = False


@message(69)
class GetData(Message):
    """Ask a worker's data port for the data of these keys. The answer is `KeysData`."""

    request: Number
    keys: Keys


@message(70, columns=("attempts",))
class AttemptsEnded(Message):
    """Report dropped attempts that occupy no thread of the worker any more, or never did."""

    attempts: Ints


@message(71)
class WorkerLeaving(Message):
    """Report that the worker starts nothing more, and leaves when its running tasks have ended."""

    reason: Text


# -- supervisor -> scheduler ----------------------------------------------------------------------


@message(80, columns=("worker_ids", "rss"))
class WorkersAlive(Message):
    """Report which worker processes exist, with their resident memory in bytes."""

    worker_ids: Texts
    rss: Ints


@message(81)
class WorkerExited(Message):
    """Report that a worker process ended.

    `running` are the attempts whose user code was being executed or whose results were being
    pickled or sent.
    """

    worker_id: Text
    reason: Text  #: e.g. "killed by SIGKILL", "exit code 3", "memory limit: 4.1 of 4.0 GB"
    running: Ints


# -- viewer (HTTP process) ------------------------------------------------------------------------


@message(96)
class GetMetrics(Message):
    """Ask for the scheduler's counters."""

    request: Number


@message(97)
class Metrics(Message):
    """Answer `GetMetrics`: name -> number, or name -> {label: number}."""

    request: Number
    values: Info
