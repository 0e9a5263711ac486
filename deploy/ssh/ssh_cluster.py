"""`SSHCluster`: a scheduler of this program, and workers on machines that ssh reaches.

A job is one machine: the far end of `weft ssh` there runs one `weft worker`, and ends with its
standard input, so also when this program is killed. The connection file comes by that way.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from ...client.modes import Mode
from ...client.shell.loop import LoopThread
from ...protocol.errors import ConfigError
from ..jobs.arguments import check_text, texts_of
from ..jobs.cluster import JobCluster
from ..jobs.ledger import RUNNING, WAITING, JobState
from .host import Host, Login

#: Lines of a machine that are kept.
_N_LINES: Final = 1000
#: Time for a machine to end what it runs, before the connection is given up.
_END_S: Final = 10.0


@dataclass
class _Machine:
    """One job: a machine that runs workers, or has run them."""

    host: Host
    life: Future[int]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_N_LINES))


class SSHCluster(JobCluster[Mode]):
    """A scheduler in this program, and workers on machines that ssh reaches without a password.

    Args:
        hosts: as ssh knows them; all run workers, and one may be named twice.
        cores: threads of each machine.
        processes: worker processes of each machine; None = one for each core.
        n_workers: how many workers there are at the start; None = those of all machines.
        connect_options: options of ssh: `["-p", "2222"]`.
        remote_python: path of Python there; None = that of this one.
        options: of `JobCluster`: `memory`, `host`, `interface`, `worker_extra_args`, `name`,
            `dashboard_address`, `asynchronous` and others.

    Raises:
        ConfigError: an argument is invalid, or ssh is not installed.
    """

    default_name: ClassVar[str] = "ssh"

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        cores: int = 1,
        processes: int | None = None,
        n_workers: int | None = None,
        connect_options: Sequence[str] = (),
        remote_python: str | None = None,
        **options: Any,
    ) -> None:
        self.hosts = texts_of(hosts, "hosts")
        if not self.hosts:
            raise ConfigError("no machine is named", "hosts")
        arguments = texts_of(connect_options, "connect_options")
        if remote_python is not None:
            options["python"] = check_text(remote_python, "remote_python")
        self.max_jobs = len(self.hosts)
        self._login = Login(arguments, **({"python": options["python"]} if remote_python else {}))
        #: {id: machine}, those that have ended included
        self._machines: dict[str, _Machine] = {}
        if "host" not in options and "interface" not in options:
            is_here = all(map(self._login.is_here, self.hosts))
            options["host"] = "127.0.0.1" if is_here else "0.0.0.0"
        self._loop = LoopThread("weft-ssh")
        if n_workers is None:
            n_workers = len(self.hosts) * (processes or cores)
        super().__init__(n_workers, cores=cores, processes=processes, **options)

    def _start(self) -> None:
        self._loop.start()
        super()._start()

    # --- Jobs -------------------------------------------------------------------------------------

    def start_jobs(self, names: Sequence[str]) -> list[str]:
        """Log in to machines that run nothing."""
        free = [*self.hosts]
        for machine in self._machines.values():
            if not machine.life.done() and machine.host.machine in free:
                free.remove(machine.host.machine)
        return [self._log_in(name, host) for name, host in zip(names, free, strict=False)]

    def _log_in(self, name: str, host: str) -> str:
        lines: deque[str] = deque(maxlen=_N_LINES)
        command = self.worker_command(name)[3:]  # without "python -m weft"
        place = command.index("--connection-file") + 1
        command[place] = "{folder}/weft.json"
        assert self._scheduler is not None
        made = Host(
            host,
            self._login.command(host),
            {"arguments": command, "files": {"weft.json": self._scheduler.connection().to_text()}},
            lambda _, line: lines.append(line),
            self._login.python,
            machine=host,
        )
        life = asyncio.run_coroutine_threadsafe(made.run(), self._loop.loop)
        job = f"{host}-{len(self._machines) + 1}"
        self._machines[job] = _Machine(made, life, lines)
        return job

    def end_jobs(self, jobs: Sequence[str]) -> None:
        """End what machines run, and the connections."""
        self._loop.run_coroutine(self._end([self._machines[job] for job in jobs]))

    async def _end(self, machines: list[_Machine]) -> None:
        lives = [asyncio.wrap_future(machine.life) for machine in machines]
        for machine in machines:
            machine.host.send_signal(signal.SIGINT)
        _, left = await asyncio.wait(lives, timeout=_END_S)
        for machine in machines:
            machine.host.hang_up()
        if left:
            await asyncio.wait(left)

    def job_states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Return what is known of machines."""
        return {job: self._state_of(self._machines[job]) for job in jobs}

    def _state_of(self, machine: _Machine) -> JobState:
        if not machine.life.done():
            return RUNNING if machine.host.has_begun else WAITING
        error = machine.life.exception()
        why = machine.host.failure if error is None else f"ssh cannot be run: {error}"
        return JobState("ended", why, failed=bool(why))

    def log_of(self, job: str, name: str) -> str:
        """Return the latest lines of a machine."""
        return "\n".join([*self._machines[job].lines, ""])

    def _remove_files(self) -> None:
        super()._remove_files()
        self._loop.stop()
