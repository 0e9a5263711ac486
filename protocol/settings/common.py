"""Settings that more than one of weft's programs reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .kinds import Flag, OneOf, PathTo
from .setting import Setting

CONNECTION_FILE: Final[Setting[Path | None]] = Setting(
    "connection-file",
    PathTo(),
    None,
    "The scheduler's file, where workers, clients and commands look for its address and token. "
    "Default: the one in your run directory.",
    shown_default="",
    options=("--scheduler-file",),
)
TOKEN_FILE: Final[Setting[Path | None]] = Setting(
    "token-file",
    PathTo(),
    None,
    "File with a token. The scheduler takes its token from it instead of making one; workers and "
    "clients that have an address and no connection file prove this one.",
    shown_default="",
)
LOG_LEVEL: Final[Setting[str]] = Setting(
    "log-level",
    OneOf("debug", "info", "warning", "error"),
    "info",
    "Least level of the lines that are written to standard error.",
)
AS_DISTRIBUTED: Final = Setting(
    "as-distributed",
    Flag(),
    False,
    "Let libraries that import dask.distributed find weft's client and primitives, as "
    "weft.compat.distributed.install() does. Only the environment can set it, to 1, and `import "
    "weft` alone reads it.",
    has_option=False,
    in_files=False,
)
LOG_FORMAT: Final[Setting[str]] = Setting(
    "log-format",
    OneOf("text", "json"),
    "text",
    "How these lines are written: for people, or each as a JSON object for programs that collect "
    "logs.",
)
TRUST_MOUNTED_SECRETS: Final = Setting(
    "trust-mounted-secrets",
    Flag(),
    False,
    "Accept secret files that a container's runtime mounts: links to files of root that others can "
    "read, but not write. Only the environment can set it, to 1.",
    has_option=False,
    in_files=False,
)
