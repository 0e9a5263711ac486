"""Find a program that `make tools` installs.

HELM = tool("helm")        # a Path, or the test is skipped with the command that installs it
find("helm")               # a Path, or None
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.tools.table import Apt, Npm, Tool, row_of

#: Where distributions put daemons; not all users have these in PATH.
_DAEMONS = "/usr/sbin:/sbin:/usr/local/sbin"


def folder() -> Path:
    """Return the folder of the tools: `$WEFT_TOOLS`, or `~/.cache/weft-tools`."""
    given = os.environ.get("WEFT_TOOLS")
    return Path(given).absolute() if given else Path.home() / ".cache" / "weft-tools"


def home_of(row: Tool) -> Path:
    """Return the folder of a row; it exists only if the row is installed whole."""
    return folder() / f"{row.name}-{row.version}"


def find(name: str) -> Path | None:
    """Return where the program, or the folder of files, called `name` is, if it is installed."""
    row = row_of(name)
    if name not in row.provides:
        name = row.provides[0]
    if isinstance(row.how, Apt):
        found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_DAEMONS}")
        return Path(found) if found else None
    path = home_of(row) / ("node_modules" if isinstance(row.how, Npm) else "") / name
    return path if path.exists() else None


def tool(name: str) -> Path:
    """Return where `name` is, or skip the test with the command that installs it."""
    path = find(name)
    if path is None:
        import pytest

        pytest.skip(f"{name} is missing: make tools ARGS={row_of(name).name}")
    return path
