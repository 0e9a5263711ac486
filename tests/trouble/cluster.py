"""The daemons of a round: a scheduler, and supervisors with their workers behind the proxy."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.proxy import Proxy
from tests.deploy.daemons import Daemon, address_of, file_of
from tests.leaks import wait_until
from weft.protocol.errors import WeftError
from weft.protocol.trust.connection_file import ConnectionFile

N_WORKERS = 3
N_THREADS = 2
#: Seconds that processes get to end after the request.
GRACE_S = 20


@dataclass
class Host:
    """One `weft worker` command: a spawner, its supervisor, and its workers."""

    name: str
    address: str
    daemon: Daemon | None = None
    #: when it is to be started again, if it is not there
    due: float = 0.0
    _first_child: psutil.Process | None = None

    def family(self) -> list[psutil.Process]:
        """All its processes that live, the spawner first."""
        if self.daemon is None or self.daemon.process.poll() is not None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.daemon.family()
        return []

    def supervisor(self) -> psutil.Process | None:
        """The process that watches the workers: the spawner forks it before any of them."""
        children = self.family()[1:]
        if self._first_child is None and children:
            self._first_child = min(children, key=lambda process: process.pid)
        return self._first_child if self._first_child in children else None

    def workers(self) -> list[psutil.Process]:
        """Its worker processes. A killed one is listed until it is reaped."""
        supervisor = self.supervisor()
        return [p for p in self.family()[1:] if p != supervisor and _is_running(p)]


def _is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


class Cluster:
    """Starts daemons in `folder`, and ends all of them at `close`."""

    def __init__(self, folder: Path, n_hosts: int) -> None:
        self.folder = folder
        #: Every process that was seen below a daemon, so that none is left at the end.
        self._seen: dict[psutil.Process, None] = {}
        self.proxy: Proxy | None = None
        self._clients: list[subprocess.Popen[str]] = []
        self._started: list[Daemon] = []
        self.hosts: list[Host] = []
        try:
            self._start(n_hosts)
        except BaseException:
            self.close()
            raise

    def _start(self, n_hosts: int) -> None:
        options = ("--port", "0", "--no-dashboard")
        self.scheduler = Daemon("scheduler", *options, folder=self.folder)
        self._started.append(self.scheduler)
        self.scheduler.wait_for("connect ")
        self.scheduler_port = int(address_of(self.scheduler).rsplit(":", 1)[1])
        self.file = file_of(self.scheduler)
        self.proxy = Proxy(self.scheduler_port)
        for i in range(n_hosts):
            name = f"host-{i}"
            host = Host(name, f"tcp://127.0.0.1:{self.proxy.port_for(name)}")
            self.hosts.append(host)
            self.start(host)
        wait_until(lambda: self.scheduler.err.count(" joined from ") >= N_WORKERS * n_hosts, 60)

    def start(self, host: Host) -> None:
        """Run a host's command, again if it has ended."""
        host._first_child = None
        host.daemon = Daemon(
            *("worker", host.address, "--connection-file", str(self.file), "--name", host.name),
            *("--nworkers", str(N_WORKERS), "--nthreads", str(N_THREADS)),
            *("--memory-limit", "none", "--connect-timeout", "600", "--log-level", "debug"),
            folder=self.folder,
        )
        self._started.append(host.daemon)

    def kill_scheduler(self) -> str:
        """Kill the scheduler's process; its parent starts it again as the same cluster.

        The first connection of a client is not tried again: all of them have to be there.
        """
        connected = re.findall(r"client (client-\d+) connected", self.scheduler.err)
        if len(set(connected)) < len(self._clients):
            return ""
        with contextlib.suppress(WeftError, ProcessLookupError):
            pid = ConnectionFile.read(self.file).pid
            os.kill(pid, signal.SIGKILL)
            return f"process {pid}"
        return ""

    def start_client(self, number: int, arguments: list[str]) -> subprocess.Popen[str]:
        """Start a client's process, which reaches the scheduler through the proxy."""
        from tests.deploy.daemons import ROOT, environment

        assert self.proxy is not None
        port = self.proxy.port_for(f"client-{number}")
        with open(self.folder / f"client-{number}.err", "wb") as err:
            client = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.trouble.client"),
                    *("--address", f"tcp://127.0.0.1:{port}"),
                    *("--connection-file", str(self.file), "--number", str(number)),
                    *arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                cwd=ROOT,
                env=environment(self.folder / "run"),
                text=True,
            )
        self._clients.append(client)
        return client

    def look(self) -> None:
        """Note which processes there are now."""
        for host in self.hosts:
            self._seen.update(dict.fromkeys(host.family()))
            host.supervisor()  # is remembered

    def resume_all(self) -> None:
        """Let every process go on."""
        self.look()
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End every process that this has started, by its id."""
        self.resume_all()
        for client in self._clients:
            client.kill()
            client.wait(GRACE_S)
            for stream in (client.stdin, client.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        for daemon in reversed(self._started):
            if daemon.process.poll() is None:
                daemon.process.terminate()
        for daemon in self._started:
            try:
                daemon.process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait(GRACE_S)
        for (
            process
        ) in self._seen:  # a psutil process is compared with its start time: never another
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.proxy is not None:
            self.proxy.close()
