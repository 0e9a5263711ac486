"""Every message of weft, by direction. The hot ones are columns: one list a field, one row a task.

Rules that hold for all of them:

- After `handle` has put a message into an out-box, nobody changes its lists: in process it is
  handed over as it is.
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
    """A client asks for a session. `session` counts its connections; `last_epoch` is 0 at first."""

    client_id: Text
    name: Text
    session: Number
    last_epoch: Number
    facts: Facts


@message(2)
class RegisterWorker(Message):
    """A worker process asks for a session.

    `address` is where peers and clients fetch data from it.
    """

    worker_id: Text
    name: Text
    session: Number
    last_epoch: Number
    address: Text
    nthreads: Number
    memory_limit: Number  #: bytes; 0 = none
    resources: Amounts
    supervisor_id: Text  #: '' = nobody watches this worker
    facts: Facts


@message(3)
class RegisterSupervisor(Message):
    """A supervisor opens its liveness line for the workers that it watches."""

    supervisor_id: Text
    session: Number
    last_epoch: Number
    facts: Facts


@message(4)
class Welcome(Message):
    """The scheduler accepts. From here on every frame carries `epoch` and `session`."""

    epoch: Number
    session: Number
    heartbeat_ms: Number  #: send a heartbeat at least this often
    lease_ms: Number  #: what a lost client wants is kept this long
    facts: Facts


@message(5)
class Refused(Message):
    """The peer is authenticated but cannot take part (versions, a higher epoch).

    The connection closes next. `is_final`: the same process would be refused again.
    """

    reason: Text
    is_final: Flag = False


@message(6)
class Bye(Message):
    """A polite end: nothing is to be kept for a return."""

    reason: Text


@message(7)
class Heartbeat(Message):
    """I am alive; `facts` may carry measurements for people (bytes, seconds), never decisions."""

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
    """Tasks with one set of options: row i is `keys[i]`, `functions[function_of[i]]` of `args[i]`.

    The client wants every key. A function's blob is None when the client holds another wanted key
    of that function, which the scheduler therefore still knows. `spec_hashes` is filled for keys
    that the user named.
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
    """The client holds futures of keys that it did not submit (or comes back).

    Tell it their state. `spec_hashes` is filled for keys that the user named, if that is known: a
    task of the name with another hash is not the one that is wanted.
    """

    keys: Keys
    spec_hashes: Ids = field(default_factory=list)


@message(18, columns=("keys",))
class ReleaseKeys(Message):
    """The client's last future of each key is gone."""

    keys: Keys


@message(24, columns=("keys", "spec_hashes"))
class ReleaseOthers(Message):
    """The client is about to submit other tasks of these names, or these very tasks once more.

    Release each key unless its task has this hash.
    """

    keys: Keys
    spec_hashes: Ids


@message(19, columns=("keys",))
class CancelKeys(Message):
    """Drop what has not started. With `force` even if other clients want it."""

    keys: Keys
    force: Flag
    reason: Text


@message(20)
class FetchKeys(Message):
    """Send me the data of these keys (client -> scheduler -> worker.

    Where no direct way exists).
    """

    request: Number
    keys: Keys


@message(21, columns=("keys",))
class ReportMissing(Message):
    """`holder` was asked for these keys and does not have them: locate them anew."""

    keys: Keys
    holder: Text


@message(22)
class GetClusterInfo(Message):
    """Ask for a description of workers, clients and tasks."""

    request: Number


@message(23)
class ShutdownCluster(Message):
    """Stop scheduler and workers."""

    reason: Text


# -- scheduler -> client --------------------------------------------------------------------------


@message(32, columns=("keys", "results"))
class ResultsReady(Message):
    """These keys are in memory, and here are their (small) results."""

    keys: Keys
    results: Blobs


@message(33, columns=("keys", "nbytes", "holder_of"), tables=(("holders",),), index="holder_of")
class KeysInMemory(Message):
    """These keys are in memory; fetch the data from `holders[holder_of[i]]`."""

    keys: Keys
    nbytes: Ints
    holder_of: Ints
    holders: Texts


@message(34, columns=("keys", "failure_of"), tables=(("failures",),), index="failure_of")
class KeysErred(Message):
    """These keys failed. `failures[failure_of[i]]` is the reason (see failure.py)."""

    keys: Keys
    failure_of: Ints
    failures: Failures


