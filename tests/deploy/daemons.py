"""Real `weft` processes for tests: started, waited for by their output, and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.leaks import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent


def environment(run_directory: Path, **extra: str) -> dict[str, str]:
    """An environment in which weft finds itself, and no cluster but the test's."""
    # Of a service manager or container, too: they change what `weft scheduler` does.
    foreign = ("WEFT_", "XDG_", "KUBERNETES_", "INVOCATION_ID", "NOTIFY_SOCKET")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    run_directory.mkdir(mode=0o700, exist_ok=True)
    return env | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "XDG_RUNTIME_DIR": str(run_directory),
        "HOME": str(run_directory),
        **extra,
    }


class Daemon:
    """A `weft` command that runs until it is stopped."""

    def __init__(self, *arguments: str, folder: Path, code: str | None = None, **env: str) -> None:
        self.folder = folder
        number = len(list(folder.glob("*.out")))
        self._out, self._err = folder / f"{number}.out", folder / f"{number}.err"
        command = [sys.executable, *(("-c", code) if code else ("-m", "weft")), *arguments]
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=environment(folder / "run", **env),
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def family(self) -> list[psutil.Process]:
        """The process and all below it."""
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def wait_for(self, text: str, n: int = 1) -> str:
        """Wait until it has printed `text`, `n` times; return all that it printed."""

        def printed() -> bool:
            if self.process.poll() is not None and (self.out + self.err).count(text) < n:
                raise AssertionError(f"it ended without {text!r}:\n{self.out}{self.err}")
            return (self.out + self.err).count(text) >= n

        wait_until(printed, 30, f"{text!r} in the output")
        return self.out + self.err

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def daemon(*arguments: str, folder: Path, code: str | None = None, **env: str) -> Iterator[Daemon]:
    """A daemon that is ended with the block, with everything below it."""
    started = Daemon(*arguments, folder=folder, code=code, **env)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            family = started.family()
            started.process.terminate()
            try:
                started.process.wait(30)
            except subprocess.TimeoutExpired:
                for process in family:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                started.process.wait(30)
                raise


@contextmanager
def scheduler(*arguments: str, folder: Path, **env: str) -> Iterator[Daemon]:
    """A scheduler that listens, at a port of its own; without HTTP unless asked for."""
    pages = () if "--dashboard-address" in arguments else ("--no-dashboard",)
    port = () if "--port" in arguments or "unix" in arguments else ("--port", "0")
    with daemon("scheduler", *port, *pages, *arguments, folder=folder, **env) as started:
        started.wait_for("connect ")
        yield started


def address_of(started: Daemon) -> str:
    """The address of a scheduler, as it printed it."""
    return started.out.split()[2].rstrip(",")


def file_of(started: Daemon) -> Path:
    """The connection file of a scheduler, as it printed."""
    (line,) = [line for line in started.out.splitlines() if "connection file" in line]
    return Path(line.split()[2])


def run(
    *arguments: str, folder: Path, code: str | None = None, timeout: float = 60, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a `weft` command, or Python code, to its end."""
    return subprocess.run(
        [sys.executable, *(("-c", code) if code else ("-m", "weft")), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        timeout=timeout,
        env=environment(folder / "run", **env),
        check=False,
    )


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether all of these have ended. A process that is not reaped counts as ended."""

    def is_gone(process: psutil.Process) -> bool:
        try:
            return process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return all(map(is_gone, processes))
