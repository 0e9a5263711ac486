"""A cluster of `weft scheduler` and `weft worker` processes, for workloads that break it.

Each process that was started is ended by its id.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

import psutil

START_TIMEOUT_S = 60.0


class Daemon:
    """A `weft` command that runs until it is ended."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        environment |= {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder)}
        self._log: IO[bytes] = open(folder / f"{arguments[0]}.log", "ab")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )
        self._lines: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put((time.perf_counter(), line.strip()))
        self._lines.put((time.perf_counter(), ""))

    def wait_for(self, beginning: str) -> tuple[float, str]:
        """Return when it printed a line that begins like this, and the line."""
        while True:
            when, line = self._lines.get(timeout=START_TIMEOUT_S)
            if line.startswith(beginning):
                return when, line
            if not line:
                raise RuntimeError(f"the process ended before it printed {beginning!r}")

    def kill(self) -> None:
        """Kill it, and all that it started, at once."""
        family = [psutil.Process(self._process.pid)] if self._process.poll() is None else []
        with contextlib.suppress(psutil.NoSuchProcess):
            family += [child for process in family for child in process.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(family[1:], timeout=10)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Cluster:
    """A scheduler and the workers of one `weft worker`.

    Args:
        n_workers: with one thread each.
    """

    def __init__(self, n_workers: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="weft-bench-"))
        self.connection_file = str(self.folder / "cluster.json")
        self.n_workers = n_workers
        self.port = 0
        self._token_file = self.folder / "token"
        self._scheduler: Daemon | None = None
        self._workers: Daemon | None = None

    def __enter__(self) -> Cluster:
        from weft.protocol.trust.security import new_token

        try:
            self._token_file.touch(mode=0o600)
            self._token_file.write_text(new_token(), encoding="ascii")
            self.start_scheduler()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in (self._workers, self._scheduler):
            if daemon is not None:
                daemon.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_scheduler(self) -> float:
        """Start it, at the port of the one before; return when it listened."""
        self._scheduler = Daemon(
            *("scheduler", "--port", str(self.port), "--no-dashboard", "--log-level", "warning"),
            *("--connection-file", self.connection_file, "--token-file", str(self._token_file)),
            *("--state-dir", str(self.folder / "state")),
            *("--no-restart", "--state-dir", str(self.folder / "state")),
            folder=self.folder,
        )
        when, line = self._scheduler.wait_for("scheduler at")
        self.port = int(line.split()[2].rstrip(",").rpartition(":")[2])
        return when

    def kill_scheduler(self) -> None:
        assert self._scheduler is not None
        self._scheduler.kill()

    def start_workers(self, port: int) -> None:
        """Start the workers, which find the scheduler at this port."""
        self._workers = Daemon(
            *("worker", f"tcp://127.0.0.1:{port}", "--connection-file", self.connection_file),
            *("--nworkers", str(self.n_workers), "--nthreads", "1", "--memory-limit", "none"),
            *("--log-level", "error"),
            folder=self.folder,
        )
