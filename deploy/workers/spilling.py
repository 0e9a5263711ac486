"""Where and when workers write results to disk, from the settings of users."""

from __future__ import annotations

import logging
import os
from dataclasses import astuple
from typing import Any, Final

from ...protocol.errors import ConfigError
from ...protocol.host.file_systems import is_in_memory
from ...protocol.settings import worker as table
from ...protocol.settings.sources import Settings
from ...worker.policy import Fractions

_log: Final = logging.getLogger("weft.worker")

_FRACTIONS: Final = (
    table.MEMORY_TARGET,
    table.MEMORY_SPILL,
    table.MEMORY_PAUSE,
    table.MEMORY_TERMINATE,
)
#: A folder for temporary files that is on a disk where the usual one may be in memory.
_ON_DISK: Final = "/var/tmp"


def memory_fractions(given: Settings) -> Fractions:
    """Return the parts of the memory limit above which workers do something.

    Raises:
        ConfigError: they are not in order.
    """
    try:
        return Fractions(*(given[setting] for setting in _FRACTIONS))
    except ValueError as error:
        changed = [given.name_of(setting) for setting in _FRACTIONS if given.is_given(setting)]
        text = f"{error}: the parts of the memory limit must not become smaller in this order"
        raise ConfigError(text, ", ".join(changed)) from None


def spill_options(given: Settings, directory: str, *, is_named: bool) -> dict[str, Any]:
    """Return the options of worker processes about memory.

    Args:
        given: the settings.
        directory: the folder of the workers' files.
        is_named: the user has named it; else another one is taken if files there take memory.

    Raises:
        ConfigError: the fractions are not in order.
    """
    fractions = memory_fractions(given)
    max_spill = given[table.MAX_SPILL]
    is_on = max_spill != 0 and (fractions.target or fractions.spill)
    return {
        "fractions": astuple(fractions),
        "spill_directory": _place(directory, is_named=is_named) if is_on else "",
        "max_spill": max_spill or 0,
    }


def isolate_option(given: Settings, *, is_on: bool) -> list[int] | None:
    """Return the option of worker processes about isolation; None = they do not isolate.

    Args:
        given: the settings.
        is_on: whether they isolate.
    """
    if not is_on:
        return None
    return [given[table.MAX_TASKS] or 0, given[table.MAX_DRIFT] or 0]


def _place(directory: str, *, is_named: bool) -> str:
    if not is_in_memory(directory):
        return directory
    if is_named:
        _log.warning(
            "%s is in memory: results that are written there make no room",
            directory,
            extra={"code": "spill-in-memory"},
        )
        return directory
    if os.access(_ON_DISK, os.W_OK) and not is_in_memory(_ON_DISK):
        return _ON_DISK
    _log.info(
        "no result is written to disk when memory is short, since %s is in memory; name another "
        "folder with --local-directory",
        directory,
    )
    return ""
