"""Settings of `weft worker`, section `[worker]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .kinds import MAX_COUNT, MemoryLimit, NumberOfWorkers, PathTo, Resources, Text, TimeSpan, Whole
from .setting import Setting

NWORKERS: Final[Setting[int | None]] = Setting(
    "worker.nworkers",
    NumberOfWorkers(),
    None,
    "Worker processes. auto: one per core, or as many as fit with --nthreads. Negative: that many "
    "cores less one stay free; -1 is one worker per core, -2 one less.",
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
    "fair share) or none. Above 95 % of it a worker is restarted.",
)
NAME: Final[Setting[str | None]] = Setting(
    "worker.name",
    Text("NAME"),
    None,
    "For display; numbered if there are several. Default: the host's name.",
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
    "Folder for files of the workers, and temporary ones of their tasks; they get a folder of "
    "their own there, which is removed with them. Default: the folder for temporary files.",
)
HOST: Final[Setting[str | None]] = Setting(
    "worker.host",
    Text("HOST"),
    None,
    "Address of this machine at which other workers and clients fetch data. Default: the one from "
    "which the scheduler is reached.",
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
GRACE_PERIOD: Final = Setting(
    "worker.grace-period",
    TimeSpan(),
    10.0,
    "Time after SIGTERM in which workers may finish their running tasks; they start no others. A "
    "second signal ends them at once, as Ctrl-C does.",
)
