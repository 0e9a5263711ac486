"""Settings of `LocalCluster`, section `[local]`. An argument of the same name comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .kinds import MAX_COUNT, HostPort, PathTo, Whole
from .setting import Setting

N_WORKERS: Final[Setting[int | None]] = Setting(
    "local.n-workers",
    Whole(1, MAX_COUNT, {"auto": None}),
    None,
    "Worker processes. auto: one per core, or as many as fit with threads-per-worker.",
    shown_default="auto",
    has_option=False,
)
THREADS_PER_WORKER: Final[Setting[int | None]] = Setting(
    "local.threads-per-worker",
    Whole(1, MAX_COUNT, {"auto": None}),
    None,
    "Tasks that each worker runs at a time. auto: the cores divided among the workers.",
    shown_default="auto",
    has_option=False,
)
LOCAL_DIRECTORY: Final[Setting[Path | None]] = Setting(
    "local.local-directory",
    PathTo(is_folder=True),
    None,
    "Folder for files of the workers. Default: the folder for temporary files.",
    shown_default="",
    has_option=False,
)
DASHBOARD_ADDRESS: Final[Setting[str | None]] = Setting(
    "local.dashboard-address",
    HostPort(),
    None,
    "Address of the HTTP pages. Default: none are served.",
    shown_default="",
    has_option=False,
)
