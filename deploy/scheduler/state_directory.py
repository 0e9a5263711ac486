"""The state directory of a scheduler: what the next scheduler of the same cluster needs to know.

    lock            held by the scheduler that uses the directory, with its process id in it
    identity.json   the cluster's id, token, certificate and key, and the port
    epoch.json      the last epoch, written before any peer learns it
    members.json    the workers and clients, by id, at most a second old

A scheduler that starts with the directory is the same cluster for all its peers: they find it at
the same address, accept it, and it waits for the members that it knew. The directory has mode 0700
and the files 0600, because the token permits everything. Each file is replaced as a whole, and has
the cluster's id, so that files of two clusters cannot be mixed up.

What is damaged, of another cluster, or not ours is an error with the path and what to do, and
nothing is overwritten then.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shutil
import socket
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ...protocol.errors import ConfigError
from ...protocol.trust.secret_files import (
    CLOEXEC,
    NOFOLLOW,
    MissingFile,
    check_private,
    make_directory,
    read_secret_file,
    write_secret_file,
)
from ...protocol.trust.security import Security
from ...protocol.wire.levels import Level
from ...scheduler.core.records.presence import Members

_log = logging.getLogger("weft.scheduler")

FILE_VERSION: Final = 1
#: Ids of hundreds of thousands of members.
_MAX_FILE_BYTES: Final = 64 << 20
_KIND: Final = "state file"
_TEMPORARY: Final = "state-"


class DirectoryInUse(ConfigError):
    """Another running scheduler uses the state directory.

    Stop that scheduler, or give this one a state directory of its own.

    Attributes:
        holder: the scheduler, for example "process 123 on myhost"; "" if it is not known.
    """

    def __init__(self, text: str, holder: str = "") -> None:
        super().__init__(text)
        self.holder = holder


class DirectoryUnusable(ConfigError):
    """The state directory cannot be made, locked or written to.

    Give another one, where this user has the permission and the disk has room.
    """


@dataclass
class Identity:
    """The properties by which peers know a cluster again. The repr shows no secret.

    Attributes:
        cluster_id: 32 hexadecimal digits.
        view_token: by it a token from elsewhere is recognised as the same.
        token: the token of an admin; "" = it is kept in a token file of the user.
        certificate_pem, private_key_pem: None = none were needed so far.
        port: the port that it listened at; 0 = none, at a Unix socket.
    """

    cluster_id: str
    view_token: str = field(repr=False)
    token: str = field(default="", repr=False)
    certificate_pem: str | None = field(default=None, repr=False)
    private_key_pem: str | None = field(default=None, repr=False)
    port: int = 0

    @classmethod
    def of(cls, security: Security, port: int, *, keeps_token: bool) -> Identity:
        """Describe a scheduler; `keeps_token` is False if its token is in a file of the user."""
        assert security.cluster_id is not None
        return cls(
            cluster_id=security.cluster_id.hex(),
            view_token=security.token_for(Level.VIEW.label),
            token=security.token.decode() if keeps_token else "",
            certificate_pem=security.certificate_pem,
            private_key_pem=security.private_key_pem,
            port=port,
        )


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory for the state directories of this user: ~/.local/state/weft."""
    home = Path(environ.get("XDG_STATE_HOME", ""))
    if not home.is_absolute():
        home = Path(environ.get("HOME") or os.path.expanduser("~")) / ".local" / "state"
    return home / "weft"


def temporary_path(parent: Path, owner: int) -> Path:
    """Return the path of a state directory in `parent` that lasts as long as process `owner`."""
    return parent / f"{_TEMPORARY}{owner}"


