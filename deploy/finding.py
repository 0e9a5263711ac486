"""Finds the scheduler of `weft worker`, which may be started after it.

Under a service manager or in containers the order of starts is undefined. Therefore a worker waits
for the file that a scheduler writes at its start, and ends only because of permanent errors.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

from ..protocol.errors import ConfigError, ConnectTimeout
from ..protocol.net.probing import why_nobody_answers
from ..protocol.settings.common import CONNECTION_FILE
from ..protocol.settings.sources import read_settings
from ..protocol.trust.connection_file import ConnectionFile
from ..protocol.trust.finding import NoSchedulerFound, find
from ..protocol.wire.levels import Level

_log = logging.getLogger("weft.worker")

#: How often the files are read.
_POLL_S: Final = 0.1
#: A scheduler that already listens writes its connection file within this time.
_LISTENS_FIRST_S: Final = 2.0


#: A token is of no use at an address at which no process listens.
_ADVICE: Final = (
    "start a scheduler there with 'weft scheduler', or correct the address; 'weft info --all' "
    "lists the schedulers of this machine"
)


def find_scheduler(connection_file: Path | None, address: str | None) -> ConnectionFile:
    """Find the cluster; an error begins with what is wrong with the address, if anything.

    Raises:
        NoSchedulerFound: there is none, or it is answered, and its token is not known.
        ConfigError: there are several, or the configuration is at fault.
    """
    try:
        return find(connection_file, address, os.environ)
    except NoSchedulerFound as error:
        if address and (problem := why_nobody_answers(address)):
            raise NoSchedulerFound(problem, _ADVICE) from None
        error.is_answered = address is not None and connection_file is None
        raise


def wait_for_scheduler(
    connection_file: Path | None, address: str | None, timeout_s: float
) -> ConnectionFile:
    """Find the cluster; wait for a scheduler that has not been started yet.

    Raises:
        ConnectTimeout: there is none after `timeout_s`.
        ConfigError: waiting will not help.
    """
    deadline = time.monotonic() + timeout_s
    is_said = False
    is_given = connection_file or read_settings(os.environ).is_given(CONNECTION_FILE)
    where = None if is_given else address
    while True:
        try:
            found = find(connection_file, address, os.environ)
        except NoSchedulerFound as error:
            missing = error
        else:
            found.demand(Level.WORKER, "a worker")
            return found
        if not is_said:
            is_said = True
            problem = why_nobody_answers(where) if where else ""
            if where and not problem:
                # Its token is not here: it is the scheduler of another machine or user.
                deadline = min(deadline, time.monotonic() + _LISTENS_FIRST_S)
            else:
                what = problem or missing.what
                _log.warning(
                    "%s; waiting for a scheduler for %g s",
                    what,
                    timeout_s,
                    extra={"code": "scheduler-away"},
                )
        if time.monotonic() >= deadline:
            if where and not why_nobody_answers(where):
                raise ConfigError(str(missing))
            raise ConnectTimeout(f"no scheduler was found within {timeout_s:g} s: {missing}")
        time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
