"""Plugins that prepare what tasks run in: environment variables, and packages.

With `restart_workers` (`restart` of `Environ`) they are set up by the supervisors, before workers
are started; else by the workers themselves.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from .base import SupervisorPlugin, WorkerPlugin

#: Characters of pip's last lines that an error shows.
_MAX_CHARS: Final = 4000


class _Variables:
    """The variables that plugins have set in one environment: of each name, the last one holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: {name: {plugin: value}}, in the order in which they were set; none is empty
        self._set: dict[str, dict[object, str]] = {}
        #: {name: the value before the first of them; None = it was not set}
        self._before: dict[str, str | None] = {}

    def add(self, plugin: object, environ: Mapping[str, str], to: MutableMapping[str, str]) -> None:
        """Set the variables of a plugin."""
        with self._lock:
            for name, value in environ.items():
                if name not in self._set:
                    self._set[name] = {}
                    self._before[name] = to.get(name)
                self._set[name].pop(plugin, None)
                self._set[name][plugin] = value
                to[name] = value

    def remove(self, plugin: object, of: MutableMapping[str, str]) -> None:
        """Restore what the variables of a plugin were without it."""
        with self._lock:
            for name, values in list(self._set.items()):
                if values.pop(plugin, None) is None:
                    continue
                value = next(reversed(values.values())) if values else self._before[name]
                if not values:
                    del self._set[name], self._before[name]
                if value is None:
                    of.pop(name, None)
                else:
                    of[name] = value


#: Of this process, and of the workers that it starts.
_here: Final = _Variables()
_of_workers: Final = _Variables()


class Environ(WorkerPlugin):
    """Set environment variables in all workers, before their tasks run.

    A library that reads a variable when it is imported, and that a worker has imported already,
    does not see it. With `restart=True` all workers are started again, with the variables in their
    environment from the start.

    Args:
        environ: `{name: value}`; values that are no text are converted by `str`.
        restart: replace the workers that run; needs workers in processes of their own.
    """

    def __init__(self, environ: Mapping[str, Any] | None = None, restart: bool = False) -> None:
        if environ is not None and not isinstance(environ, Mapping):
            raise TypeError(f"Environ needs a mapping, not {type(environ).__name__}")
        self.environ = {str(name): str(value) for name, value in (environ or {}).items()}
        digest = hashlib.sha256(repr(sorted(self.environ)).encode()).hexdigest()
        self.name = f"environ-{digest[:12]}"
        self.restart = restart

    def for_supervisors(self) -> SupervisorPlugin | None:
        """Return what is registered in its place: the same for supervisors, if it restarts."""
        return _EnvironOfWorkers(self.environ, self.name) if self.restart else None

    def setup(self, worker: Any) -> None:
        """Set the variables."""
        _here.add(self, self.environ, os.environ)

    def teardown(self, worker: Any) -> None:
        """Restore what the variables were."""
        _here.remove(self, os.environ)


class _EnvironOfWorkers(SupervisorPlugin):
    """The variables with which workers are started."""

    restart = True

    def __init__(self, environ: dict[str, str], name: str) -> None:
        self.environ = environ
        self.name = name

    def setup(self, supervisor: Any) -> None:
        _of_workers.add(self, self.environ, supervisor.env)

    def teardown(self, supervisor: Any) -> None:
        _of_workers.remove(self, supervisor.env)


class InstallPlugin(WorkerPlugin):
    """Call a function once on each machine, before the tasks of its workers run.

    The workers of a machine that use one environment of Python wait for the first of them, which
    calls it. A package that a worker has imported already stays what it is until the worker is
    restarted.

    Args:
        install_fn: the function, which takes no arguments: it installs packages, or copies data.
        restart_workers: call it beside the supervisors of the workers, and replace the workers that
            run then; needs workers in processes of their own.
    """

    def __init__(self, install_fn: Callable[[], object], restart_workers: bool = False) -> None:
        if not callable(install_fn):
            raise TypeError(f"install_fn= is a function, not {type(install_fn).__name__}")
        self.install_fn = install_fn
        self.restart_workers = restart_workers
        #: Names this installation, which each machine makes once.
        self.token = uuid.uuid4().hex
        self.name = f"install-{self.token[:12]}"

    def for_supervisors(self) -> SupervisorPlugin | None:
        """Return what is registered in its place: the same for supervisors, if it restarts."""
        return _InstallBeforeWorkers(self) if self.restart_workers else None

    def setup(self, worker: Any) -> None:
        """Call the function, unless that was done for this plugin in this environment."""
        folder = _own_folder()
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / f"{self.token}.done"
            if not done.exists():
                self.install_fn()
                done.touch()
        importlib.invalidate_caches()


class _InstallBeforeWorkers(SupervisorPlugin):
    """An installation before workers are started."""

    restart = True

    def __init__(self, plugin: InstallPlugin) -> None:
        self.plugin = plugin
        self.name = plugin.name

    def setup(self, supervisor: Any) -> None:
        self.plugin.setup(supervisor)


class PipInstall(InstallPlugin):
    """Install packages with pip for all workers, once on each machine, before their tasks run.

    Args:
        packages: requirements, as pip takes them.
        pip_options: of `pip install`, as `["--upgrade"]`.
        restart_workers: replace the workers that run after it, so that none keeps an older version
            that it has imported; needs workers in processes of their own.
    """

    def __init__(
        self,
        packages: Iterable[str],
        pip_options: Iterable[str] | None = None,
        restart_workers: bool = False,
    ) -> None:
        if isinstance(packages, str) or isinstance(pip_options, str):
            raise TypeError("packages and pip_options are lists of texts, not one text")
        self.packages = [str(package) for package in packages]
        self.pip_options = [str(option) for option in pip_options or ()]
        if not self.packages:
            raise ValueError("PipInstall needs at least one package")
        install = partial(_pip_install, self.packages, self.pip_options)
        super().__init__(install, restart_workers)
        digest = hashlib.sha256(repr(sorted(self.packages)).encode()).hexdigest()
        self.name = f"pip-install-{digest[:12]}"


def _pip_install(packages: list[str], options: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += [*options, *packages]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip()[-_MAX_CHARS:]
        raise RuntimeError(f"{' '.join(command)} failed with exit code {ended.returncode}:\n{said}")


def _own_folder() -> Path:
    """Return a folder of this user for this environment on this machine, of mode 0700."""
    prefix = os.stat(sys.prefix)
    environment = f"{sys.prefix} {prefix.st_dev} {prefix.st_ino}"
    digest = hashlib.sha256(environment.encode()).hexdigest()[:12]
    folder = Path("/tmp", f"weft-pip-{os.getuid()}-{digest}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or found.st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to another user; remove it")
    return folder
