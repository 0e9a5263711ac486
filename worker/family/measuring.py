"""Measurements of a supervisor about its family: who is alive, memory, starts and deaths."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from ...protocol.host.memory import taken_nbytes
from ...protocol.reported import DEATHS, OF_SUPERVISORS, n_numbers
from ..measuring.numbers import NumbersFile

#: States of a suspended process: by SIGSTOP, or by a debugger.
SUSPENDED: Final = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class FamilyMeter:
    """Counts starts and deaths, and measures processes, which are named by their workers' ids."""

    def __init__(self) -> None:
        self._n_started = 0
        #: by kind
        self._n_died = [0] * len(DEATHS)
        self._file: NumbersFile | None = None

    def note_start(self) -> None:
        """Count a worker process that was started."""
        self._n_started += 1

    def note_death(self, kind: str) -> None:
        """Count one that ended without a request; `kind` is one of `DEATHS`."""
        self._n_died[DEATHS.index(kind)] += 1

    def rss(self, processes: Mapping[str, psutil.Process]) -> dict[str, int]:
        """Return the resident bytes of every living process."""
        sizes = {}
        for worker_id, process in processes.items():
            if nbytes := taken_nbytes(process.pid):  # else it ends just now
                sizes[worker_id] = nbytes
        return sizes

    def measure(
        self, processes: Mapping[str, psutil.Process], children: Mapping[str, int]
    ) -> tuple[dict[str, int], list[int]]:
        """Return the bytes of those that count as alive, and the supervisor's numbers.

        Suspended processes do not count as alive. The numbers are those of `OF_SUPERVISORS`.

        Args:
            processes: {id of a worker: its process}.
            children: {id of a worker: bytes of its own child processes}.
        """
        sizes = {
            worker_id: nbytes + children.get(worker_id, 0)
            for worker_id, nbytes in self.rss(processes).items()
        }
        nbytes = sum(sizes.values())
        nbytes += taken_nbytes()
        for worker_id, process in processes.items():
            with contextlib.suppress(psutil.Error):
                if process.status() in SUSPENDED:
                    sizes.pop(worker_id, None)
        numbers = [len(processes), self._n_started, *self._n_died, nbytes]
        if self._file is not None:
            self._file.write(numbers)
        return sizes, numbers

    def write_to(self, path: Path) -> None:
        """Write the numbers to this file whenever they are measured."""
        self._file = NumbersFile(path, "", n_numbers(OF_SUPERVISORS))

    def write(self, processes: Mapping[str, psutil.Process], children: Mapping[str, int]) -> None:
        """Measure, if there is a file to write to."""
        if self._file is not None:
            self.measure(processes, children)

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()
            self._file = None
