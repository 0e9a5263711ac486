"""Plugins that prepare what tasks run in: environment variables, and packages."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from .base import WorkerPlugin

__all__ = ["Environ", "PipInstall"]

#: Characters of pip's last lines that an error shows.
_MAX_CHARS: Final = 4000


class Environ(WorkerPlugin):
    """Set environment variables in all workers, before their tasks run.

    A library that reads a variable when it is imported, and that the worker has imported already,
    does not see it; set such variables where `weft worker` is started.

    Args:
        environ: `{name: value}`; values that are no text are converted by `str`.
        restart: accepted for compatibility with dask, and ignored.
    """

    def __init__(self, environ: Mapping[str, Any] | None = None, restart: bool = True) -> None:
        if environ is not None and not isinstance(environ, Mapping):
            raise TypeError(f"Environ needs a mapping, not {type(environ).__name__}")
        self.environ = {str(name): str(value) for name, value in (environ or {}).items()}
        digest = hashlib.sha256(repr(sorted(self.environ)).encode()).hexdigest()
        self.name = f"environ-{digest[:12]}"
        self._before: dict[str, str | None] = {}

    def setup(self, worker: Any) -> None:
        """Set the variables."""
        self._before = {name: os.environ.get(name) for name in self.environ}
        os.environ.update(self.environ)

    def teardown(self, worker: Any) -> None:
        """Restore what the variables were."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class PipInstall(WorkerPlugin):
    """Install packages with pip for all workers, once on each machine, before their tasks run.

    The workers of a machine that use one environment wait for the first of them, which installs.
    A package that a worker has imported already stays what it is until the worker is restarted.

    Args:
        packages: requirements, as pip takes them.
        pip_options: of `pip install`, as `["--upgrade"]`.
        restart_workers: accepted for compatibility with dask; only False is allowed.
    """

    def __init__(
        self,
        packages: Iterable[str],
        pip_options: Iterable[str] | None = None,
        restart_workers: bool = False,
    ) -> None:
        if isinstance(packages, str) or isinstance(pip_options, str):
            raise TypeError("packages and pip_options are lists of texts, not one text")
        if restart_workers:
            raise ValueError(
                "restart_workers=True is not supported: new workers install before their tasks; "
                "restart those that have imported an older release"
            )
        self.packages = [str(package) for package in packages]
        self.pip_options = [str(option) for option in pip_options or ()]
        if not self.packages:
            raise ValueError("PipInstall needs at least one package")
        digest = hashlib.sha256(repr(sorted(self.packages)).encode()).hexdigest()
        self.name = f"pip-install-{digest[:12]}"
        #: Names this installation, which each machine makes once.
        self.token = uuid.uuid4().hex

    def setup(self, worker: Any) -> None:
        """Install, unless another worker of this environment has done so for this plugin."""
        folder = _own_folder()
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / f"{self.token}.done"
            if not done.exists():
                self._install()
                done.touch()
        importlib.invalidate_caches()

    def _install(self) -> None:
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        command += [*self.pip_options, *self.packages]
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip()[-_MAX_CHARS:]
            raise RuntimeError(
                f"{' '.join(command)} failed with exit code {ended.returncode}:\n{said}"
            )


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
