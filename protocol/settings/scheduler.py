"""Settings of `weft scheduler`, section `[scheduler]`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .kinds import (
    Flag,
    HostNames,
    HostPort,
    JournalPlace,
    LimitsOfUsers,
    MemoryLimit,
    OneOf,
    OrNone,
    PathTo,
    Size,
    Text,
    TimeSpan,
    Whole,
)
from .setting import Setting

HOST: Final[Setting[str]] = Setting(
    "scheduler.host",
    Text("HOST"),
    "127.0.0.1",
    "Address to listen at. Connections beyond this machine are encrypted with TLS; 0.0.0.0 listens "
    "at all addresses.",
)
INTERFACE: Final[Setting[str | None]] = Setting(
    "scheduler.interface",
    Text("NAME"),
    None,
    "Network interface, such as eth0 or ib0, whose address stands for --host.",
)
PORT: Final[Setting[int]] = Setting(
    "scheduler.port",
    Whole(0, 65535),
    8786,
    "0 = any free one. The default falls back to a free one if it is taken, unless the state "
    "directory has a cluster in it; a port that is given never does.",
)
PROTOCOL: Final[Setting[str | None]] = Setting(
    "scheduler.protocol",
    OneOf("tcp", "tls", "unix"),
    None,
    "Default: tcp on this machine, tls beyond. unix: a socket in your run directory.",
)
CONNECTION_FILE: Final[Setting[Path | None]] = Setting(
    "scheduler.connection-file",
    PathTo(),
    None,
    "File to write. Default: scheduler-PORT.json in your run directory ($XDG_RUNTIME_DIR/weft or "
    "~/.weft/run), where workers and clients look.",
    options=("--scheduler-file",),
)
CLUSTER_ID_FILE: Final[Setting[Path | None]] = Setting(
    "scheduler.cluster-id-file",
    PathTo(),
    None,
    "Take the cluster's id, 32 hexadecimal digits, from this file. With a token file, and for TLS "
    "the two files below, any new scheduler is the same cluster, without a state directory.",
)
CERTIFICATE_FILE: Final[Setting[Path | None]] = Setting(
    "scheduler.certificate-file",
    PathTo(),
    None,
    "Take the TLS certificate from this PEM file instead of making one; with --key-file.",
    options=("--tls-cert",),
)
KEY_FILE: Final[Setting[Path | None]] = Setting(
    "scheduler.key-file",
    PathTo(),
    None,
    "The private key of --certificate-file, PEM, without a passphrase.",
    options=("--tls-key",),
)
NAME: Final[Setting[str | None]] = Setting(
    "scheduler.name",
    Text("NAME"),
    None,
    "Name of the connection file, the Unix socket and the state directory. Default: "
    "scheduler-PORT, scheduler, and PORT.",
)
DASHBOARD: Final = Setting(
    "scheduler.dashboard",
    Flag(),
    True,
    "Serve HTTP pages, or none.",
    shown_default="",
)
DASHBOARD_ADDRESS: Final = Setting(
    "scheduler.dashboard-address",
    HostPort(),
    "127.0.0.1:8787",
    "Address of the HTTP pages: /healthz, /readyz, /metrics. HTTPS beyond this machine.",
)
DASHBOARD_HOST_NAMES: Final[Setting[tuple[str, ...]]] = Setting(
    "scheduler.dashboard-host-names",
    HostNames(),
    (),
    "A name by which browsers reach the HTTP pages, beside localhost and the name of this machine: "
    "that of a service or a proxy before them. Requests for other names are refused. The option is "
    "repeatable; the variable has commas.",
    option_key="dashboard-host-name",
)
CLIENT_LEASE: Final = Setting(
    "scheduler.client-lease",
    TimeSpan(),
    60.0,
    "Time for which the results that a lost client wants are kept for its return.",
)
LIVENESS_TIMEOUT: Final = Setting(
    "scheduler.liveness-timeout",
    TimeSpan(least=1.0),
    30.0,
    "Time without a message after which a peer counts as dead: for the scheduler, a worker that "
    "its supervisor does not report alive either; for workers and clients, the scheduler.",
)
ALLOWED_DEATHS: Final[Setting[int]] = Setting(
    "scheduler.allowed-deaths",
    Whole(0, 1000),
    3,
    "Workers that may die while they run a task before the task counts as the cause and fails with "
    "WorkerDied.",
)
BLOCK_AFTER: Final = Setting(
    "scheduler.block-after",
    Whole(0, 1000),
    0,
    "Failures in a row on one host after which it is blocked, as by 'weft block'. A failure counts "
    "when the same task ends well on another host later. The last host that tasks have is not "
    "blocked. 0: none is.",
)
BLOCK_FOR: Final = Setting(
    "scheduler.block-for",
    TimeSpan(least=1.0),
    900.0,
    "Time for which --block-after blocks a host.",
)
TARGET_DURATION: Final = Setting(
    "scheduler.target-duration",
    TimeSpan(least=0.1),
    5.0,
    "Time in which the present work would be done by as many workers as are desired, for "
    "autoscalers.",
)
USER_MEMORY: Final[Setting[str | float | int]] = Setting(
    "scheduler.user-memory",
    MemoryLimit(),
    "auto",
    "Memory that the tasks of one user may take in the scheduler: their arguments, and 1 KiB each. "
    "Beyond it, new ones fail with UserLimit. A client whose token carries no user is one by "
    "itself. auto: half of the machine's memory.",
)
USER_TASKS: Final[Setting[int | None]] = Setting(
    "scheduler.user-tasks",
    OrNone(Whole(1, 1 << 40)),
    None,
    "Tasks that one user may have in the scheduler, with those that are done and still needed. "
    "Default: as many as fit into --user-memory.",
)
USER_RUNNING: Final[Setting[int | None]] = Setting(
    "scheduler.user-running",
    OrNone(Whole(1, 1 << 40)),
    None,
    "Tasks of one user that run at a time, with those that are next at their workers. More of them "
    "wait in the scheduler. Default: no limit.",
)
USER_LIMITS: Final[Setting[dict[str, dict[str, int]]]] = Setting(
    "scheduler.user-limits",
    LimitsOfUsers(),
    {},
    "Limits of single users, by the names in their tokens, in the place of --user-memory, "
    "--user-tasks and --user-running.",
    has_option=False,
)
NO_WORKER_TIMEOUT: Final[Setting[float | None]] = Setting(
    "scheduler.no-worker-timeout",
    OrNone(TimeSpan(least=1.0)),
    None,
    "Time after which a task fails with NoWorker if no connected worker could run it, unless its "
    "call has a no_worker_timeout= of its own. It does not count while the cluster adapts. A "
    "LocalCluster reads it, too. Default: such tasks wait.",
)
OUTBOX_MEMORY: Final = Setting(
    "scheduler.outbox-memory",
    Size(),
    256 << 20,
    "Memory of the messages that may wait for one peer that does not read; then it is cut off.",
    has_option=False,
)
UNFINISHED_MEMORY: Final = Setting(
    "scheduler.unfinished-memory",
    Size(),
    512 << 20,
    "Memory of the messages of all peers that have arrived in part; beyond it, only the oldest is "
    "read on.",
    has_option=False,
)
IDLE_TIMEOUT: Final[Setting[float | None]] = Setting(
    "scheduler.idle-timeout",
    OrNone(TimeSpan(least=1.0)),
    None,
    "Time after which the cluster ends, workers and scheduler, if no task runs, waits or comes. "
    "Results that clients have not fetched are lost then. Default: it does not end by itself.",
)
STATE_DIR: Final[Setting[Path | None]] = Setting(
    "scheduler.state-dir",
    PathTo(is_folder=True),
    None,
    "Folder for what the next scheduler of this cluster needs: its secrets, port, last epoch and "
    "members. Default: NAME or PORT in $XDG_STATE_HOME/weft or ~/.local/state/weft; a temporary "
    "one with --port 0 and no --name.",
)
JOURNAL: Final[Setting[str | None]] = Setting(
    "scheduler.journal",
    JournalPlace(),
    None,
    "Where detached jobs are recorded: a file, or postgresql://USER@HOST/DATABASE (weft[postgres]) "
    "for schedulers on several machines, of which the one that is started last takes over. "
    "?schema=NAME is for a second cluster in the same database. A password belongs into PGPASSWORD "
    "or ~/.pgpass. Default: journal.sqlite in the state directory.",
)
PID_FILE: Final[Setting[Path | None]] = Setting(
    "scheduler.pid-file",
    PathTo(),
    None,
    "File for the number of the process that signals are for; removed at its end.",
)
RESTART: Final = Setting(
    "scheduler.restart",
    Flag(),
    True,
    "Start the scheduler again when it dies, or do not. Under systemd and in containers nothing is "
    "started again by itself either: the manager does that.",
    shown_default="",
)
