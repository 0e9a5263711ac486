"""Runs the scheduler and the machines of `weft ssh`, and ends them all in order."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...protocol.trust.connection_file import ConnectionFile
from .host import FAR_END, Host, Login

#: Machines that are logged in to at a time; an sshd refuses more than some.
_N_AT_ONCE: Final = 10
_FAILED: Final = 1


@dataclass
class Plan:
    """The processes to start, and the machines for them.

    Attributes:
        hosts: of the workers, as ssh knows them; one may be named twice.
        scheduler_host: where the scheduler runs; None = here.
        scheduler_arguments: of `weft scheduler`, without host and connection file.
        scheduler_address: the name or address at which hosts reach it; "" = found out.
        worker_arguments: of `weft worker`.
        connection_file: for clients on this machine.
        patience_s: time that workers have to leave, after SIGTERM.
    """

    hosts: Sequence[str]
    login: Login
    scheduler_host: str | None
    scheduler_arguments: Sequence[str]
    scheduler_address: str
    worker_arguments: Sequence[str]
    connection_file: Path
    patience_s: float


class SshCluster:
    """The processes of one `weft ssh`.

    Args:
        plan: what to start.
        show: prints a line of a machine.
        say: prints a line about a machine.
    """

    def __init__(
        self, plan: Plan, show: Callable[[str, str], None], say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._show = show
        self._say = say
        self._hosts: list[Host] = []
        #: The first signal, 0 before.
        self._signal = 0

    async def run(self) -> int:
        """Run everything until a signal, or until the scheduler or all workers have ended."""
        loop = asyncio.get_running_loop()
        self._stop = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        scheduler = self._make_scheduler()
        scheduler.written = loop.create_future()
        running = loop.create_task(scheduler.run())
        try:
            file = await self._connection(scheduler, running)
            if file is None:
                return 0 if self._signal else _FAILED
            return await self._run_hosts(file, scheduler, running)
        finally:
            if not running.done():
                scheduler.send_signal(signal.SIGTERM)
                await asyncio.wait([running], timeout=self._plan.patience_s)
            if not running.done():
                scheduler.hang_up()
                await running
            if self._plan.scheduler_host is not None:
                self._plan.connection_file.unlink(missing_ok=True)

    def _on_signal(self, number: int) -> None:
        if self._signal:
            for host in self._hosts:
                host.hang_up()
            return
        self._signal = number
        if not self._stop.done():
            self._stop.set_result(None)

    # --- The scheduler ----------------------------------------------------------------------------

    def _make_scheduler(self) -> Host:
        plan, login = self._plan, self._plan.login
        is_here = all(map(login.is_here, plan.hosts))
        listen = plan.scheduler_address or ("127.0.0.1" if is_here else "0.0.0.0")
        host = plan.scheduler_host
        if host is None:
            command = [sys.executable, "-m", FAR_END]
            path = str(plan.connection_file)
        else:
            command, path = login.command(host), "{folder}/scheduler.json"
            if not plan.scheduler_address and not login.is_here(host):
                listen = "0.0.0.0"
        arguments = ["scheduler", "--host", listen, "--connection-file", path]
        return Host(
            "scheduler",
            command,
            {
                "arguments": [*arguments, *plan.scheduler_arguments],
                "files": {},
                "report": path,
            },
            self._show,
            login.python if host else sys.executable,
            machine=host or "",
        )

    async def _connection(
        self, scheduler: Host, running: asyncio.Task[int]
    ) -> dict[str, Any] | None:
        """Return the content of the connection file; None if there will be none."""
        assert scheduler.written is not None
        ends: list[asyncio.Future[Any]] = [scheduler.written, running, self._stop]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if scheduler.written.done() and not scheduler.written.cancelled():
            content = scheduler.written.result()
            if self._plan.scheduler_host is not None:
                path = self._plan.connection_file
                ConnectionFile.from_plain(content, scheduler.name).write(path)
                self._say(f"connect with weft.Client(connection_file='{path}')")
                if content.get("dashboard"):
                    self._say(
                        f"status page {content['dashboard']}: sign in with: weft token --role view "
                        f"--bare --connection-file {shlex.quote(str(path))}"
                    )
            return content
        if not self._signal:
            self._say(f"{scheduler.name}: {scheduler.failure or 'the scheduler has ended'}")
        return None

    # --- Machines ---------------------------------------------------------------------------------

    async def _run_hosts(
        self, content: dict[str, Any], scheduler: Host, scheduling: asyncio.Task[int]
    ) -> int:
        text = _for_workers(content)
        gate = asyncio.Semaphore(_N_AT_ONCE)
        lives = [asyncio.create_task(self._run_host(name, text, gate)) for name in self._plan.hosts]
        everyone = asyncio.gather(*lives)
        ends: list[asyncio.Future[Any]] = [everyone, scheduling, self._stop]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        number = signal.SIGTERM if self._signal == signal.SIGTERM else signal.SIGINT
        if not scheduling.done():
            for host in self._hosts:
                host.send_signal(number)
        done, _ = await asyncio.wait([everyone], timeout=self._plan.patience_s)
        if not done:
            for host in self._hosts:
                host.hang_up()
        codes = await everyone
        if self._signal:
            return 0
        if scheduling.done():
            code = scheduling.result()
            if code:
                self._say(f"{scheduler.name}: {scheduler.failure}")
            return _FAILED if code else 0
        if any(codes):
            self._say("no worker is left")
        return _FAILED if any(codes) else 0

    async def _run_host(self, name: str, text: str, gate: asyncio.Semaphore) -> int:
        plan = self._plan
        short = name.rpartition("@")[2]
        host = Host(
            name,
            plan.login.command(name),
            {
                "arguments": [
                    *("worker", "--connection-file", "{folder}/weft.json", "--name", short),
                    *plan.worker_arguments,
                ],
                "files": {"weft.json": text},
            },
            self._show,
            plan.login.python,
            machine=name,
        )
        async with gate:
            if self._signal:
                return 0
            self._hosts.append(host)
            life = asyncio.create_task(host.run())
            while not host.has_begun and not life.done():
                await asyncio.wait([life], timeout=0.05)
        code = await life
        if host.failure and not self._signal:
            self._say(f"{name}: {host.failure}")
        return code


def _for_workers(content: dict[str, Any]) -> str:
    """Return a connection file for workers, whose machines need no higher token."""
    file = ConnectionFile.from_plain(content, "the scheduler's connection file")
    return replace(file, token=file.to_security().token_for("worker")).to_text()
