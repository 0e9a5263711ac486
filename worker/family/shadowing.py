"""Finds files that hide modules of Python's standard library, for the report of a failed start."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import ModuleType
from typing import Final

_DIRECTORIES: Final = tuple(
    os.path.join(os.path.realpath(sysconfig.get_path(name)), "")
    for name in ("stdlib", "platstdlib")
)
#: Packages there may replace a module of the standard library on purpose.
_INSTALLED: Final = ("site-packages", "dist-packages")


def describe_hiding(error: BaseException) -> str:
    """Return which files hide modules that `error` involves, and the remedy; "" for none."""
    hiding = [
        f"the file {file} hides the module {name} of Python's standard library; rename it"
        for name in sorted(sys.stdlib_module_names & sys.modules.keys())
        if (file := _foreign_file(sys.modules[name]))
        and _is_involved(sys.modules[name], name, error)
    ]
    return "; ".join(hiding)


def _foreign_file(module: ModuleType) -> str:
    """Return the file of a module if it is not of the standard library, else ""."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or any(part in file for part in _INSTALLED):
        return ""
    return "" if os.path.realpath(file).startswith(_DIRECTORIES) else file


def _is_involved(module: ModuleType, name: str, error: BaseException) -> bool:
    """Return whether the error names a module, or a frame of its traceback uses it."""
    if f"'{name}'" in str(error):
        return True
    tb = error.__traceback__
    while tb is not None:
        if any(value is module for value in list(tb.tb_frame.f_globals.values())):
            return True
        tb = tb.tb_next
    return False
