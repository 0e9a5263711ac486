"""`weft info --all`: every scheduler of this user that can be found from this machine.

Beside the connection files of the run directories these are `$WEFT_CONNECTION_FILE`, processes of
this user that run `weft scheduler`, and state directories that one of them holds: a scheduler that
was started with `--connection-file` has its file elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...protocol.errors import ConfigError, WeftError
from ...protocol.settings.common import CONNECTION_FILE
from ...protocol.settings.sources import read_settings
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.finding import known_files
from ...protocol.wording import counted
from ..http.viewer import viewing
from ..scheduler.state_directory import state_home

_TIMEOUT_S: Final = 3.0


class Found(NamedTuple):
    """A scheduler, or a trace of one."""

    address: str  #: "" if it is not known
    file: str  #: its connection file, "" if it is not known
    pid: int  #: 0 if it is not known
    host: str
    cluster: dict[str, Any]  #: its description; {} if it did not answer
    problem: str  #: why it did not answer, or what is left of it

    def to_plain(self) -> dict[str, Any]:
        """Return it for programs."""
        return self._asdict()


class Running(NamedTuple):
    """A process of this user that runs `weft scheduler`."""

    pid: int
    parent: int
    #: the value of --connection-file, as an absolute path; "" = the default
    file: str


def find_everything(environ: Mapping[str, str] = os.environ) -> tuple[list[Found], list[str]]:
    """Return all schedulers that can be found, and notes of the files that are of no use."""
    running = running_schedulers()
    files, notes = known_files(environ)
    paths = {file.source for file in files}
    given = read_settings(environ)[CONNECTION_FILE]
    for path in [str(given or ""), *(process.file for process in running)]:
        if path and path not in paths:
            paths.add(path)
            try:
                files.append(ConnectionFile.read(path))
            except ConfigError as error:
                notes.append(str(error))
    found = asyncio.run(_ask_all(files))
    known = {(file.host, file.pid) for file in files}
    here = socket.gethostname()
    for process in processes_without_file(running, known, here):
        text = f"weft scheduler runs, and its connection file was not found{_port_of(process.pid)}"
        found.append(Found("", "", process.pid, here, {}, text))
    return found, [note for note in notes if "skipped" in note or "(" not in note]


def processes_without_file(
    running: list[Running], known: set[tuple[str, int]], here: str
) -> list[Running]:
    """Return the processes that no connection file names, nor their child or parent."""
    parents = {process.parent for process in running}
    pids = {pid for host, pid in known if host == here}
    families = pids | {process.parent for process in running if process.pid in pids}
    return [
        process
        for process in running
        if process.pid not in families
        and process.parent not in families
        # A scheduler's parent, which starts it again, stands for both.
        and (process.pid in parents or process.parent not in {p.pid for p in running})
    ]


def running_schedulers() -> list[Running]:
    """Return the processes of this user that run `weft scheduler`."""
    import psutil

    found = []
    for process in psutil.process_iter(["uids", "cmdline", "ppid"]):
        info = process.info
        if info["uids"] is None or info["uids"].effective != os.geteuid():
            continue
        arguments = arguments_of(info["cmdline"] or [])
        if arguments is None:
            continue
        file = option_of(arguments, "--connection-file")
        if file and not os.path.isabs(file):
            with contextlib.suppress(psutil.Error):
                file = os.path.join(process.cwd(), file)
        found.append(Running(process.pid, info["ppid"], file))
    return found


def arguments_of(command: list[str]) -> list[str] | None:
    """Return the arguments of `weft scheduler`; None if the command is another one.

    One that runs it in a process of its own, as timeout, nohup and sudo may, is another one.
    """
    program = os.path.basename(command[0]) if command else ""
    if program != "weft" and not program.startswith(("python", "pypy")):
        return None
    for i, word in enumerate(command[:4]):
        is_weft = os.path.basename(word) == "weft" or (word == "weft" and command[i - 1] == "-m")
        if is_weft and command[i + 1 : i + 2] == ["scheduler"]:
            return command[i + 2 :]
    return None


def option_of(arguments: list[str], name: str) -> str:
    """Return the value of an option, "" if it is not given."""
    for i, word in enumerate(arguments):
        if word == name and i + 1 < len(arguments):
            return arguments[i + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _port_of(pid: int) -> str:
    """Describe the port and the state directory of a process, as far as they are known."""
    home = state_home()
    with contextlib.suppress(OSError, ValueError, KeyError):
        for path in sorted(home.iterdir()):
            holder = (path / "lock").read_text(encoding="utf-8").split()
            if holder == [str(pid), socket.gethostname()]:
                identity = json.loads((path / "identity.json").read_text(encoding="utf-8"))
                return f"; port {identity['port']}, state directory {path}"
    return ""


async def _ask_all(files: list[ConnectionFile]) -> list[Found]:
    return list(await asyncio.gather(*map(_ask, files)))


async def _ask(file: ConnectionFile) -> Found:
    if file.pid and file.is_stale():
        text = f"its scheduler, process {file.pid}, is gone; remove the file"
        return Found(file.addresses[0], file.source, file.pid, file.host, {}, text)
    cluster: dict[str, Any] = {}
    problem = ""
    try:
        async with viewing(file, _TIMEOUT_S) as viewer:
            cluster = await viewer.ask_all("cluster")
    except TimeoutError:
        problem = "the scheduler does not answer"
    except WeftError as error:
        problem = str(error)
    return Found(file.addresses[0], file.source, file.pid, file.host, cluster, problem)


def describe_everything(found: list[Found], notes: list[str], places: list[Path]) -> str:
    """Format all of it for display."""
    lines = []
    for one in found:
        where = one.address or f"process {one.pid}"
        by = f", process {one.pid} on {one.host}" if one.pid and one.address else ""
        lines.append(f"scheduler at {where}{by}" if one.address else f"{where} on {one.host}")
        if one.cluster:
            workers = f"{counted(one.cluster['n_workers'], 'worker')} with "
            workers += counted(one.cluster["nthreads"], "thread")
            clients = counted(one.cluster["n_clients"], "client")
            tasks = ", ".join(f"{n} {state}" for state, n in one.cluster["tasks"].items() if n)
            lines.append(f"  {workers}, {clients}, tasks: {tasks or 'none'}")
        else:
            lines.append(f"  {one.problem}")
        if one.file:
            lines.append(f"  connection file  {one.file}")
    lines += [f"not usable: {note}" for note in notes]
    if not found:
        looked = ", ".join(map(str, places))
        lines.append(
            f"no scheduler was found: no connection file in {looked}, no process of this user runs "
            "'weft scheduler' on this machine; start one with 'weft scheduler'"
        )
    return "\n".join(lines)