def remove_stale_temporary(parent: Path) -> None:
    """Remove the temporary directories whose owners were killed."""
    for path in parent.glob(f"{_TEMPORARY}*"):
        owner = path.name.removeprefix(_TEMPORARY)
        if owner.isdecimal() and not _exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class StateDirectory:
    """An open state directory, locked by this process.

    Attributes:
        path: where it is.
        identity: None in a new one.
        last_epoch: 0 in a new one.
        members: of the last epoch.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the directory.

        Raises:
            DirectoryInUse: another running scheduler holds it.
            ConfigError: it is damaged, or not safe or possible to use; nothing was overwritten.
        """
        self._thread: ThreadPoolExecutor | None = None
        self._writing: asyncio.Future[None] | None = None
        #: Those that came while the ones before were being written.
        self._next: Members | None = None
        self.path = path
        self._is_new = not path.exists()
        try:
            make_directory(path)
        except ConfigError as error:
            raise DirectoryUnusable(str(error)) from None
        _check_own(path)
        self._lock = _lock(path)
        try:
            self.identity = self._read_identity()
            self.last_epoch, self.members = self._read_rest()
        except BaseException:
            self.close()
            raise

    # --- Reading ----------------------------------------------------------------------------------

    def _read_identity(self) -> Identity | None:
        content = self._read("identity.json")
        if content is None:
            return None
        texts = {name: content.get(name) for name in ("cluster_id", "view_token", "token")}
        pems = {name: content.get(name) for name in ("certificate_pem", "private_key_pem")}
        port = content.get("port")
        if (
            not all(isinstance(text, str) for text in texts.values())
            or not all(pem is None or isinstance(pem, str) for pem in pems.values())
            or type(port) is not int
            or not 0 <= port < 1 << 16
        ):
            raise self._damaged("identity.json")
        try:
            found = Identity(**texts, **pems, port=port)  # type: ignore[arg-type]
            token = found.token or found.view_token
            Security(token.encode(), bytes.fromhex(found.cluster_id), found.certificate_pem)
        except (ConfigError, ValueError):
            raise self._damaged("identity.json") from None
        return found

    def _read_rest(self) -> tuple[int, Members]:
        if self.identity is None:
            return 0, Members()
        epoch = self._read("epoch.json") or {"epoch": 0, "cluster_id": self.identity.cluster_id}
        members = self._read("members.json") or {**epoch, "worker_ids": [], "client_ids": []}
        for name, content in (("epoch.json", epoch), ("members.json", members)):
            if content.get("cluster_id") != self.identity.cluster_id:
                raise ConfigError(
                    f"{self.path / name} is of another cluster than identity.json beside it; give "
                    "another --state-dir, or remove the file that does not belong there"
                )
        number = epoch.get("epoch")
        ids = [members.get("worker_ids"), members.get("client_ids")]
        if type(number) is not int or not 0 <= number < 1 << 62:
            raise self._damaged("epoch.json")
        if not all(
            isinstance(part, list) and all(isinstance(i, str) for i in part) for part in ids
        ):
            raise self._damaged("members.json")
        return number, Members(*map(tuple, ids))  # type: ignore[arg-type]

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            data = read_secret_file(path, _KIND, _MAX_FILE_BYTES)
        except MissingFile:
            return None
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise self._damaged(name) from None
        if not isinstance(content, dict) or type(content.get("version")) is not int:
            raise self._damaged(name)
        if content["version"] > FILE_VERSION:
            raise ConfigError(
                f"{path} was written by a newer weft (format {content['version']}, this one reads "
                f"{FILE_VERSION}); install that version, or give another --state-dir"
            )
        return content

    def _damaged(self, name: str) -> ConfigError:
        lost = {
            "identity.json": "the cluster is a new one then, which no running worker joins",
            "epoch.json": "the epoch is then taken from the clock",
            "members.json": "the scheduler then waits for no worker or client by name",
        }[name]
        return ConfigError(
            f"the state file {self.path / name} is damaged; restore it, give another --state-dir, "
            f"or remove it: {lost}"
        )

    # --- Writing ----------------------------------------------------------------------------------

    def keep_identity(self, identity: Identity) -> None:
        """Store the identity, if it is not the one that is there."""
        if identity != self.identity:
            self._write("identity.json", asdict(identity))
            self.identity = identity

    def keep_epoch(self, epoch: int) -> None:
        """See `scheduler.server.Keeper`."""
        assert self.identity is not None, "the identity comes first"
        self._write("epoch.json", {"cluster_id": self.identity.cluster_id, "epoch": epoch})
        self.last_epoch = epoch

    def keep_members(self, members: Members) -> None:
        """See `scheduler.server.Keeper`: write in a thread, the latest if several come."""
        if self._writing is not None:
            self._next = members
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "weft-state")
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._write_members, members)
        self._writing.add_done_callback(self._on_written)

    def _on_written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, ConfigError):
            # A full disk, for instance; the next change tries again.
            _log.warning("%s", error, extra={"code": "state-not-written"})
        elif error is not None:
            raise error
        members, self._next = self._next, None
        if members is not None:
            self.keep_members(members)

    def _write_members(self, members: Members) -> None:
        assert self.identity is not None, "the identity comes first"
        content = {"cluster_id": self.identity.cluster_id, **asdict(members)}
        self._write("members.json", content)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps({"version": FILE_VERSION, **content}, indent=1) + "\n"
        write_secret_file(self.path / name, text, _KIND)

    # --- The end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Let another scheduler use it, when all is written. A second call does nothing."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
            members, self._next = self._next, None
            if members is not None:
                # The loop has ended before the callback of the write before could start this one.
                try:
                    self._write_members(members)
                except ConfigError as error:
                    _log.warning("%s", error, extra={"code": "state-not-written"})
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def discard(self) -> None:
        """Close, and remove it if it was made here: no scheduler has run with it."""
        if self._is_new:
            shutil.rmtree(self.path, ignore_errors=True)
        self.close()


def _check_own(path: Path) -> None:
    """Check that it is a directory in which no other user can read or write."""
    try:
        status = path.lstat()
    except OSError as error:
        text = f"cannot use the state directory {path}: {error.strerror}"
        raise DirectoryUnusable(text) from None
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"the state directory {path} is not a directory; give another one")
    check_private(status, f"the state directory {path}", path, "700")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise DirectoryUnusable(f"cannot use the state directory {path}: Permission denied")


def _lock(path: Path) -> int:
    """Lock the directory; return the descriptor that holds the lock."""
    name = path / "lock"
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, 0o600)
    except OSError as error:
        text = f"cannot lock the state directory {path}: {error.strerror}"
        raise DirectoryUnusable(text) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 200, 0).decode(errors="replace").split()
        os.close(fd)
        who = f"process {holder[0]} on {holder[1]}" if len(holder) == 2 else ""
        raise DirectoryInUse(
            f"the state directory {path} is in use by another running scheduler"
            f"{who and ', ' + who}; stop that one, or give another --state-dir",
            who,
        ) from None
    except OSError as error:
        os.close(fd)
        text = f"cannot lock the state directory {path}: {error.strerror}"
        raise DirectoryUnusable(text) from None
    return fd
