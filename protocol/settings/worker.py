"""Settings of `weft worker`, section `[worker]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .kinds import (
    MAX_COUNT,
    Flag,
    HostPort,
    MemoryLimit,
    NumberOfWorkers,
    OrNone,
    Part,
    PathTo,
    Ports,
    Resources,
    Size,
    Text,
    Texts,
    TimeSpan,
    Whole,
)
from .setting import Setting

NWORKERS: Final[Setting[int | None]] = Setting(
    "worker.nworkers",
    NumberOfWorkers(),
    None,
    "Worker processes. auto: one per core, or as many as fit with --nthreads. Negative: "
    "-1 is one worker per core, -2 leaves one core free, and so on.",
    shown_default="auto",
)
NTHREADS: Final[Setting[int | None]] = Setting(
    "worker.nthreads",
    Whole(1, MAX_COUNT, {"auto": None}),
    None,
    "Tasks that each worker runs at a time. auto: the cores divided among the workers.",
    shown_default="auto",
)
MEMORY_LIMIT: Final[Setting[Any]] = Setting(
    "worker.memory-limit",
    MemoryLimit(),
    "auto",
    "Limit per worker: a size (4GB, 512MiB), a fraction of the machine's memory (0.5), auto (a "
    "fair share) or none. Above 60 % of it results are written to disk, above 95 % a worker is "
    "restarted; see --memory-target and the next ones.",
)
MEMORY_TARGET: Final = Setting(
    "worker.memory-target",
    Part(),
    0.6,
    "Part of the memory limit. When the results of a worker take more, those that were not used "
    "for longest are written to disk. They come back when they are read.",
)
MEMORY_SPILL: Final = Setting(
    "worker.memory-spill",
    Part(),
    0.7,
    "The same, by what the process takes.",
)
MEMORY_PAUSE: Final = Setting(
    "worker.memory-pause",
    Part(),
    0.8,
    "Part of the memory limit. A worker whose process takes more gets no tasks.",
)
MEMORY_TERMINATE: Final = Setting(
    "worker.memory-terminate",
    Part(),
    0.95,
    "Part of the memory limit. A worker whose process takes more is restarted; its results are "
    "computed again.",
)
MAX_SPILL: Final[Setting[int | None]] = Setting(
    "worker.max-spill",
    OrNone(Size()),
    None,
    "Most bytes of results that each worker has on disk; 0: none are written. Default: what the "
    "disk has room for.",
    shown_default="",
)
ISOLATE: Final = Setting(
    "worker.isolate",
    Flag(),
    False,
    "Run each task in a child process of its worker, one for each thread. A crash there fails that "
    "task only, and a task that does not end is killed alone. Each result is pickled.",
)
MAX_TASKS: Final[Setting[int | None]] = Setting(
    "worker.max-tasks",
    OrNone(Whole(1, 1_000_000_000)),
    None,
    "With --isolate: tasks that a child process runs before it is replaced. Default: no bound.",
    shown_default="",
)
MAX_DRIFT: Final[Setting[int | None]] = Setting(
    "worker.max-drift",
    OrNone(Size()),
    500_000_000,
    "With --isolate: a child process is replaced between two tasks when its memory has grown by "
    "more than this since its first task.",
    shown_default="500MB",
)
NAME: Final[Setting[str | None]] = Setting(
    "worker.name",
    Text("NAME"),
    None,
    "For display; numbered if there are several. Default: the host's name.",
)
METRICS_ADDRESS: Final[Setting[str | None]] = Setting(
    "worker.metrics-address",
    HostPort(),
    None,
    "Address of a page with the metrics of these workers, /metrics, for the view token. HTTPS "
    "beyond this machine. Default: none, and the scheduler's page has the sums of all workers.",
)
RESOURCES: Final[Setting[dict[str, float]]] = Setting(
    "worker.resources",
    Resources(),
    {},
    "Amounts that tasks may request with resources=, e.g. 'GPU=2 MEM=10e9', per worker.",
)
LOCAL_DIRECTORY: Final[Setting[Path | None]] = Setting(
    "worker.local-directory",
    PathTo(is_folder=True),
    None,
    "Folder for files of the workers, such as results that do not fit into memory, and temporary "
    "ones of their tasks; they get a folder of their own there, which is removed with them. "
    "Default: the folder for temporary files.",
)
HOST: Final[Setting[str | None]] = Setting(
    "worker.host",
    Text("HOST"),
    None,
    "Address of this machine at which other workers and clients fetch data. Default: the one from "
    "which the scheduler is reached.",
)
INTERFACE: Final[Setting[str | None]] = Setting(
    "worker.interface",
    Text("NAME"),
    None,
    "Network interface, such as eth0 or ib0, whose address stands for --host.",
)
PORT: Final[Setting[tuple[int, int]]] = Setting(
    "worker.port",
    Ports(),
    (0, 0),
    "Port at which a worker serves data, or the first and last of a range with one for each "
    "worker, for a firewall. 0 = any free one.",
    option_key="worker-port",
)
LISTEN_ADDRESS: Final[Setting[str | None]] = Setting(
    "worker.listen-address",
    Text("HOST"),
    None,
    "Address at which workers listen for others, 0.0.0.0 for every one, if it is not the one at "
    "which others reach them (--contact-address or --host): behind NAT, or in a container.",
)
CONTACT_ADDRESS: Final[Setting[str | None]] = Setting(
    "worker.contact-address",
    Text("HOST"),
    None,
    "Name or address at which others reach these workers; it need not be of this machine. With "
    "--worker-port, whose ports are forwarded unchanged, if there is a router in between.",
)
CONNECT_TIMEOUT: Final = Setting(
    "worker.connect-timeout",
    TimeSpan(),
    60.0,
    "Time to wait for a scheduler that has not been started yet, and then for one that does not "
    "answer yet. Once connected, --orphan-lease counts.",
)
ORPHAN_LEASE: Final = Setting(
    "worker.orphan-lease",
    TimeSpan(),
    900.0,
    "Time for which workers that have lost their scheduler keep their results, finish what they "
    "run and look for a scheduler; then they end. It should be longer than the reconnect-timeout "
    "of clients (60 s).",
)
DEATH_TIMEOUT: Final[Setting[float | None]] = Setting(
    "worker.death-timeout",
    OrNone(TimeSpan()),
    None,
    "Both --connect-timeout and --orphan-lease in one, where those are not given.",
)
LIFETIME: Final[Setting[float | None]] = Setting(
    "worker.lifetime",
    OrNone(TimeSpan(least=1.0)),
    None,
    "Time after which each worker leaves as after SIGTERM, such as the time limit of a batch job "
    "less some minutes. When the last one has left, 'weft worker' ends. Default: none.",
)
LIFETIME_STAGGER: Final = Setting(
    "worker.lifetime-stagger",
    TimeSpan(),
    0.0,
    "The lifetime of each worker differs by a random time up to this one, so that not all leave at "
    "once.",
)
LIFETIME_RESTART: Final = Setting(
    "worker.lifetime-restart",
    Flag(),
    False,
    "Start another worker in place of one whose lifetime is over, or do not: against libraries "
    "that lose memory.",
    shown_default="",
)
PRELOAD: Final[Setting[tuple[str, ...]]] = Setting(
    "worker.preload",
    Texts("MODULE"),
    (),
    "Module, or path of a .py file, that each worker process imports before it takes tasks. Its "
    "function weft_setup(worker), if it has one, is called before the worker joins, and "
    "weft_teardown(worker) at its end. Repeatable.",
)
PID_FILE: Final[Setting[Path | None]] = Setting(
    "worker.pid-file",
    PathTo(),
    None,
    "File for the number of the process that signals are for; removed at its end.",
)
GRACE_PERIOD: Final = Setting(
    "worker.grace-period",
    TimeSpan(),
    10.0,
    "Time after SIGTERM in which workers may finish their running tasks and give away the results "
    "that only they have; they start no others. "
    "SIGINT, or SIGTERM again later than 1 s, ends them at once, as Ctrl-C does.",
)
