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

from .actors import (
    ACTOR_BLOB,
    ACTOR_FUNCTION,
    ActorCalls,
    ActorFailures,
    ActorResults,
)
from .from_clients import (
    CancelKeys,
    FetchKeys,
    ReleaseKeys,
    ReleaseOthers,
    ReportMissing,
    ShutdownCluster,
    SubmitTasks,
    WantKeys,
    WithdrawKeys,
)
from .from_supervisors import (
    WorkerExited,
    WorkersAlive,
)
from .from_workers import (
    AttemptsBlocked,
    AttemptsEnded,
    AttemptsErred,
    AttemptsFinished,
    AttemptsResumed,
    AttemptsReturned,
    AttemptsWithdrawn,
    GetData,
    KeysMissing,
    ReplicasAdded,
    WorkerLeaving,
    WorkerStatus,
)
from .held import (
    Operate,
    Operated,
)
from .inventories import (
    ASSIGNED,
    DROPPED,
    RUNNING,
    InventoryEnd,
    InventoryFailed,
    InventoryFunctions,
    InventoryHeld,
    InventoryUnfinished,
    Reconciled,
    Recovered,
    Recovering,
    Resubmitted,
)
from .output import (
    DROPPED as DROPPED_LINES,
)
from .output import (
    EVERYONE,
    LEAST_LEVEL,
    MAX_LOGGER_CHARS,
    MAX_LOGGERS,
    STDERR,
    STDOUT,
    WARNED,
    LogRecords,
    TaskOutput,
    WantOutput,
)
from .plugins import (
    PluginDone,
    PluginGone,
    PluginsHeld,
    SetUpPlugin,
    TearDownPlugin,
)
from .puts import (
    PUT_FUNCTION,
    Put,
    PutDone,
    PutFailed,
    PutWanted,
)
from .questions import (
    Answer,
    Ask,
    AskFailed,
)
from .retrying import (
    KeysRetried,
    RetryKeys,
)
from .sessions import (
    Bye,
    Denied,
    Heartbeat,
    Refused,
    RegisterClient,
    RegisterSupervisor,
    RegisterWorker,
    Unsupported,
    Welcome,
    unsupported,
)
from .times import (
    AttemptTimes,
    RecordTimes,
)
from .to_clients import (
    ClusterChanged,
    ClusterStopped,
    KeysCancelled,
    KeysData,
    KeysErred,
    KeysInMemory,
    KeysPending,
    KeysStarted,
    KeysUnknown,
    KeysUnrunnable,
    ResultsReady,
)
from .to_workers import (
    AssignTasks,
    DropAttempts,
    DropFunctions,
    EndWorkers,
    FailWaits,
    HoldCopies,
    HoldersGone,
    InterruptAttempts,
    LeaveCluster,
    LocatedKeys,
    ReturnAttempts,
    Stop,
    WithdrawAttempts,
    WorkersRetired,
)
from .viewers import (
    GetMetrics,
    Metrics,
)

#: The spec hash of a row whose key is weft's own, among rows that have one.
NO_HASH = bytes(16)

__all__ = [
    "ACTOR_BLOB",
    "ACTOR_FUNCTION",
    "ASSIGNED",
    "DROPPED",
    "DROPPED_LINES",
    "EVERYONE",
    "LEAST_LEVEL",
    "MAX_LOGGERS",
    "MAX_LOGGER_CHARS",
    "NO_HASH",
    "PUT_FUNCTION",
    "RUNNING",
    "STDERR",
    "STDOUT",
    "WARNED",
    "ActorCalls",
    "ActorFailures",
    "ActorResults",
    "Answer",
    "Ask",
    "AskFailed",
    "AssignTasks",
    "AttemptTimes",
    "AttemptsBlocked",
    "AttemptsEnded",
    "AttemptsErred",
    "AttemptsFinished",
    "AttemptsResumed",
    "AttemptsReturned",
    "AttemptsWithdrawn",
    "Bye",
    "CancelKeys",
    "ClusterChanged",
    "ClusterStopped",
    "Denied",
    "DropAttempts",
    "DropFunctions",
    "EndWorkers",
    "FailWaits",
    "FetchKeys",
    "GetData",
    "GetMetrics",
    "Heartbeat",
    "HoldCopies",
    "HoldersGone",
    "InterruptAttempts",
    "InventoryEnd",
    "InventoryFailed",
    "InventoryFunctions",
    "InventoryHeld",
    "InventoryUnfinished",
    "KeysCancelled",
    "KeysData",
    "KeysErred",
    "KeysInMemory",
    "KeysMissing",
    "KeysPending",
    "KeysRetried",
    "KeysStarted",
    "KeysUnknown",
    "KeysUnrunnable",
    "LeaveCluster",
    "LocatedKeys",
    "LogRecords",
    "Metrics",
    "Operate",
    "Operated",
    "PluginDone",
    "PluginGone",
    "PluginsHeld",
    "Put",
    "PutDone",
    "PutFailed",
    "PutWanted",
    "Reconciled",
    "RecordTimes",
    "Recovered",
    "Recovering",
    "Refused",
    "RegisterClient",
    "RegisterSupervisor",
    "RegisterWorker",
    "ReleaseKeys",
    "ReleaseOthers",
    "ReplicasAdded",
    "ReportMissing",
    "Resubmitted",
    "ResultsReady",
    "RetryKeys",
    "ReturnAttempts",
    "SetUpPlugin",
    "ShutdownCluster",
    "Stop",
    "SubmitTasks",
    "TaskOutput",
    "TearDownPlugin",
    "Unsupported",
    "WantKeys",
    "WantOutput",
    "Welcome",
    "WithdrawAttempts",
    "WithdrawKeys",
    "WorkerExited",
    "WorkerLeaving",
    "WorkerStatus",
    "WorkersAlive",
    "WorkersRetired",
    "unsupported",
]