@message(35, columns=("keys",))
class KeysPending(Message):
    """These keys are (again) on their way: their only copy was lost, or they were asked for."""

    keys: Keys


@message(36, columns=("keys",))
class KeysCancelled(Message):
    """These keys will not be computed."""

    keys: Keys
    reason: Text


@message(37, columns=("keys",))
class KeysUnknown(Message):
    """The scheduler has no task of these names."""

    keys: Keys


@message(38, columns=("keys", "results"))
class KeysData(Message):
    """Answer to `FetchKeys` and `GetData`: data of some keys, and which are not there."""

    request: Number
    keys: Keys
    results: Blobs
    missing: Keys


@message(39)
class ClusterChanged(Message):
    """How many workers and threads there are now. Sent at registration and at each change."""

    n_workers: Number
    nthreads: Number


@message(40)
class ClusterInfo(Message):
    """Answer to `GetClusterInfo`."""

    request: Number
    info: Facts


@message(41)
class KeysUnrunnable(Message):
    """No worker of the cluster can run these keys; they wait until one comes."""

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
    """Run these. A dependency is here already, runs here earlier, or is listed with its holders in
    `located_*`.

    `wanted[i]` is 1 when a client waits for the result, which then rides along if it is small.
    """

    functions: Ids
    function_blobs: Blobs  #: None = this worker has it
    function_clients: Ints  #: for whom the rows that point here run; clients take turns
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
    """Forget whatever you have for these attempts.

    Unstarted work, a running one's result, a copy of its data.
    """

    attempts: Ints


@message(50)
class ReturnAttempts(Message):
    """Give back up to `count` unstarted attempts, those that would run last first."""

    count: Number


@message(51, columns=("keys", "attempts", "nbytes", "holders"))
class LocatedKeys(Message):
    """Where keys that you missed are now."""

    keys: Keys
    attempts: Ints
    nbytes: Ints
    holders: KeyLists


@message(52, columns=("functions",))
class DropFunctions(Message):
    """No task uses these functions any more."""

    functions: Ids


@message(53)
class Stop(Message):
    """End the process. Supervisors do not start it again."""

    reason: Text


@message(54)
class HoldersGone(Message):
    """The workers at these addresses are lost or have left: their data ports owe no answer."""

    addresses: Texts


# -- worker -> scheduler --------------------------------------------------------------------------


@message(64, columns=("attempts", "nbytes", "durations_us", "results"))
class AttemptsFinished(Message):
    """These attempts' results are in this worker's store.

    Small wanted ones ride along (others: None).
    """

    attempts: Ints
    nbytes: Ints
    durations_us: Ints
    results: Blobs


@message(65, columns=("attempts", "durations_us", "failures"))
class AttemptsErred(Message):
    """These attempts raised."""

    attempts: Ints
    durations_us: Ints
    failures: Failures


@message(66, columns=("attempts",))
class AttemptsReturned(Message):
    """Answer to `ReturnAttempts`: these never started here and never will."""

    attempts: Ints


@message(67, columns=("attempts", "keys"))
class ReplicasAdded(Message):
    """This worker fetched copies of what these attempts produced."""

    attempts: Ints
    keys: Keys


@message(68, columns=("keys",))
class KeysMissing(Message):
    """`holder` could not give this worker these keys.

    It does not have them, or (`unreachable`) it could not be asked at all.
    """

    keys: Keys
    holder: Text
    unreachable: Flag = False


@message(69)
class GetData(Message):
    """To a worker's data port, from peers and clients: send these keys. Answered by `KeysData`."""

    request: Number
    keys: Keys


@message(70, columns=("attempts",))
class AttemptsEnded(Message):
    """Dropped attempts that had not reported hold no thread here any more, or never did."""

    attempts: Ints


@message(71)
class WorkerLeaving(Message):
    """This worker starts nothing any more, and leaves when what runs there has ended."""

    reason: Text


# -- supervisor -> scheduler ----------------------------------------------------------------------


@message(80, columns=("worker_ids", "rss"))
class WorkersAlive(Message):
    """The supervisor's liveness line.

    These worker processes exist, with this much resident memory (bytes).
    """

    worker_ids: Texts
    rss: Ints


@message(81)
class WorkerExited(Message):
    """A worker process ended.

    `running` are the attempts whose user code was being executed, and those whose results were
    being pickled or sent.
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
    """Answer to `GetMetrics`: name -> number, or name -> {label: number}."""

    request: Number
    values: Facts
