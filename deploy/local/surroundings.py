"""The settings of this process that tasks on a kept cluster are to find in its workers."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Surroundings(NamedTuple):
    """The settings that a worker takes from the program.

    Attributes:
        folder: the working directory, None if it was removed.
        path: `sys.path`.
        argv: `sys.argv`.
        environment: the variables.
        authkey: key with which processes of multiprocessing authenticate each other, b"" if it is
            not used: with it, tasks can use the objects of a `multiprocessing.Manager`.
    """

    folder: str | None
    path: list[str]
    argv: list[str]
    environment: dict[str, str]
    authkey: bytes = b""

    @classmethod
    def of_this_process(cls) -> Surroundings:
        """Return the settings of this process."""
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            folder = None
        path = [entry for entry in sys.path if isinstance(entry, str)]
        argv = list(getattr(sys, "argv", [""]))
        processes = sys.modules.get("multiprocessing.process")
        authkey = b"" if processes is None else bytes(processes.current_process().authkey)
        return cls(folder, path, argv, dict(os.environ), authkey)

    def apply(self, known: Iterable[str]) -> None:
        """Apply these settings to this process.

        Args:
            known: names of variables that the program has had. Others, like defaults that a worker
                has set for itself, stay.
        """
        if self.folder is not None:
            # It may have been removed, or be forbidden; tasks that need it raise an error.
            with contextlib.suppress(OSError):
                os.chdir(self.folder)
        sys.path[:] = self.path
        sys.argv[:] = self.argv
        for name in set(known) - self.environment.keys():
            os.environ.pop(name, None)
        os.environ.update(self.environment)
        importlib.invalidate_caches()
        if self.authkey:
            from multiprocessing import process

            process.current_process().authkey = self.authkey


def prepare_worker(
    now: Surroundings, known: set[str], initializer: Callable[[], Any] | None
) -> int:
    """Prepare the worker process that this is called in; return its pid."""
    now.apply(known)
    if initializer is not None:
        initializer()
    return os.getpid()
