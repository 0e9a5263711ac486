"""The connection file: how workers and clients find a scheduler and get its token.

A scheduler writes one JSON file with its addresses, its token and the certificate to pin. A user
who can read that file can join the cluster, so it is written and read by the rules of
`secret_files` (mode 0600, owned by this user, no symbolic link, limited size). This module owns the
file's content and its places. Every command uses `find` to choose the cluster and its token; its
errors list the places searched and why each candidate was skipped.

This module does not read the environment, which callers pass as a mapping, and never opens a
connection. No error raised here quotes the content of a file.

The idea is Jupyter's kernel connection file and HyperQueue's access file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from ..settings.common import CONNECTION_FILE, TOKEN_FILE
from ..settings.sources import Settings, read_settings
from ..wire.levels import Level, demand_text, level_of
from .connection_fields import ConnectionFields, address_key, malformed
from .near_misses import DEFAULT_PORT, near_miss
from .secret_files import (
    POSIX,
    MissingFile,
    check_directory,
    check_private,
    make_directory,
    read_secret_file,
    read_token_file,
    write_secret_file,
)
from .security import Security, needs_tls

__all__ = [
    "ConnectionFile",
    "NoSchedulerFound",
    "check_destination",
    "default_path",
    "find",
    "known_files",
    "read_token_file",
    "remove_stale_files",
    "run_directories",
    "run_directory",
    "with_port",
]

FILE_VERSION: Final = 1
_MAX_FILE_BYTES: Final = 64 * 1024

#: The start time of a process is derived from the boot time, which changes when the clock is set.
#: Skipping a running scheduler would be worse than keeping the file of a dead one.
_CLOCK_TOLERANCE_S: Final = 60.0


class NoSchedulerFound(ConfigError):
    """No connection file of a live scheduler was found in the places that were searched.

    Start a scheduler with `weft scheduler`, or name the address or the connection file of one.
    """

    #: The places, each with the reason why nothing was found there; "" = the text has it all.
    places = ""


@dataclass(frozen=True)
class ConnectionFile:
    """The data with which workers and clients find and join a scheduler. Its repr has no secret.

    `find` also makes one from an address and a token file. Then the cluster is not known:
    `cluster_id` and `host` are "" and `pid` is 0. Such an object is never written to a file.

    Args:
        cluster_id: 32 hexadecimal digits.
        addresses: `tcp://host:port`, `tls://host:port` or `unix:///path`, the best one first.
        token: the cluster's secret.
        certificate_pem: the certificate to pin on tls:// addresses; None = none.
        dashboard: URL of the HTTP pages; None = none.
        pid: process id of the scheduler, on `host`.
        host: the host name of the scheduler's machine, as that machine reports it.
        created: seconds since 1970.
        version: the version of the file's format.
        source: the place where it was found, for error texts; not part of the file.
    """

    cluster_id: str
    addresses: tuple[str, ...]
    token: str = dataclasses.field(repr=False)
    certificate_pem: str | None = dataclasses.field(default=None, repr=False)
    dashboard: str | None = None
    pid: int = 0
    host: str = ""
    created: float = 0.0
    version: int = FILE_VERSION
    source: str = dataclasses.field(default="", compare=False)

    @classmethod
    def of_this_process(
        cls,
        security: Security,
        addresses: Sequence[str],
        dashboard: str | None = None,
    ) -> ConnectionFile:
        """Describe a scheduler that runs in this process, without its private key."""
        if security.cluster_id is None:
            raise ConfigError("a scheduler must know its cluster id to write a connection file")
        return cls(
            cluster_id=security.cluster_id.hex(),
            addresses=tuple(addresses),
            token=security.token.decode(),
            certificate_pem=security.certificate_pem,
            dashboard=dashboard,
            pid=os.getpid(),
            host=socket.gethostname(),
            created=time.time(),
        )

    def to_security(self) -> Security:
        """Return the token, cluster id and certificate for a handshake and a TLS context."""
        return Security(
            token=self.token.encode(),
            cluster_id=bytes.fromhex(self.cluster_id) or None,
            certificate_pem=self.certificate_pem,
        )

    def demand(self, level: Level, what: str) -> None:
        """Check that the token permits what `what` does.

        Raises:
            ConfigError: it is of a lower level; the text has the file, and how to get another.
        """
        has = level_of(self.token.encode())
        if has < level:
            raise ConfigError(f"{self.source}: {demand_text(what, level, has)}")

    def to_text(self) -> str:
        """Return the content of the file."""
        content = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "source"
        }
        return json.dumps(content, indent=2) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write to `path` with mode 0600, atomically: readers see the old or the new content.

        The directory is made with mode 0700 if it is missing. An existing file at `path` is
        replaced only if it is a connection file, and not of another scheduler running on this host.

        Raises:
            ConfigError: the directory or the existing file belongs to another user or scheduler.
        """
        path = Path(path)
        text = self.to_text()
        # Nothing is written that could not be read back.
        _parse(json.loads(text), str(path))
        _check_destination(path, self.pid, self.host)
        write_secret_file(path, text, "connection file")

    def remove(self, path: str | os.PathLike[str]) -> bool:
        """Remove `path` if it is still the file of this scheduler; return whether it was.

        A scheduler that was started later may have replaced the file, and needs it.
        """
        try:
            there = ConnectionFile.read(path)
            if (there.cluster_id, there.pid) != (self.cluster_id, self.pid):
                return False
            os.unlink(path)
        except (ConfigError, OSError):
            return False
        return True

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ConnectionFile:
        """Read a connection file, after checking that no other user can have read or written it.

        Raises:
            ConfigError: it is missing, not safe to use, or malformed; the text says what to do.
        """
        data = read_secret_file(Path(path), "connection file", _MAX_FILE_BYTES)
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            # The cause is left out, because it contains the file's content.
            raise malformed(str(path), "it is not JSON") from None
        return _parse(content, str(path))

    @classmethod
    def from_plain(cls, content: object, where: str) -> ConnectionFile:
        """Make one from the decoded content of a file; `where` names it in errors.

        Raises:
            ConfigError: it is malformed.
        """
        return _parse(content, where)

    def is_stale(self) -> bool:
        """Return whether its scheduler ran on this host and has ended; False if not known."""
        return self.host == socket.gethostname() and not _is_alive(self)


def check_destination(path: str | os.PathLike[str]) -> None:
    """Check that a scheduler in this process can write its connection file to `path`.

    Raises:
        ConfigError: the error that `ConnectionFile.write` would raise.
    """
    _check_destination(Path(path), os.getpid(), socket.gethostname())


def _check_destination(path: Path, pid: int, host: str) -> None:
    make_directory(path.parent)
    check_directory(path.parent)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write the connection file {path}: Permission denied")
    if not os.path.lexists(path):
        return
    try:
        there = ConnectionFile.read(path)
    except ConfigError as error:
        raise ConfigError(
            f"{path} exists and will not be replaced, because it does not look like a "
            f"connection file of yours ({error}); remove it or choose another path"
        ) from None
    if there.pid != pid and there.host == host and _is_alive(there):
        raise ConfigError(
            f"{path} is the connection file of another scheduler, process {there.pid}, that is "
            "running; stop it or choose another path with --connection-file"
        )


# --- Content --------------------------------------------------------------------------------------


def _parse(content: object, where: str) -> ConnectionFile:
    """Check every field of decoded JSON. Unknown fields are ignored."""
    if not isinstance(content, dict):
        raise malformed(where, "it is not a JSON object")
    fields = ConnectionFields(content, where)
    # The version comes first, because a newer format may have changed all else.
    version = fields.number("version", 1, 2**31)
    if version > FILE_VERSION:
        raise ConfigError(
            f"{where} was written by a newer weft (format {version}, this one reads "
            f"{FILE_VERSION}); install the same release of weft on both"
        )
    return ConnectionFile(
        cluster_id=fields.cluster_id(),
        addresses=fields.addresses(),
        token=fields.token(),
        certificate_pem=fields.certificate(),
        dashboard=fields.dashboard(),
        pid=fields.number("pid", 1, 2**31),
        host=fields.text("host"),
        created=fields.created(),
        version=version,
        source=where,
    )


# --- Places ---------------------------------------------------------------------------------------


def run_directories(environ: Mapping[str, str]) -> list[Path]:
    """Return the directories for connection files, new ones go to the first. None need exist.

    Both are searched: a scheduler started in a login session has $XDG_RUNTIME_DIR, a worker
    started by cron or over ssh does not.
    """
    directories = []
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    # After `su` the variable still names the directory of the previous user.
    with contextlib.suppress(OSError):
        if runtime.is_absolute() and (not POSIX or runtime.stat().st_uid == os.geteuid()):
            directories.append(runtime / "weft")
    home = environ.get("HOME") or os.path.expanduser("~")
    directories.append(Path(home) / ".weft" / "run")
    return directories


def run_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's directory for connection files and sockets; make it, mode 0700.

    It is `$XDG_RUNTIME_DIR/weft`, or `~/.weft/run` if that variable is unset or names another
    user's directory.

    Raises:
        ConfigError: it cannot be made, or other users can use it.
    """
    path = run_directories(environ)[0]
    make_directory(path)
    if POSIX:
        try:
            status = path.lstat()
        except OSError as error:
            raise ConfigError(f"cannot use the directory {path}: {error.strerror}") from None
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"the run directory {path} is not a directory; remove it")
        check_private(status, f"the run directory {path}", path, "700")
    return path


def default_path(name: str = "scheduler", environ: Mapping[str, str] = os.environ) -> Path:
    """Return the default path of the connection file of a scheduler called `name`.

    Raises:
        ConfigError: the run directory is unusable, or `name` is not the name of a file.
    """
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name) is None:
        raise ConfigError(
            f"{name!r} cannot name a connection file: use letters, digits, '.', '_' and '-'"
        )
    return run_directory(environ) / f"{name}.json"


def remove_stale_files(environ: Mapping[str, str] = os.environ) -> None:
    """Remove the connection files that killed schedulers of this host left in the run directory."""
    for file in _Search([]).stale_files(environ):
        file.remove(file.source)


def known_files(
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[ConnectionFile], list[str]]:
    """Return the files of the run directories whose schedulers may run, and notes of the others."""
    search = _Search([])
    return search.scan(environ), search.notes


def _is_alive(file: ConnectionFile) -> bool:
    """Return whether the process on this host that wrote `file` still runs."""
    import psutil

    try:
        started = float(psutil.Process(file.pid).create_time())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    # After a reboot another process, younger than the file, may have the same number.
    return started <= file.created + _CLOCK_TOLERANCE_S


# --- Finding a cluster ----------------------------------------------------------------------------


#: The name of the option on the command line, and in Python.
_THE_OPTION: Final = "--connection-file (connection_file=)"
_LOOK: Final = "'weft info --all' lists those of this machine, 'weft doctor' looks for the cause"


@dataclass
class _Search:
    """The places and candidates that `find` looked at, in order, for the error text."""

    notes: list[str]
    #: Files whose scheduler has ended.
    stale: list[ConnectionFile] = field(default_factory=list)

    def scan(self, environ: Mapping[str, str]) -> list[ConnectionFile]:
        """Return the usable files of the run directories; note why others were skipped."""
        usable = []
        for directory in run_directories(environ):
            try:
                paths = sorted(path for path in directory.iterdir() if path.suffix == ".json")
            except FileNotFoundError:
                self.notes.append(f"{directory} (does not exist)")
                continue
            except OSError as error:
                self.notes.append(f"{directory} ({error.strerror})")
                continue
            if not paths:
                self.notes.append(f"{directory} (no *.json in it)")
            for path in paths:
                try:
                    candidate = ConnectionFile.read(path)
                except ConfigError as error:
                    self.notes.append(f"{path} (skipped: {error})")
                    continue
                if candidate.is_stale():
                    self.stale.append(candidate)
                    self.notes.append(
                        f"{path} (skipped: its scheduler, process {candidate.pid}, is gone; remove "
                        "the file)"
                    )
                    continue
                usable.append(candidate)
        return usable

    def stale_files(self, environ: Mapping[str, str]) -> list[ConnectionFile]:
        """Return the files of the run directories whose scheduler has ended."""
        self.scan(environ)
        return self.stale

    def error(
        self, what: str, advice: str, gone: Sequence[ConnectionFile] = ()
    ) -> NoSchedulerFound:
        """Make the error; it begins with a scheduler that has ended, if one has."""
        if gone:
            last = max(gone, key=lambda file: file.created)
            what = (
                f"the scheduler at {last.addresses[0]}, process {last.pid}, is gone (it left "
                f"{last.source}): {what}"
            )
        places = ", ".join(self.notes)
        made = NoSchedulerFound(f"{what}; looked in {places}; {advice}")
        made.places = places
        return made


def find(
    connection_file: str | None, address: str | None, environ: Mapping[str, str]
) -> ConnectionFile:
    """Find the cluster to connect to, and its token.

    The first of these that is given decides:

    1. `connection_file`;
    2. the setting `connection-file`: `$WEFT_CONNECTION_FILE`, or that of a file of settings;
    3. with an `address`: the setting `token-file`, or else the file in the run directory that
       lists it;
    4. the only file in the run directory.

    With 1 or 2, an `address` replaces those of the file, for tunnels and forwarded ports. A bare
    `host:port` gets the scheme of the file's addresses; without a file it gets tls:// if the host
    is beyond loopback, else tcp://.

    Raises:
        NoSchedulerFound: nothing was found; the text lists the places and why each candidate was
            skipped.
        ConfigError: several were found, or the one found is not safe to use.
    """
    search = _Search([])
    if address is not None:
        address = with_port(address)
    if address is not None and address_key(with_scheme(address)) is None:
        hint = near_miss(address, search.scan(environ))
        if hint.endswith("?"):
            raise ConfigError(hint)
        if address.endswith(".json"):
            hint = "a connection file is given with " + _THE_OPTION
        raise ConfigError(
            f"{address!r} is not an address: use tcp://host:port, tls://host:port or unix:///path"
            + (f"; {hint}" if hint else "")
        )
    if connection_file:
        try:
            return _at_address(ConnectionFile.read(connection_file), address)
        except MissingFile as error:
            raise NoSchedulerFound(error.text) from None
    search.notes.append("--connection-file (not given)")
    settings = read_settings(environ)
    path, where = settings[CONNECTION_FILE], settings.origin(CONNECTION_FILE)
    if path is not None:
        try:
            return _at_address(ConnectionFile.read(path), address)
        except MissingFile as error:
            raise NoSchedulerFound(f"{where}: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
    search.notes.append("$WEFT_CONNECTION_FILE (not set)")
    if address is not None:
        return _find_for_address(address, settings, environ, search)
    files = search.scan(environ)
    if len(files) == 1:
        return files[0]
    if files:
        raise _several(
            files,
            f"give the address of one, or its file with {_THE_OPTION} or $WEFT_CONNECTION_FILE",
        )
    raise search.error(
        "no running scheduler was found",
        f"start one with 'weft scheduler'; one that was started with --connection-file is found "
        f"only by that file: give it with {_THE_OPTION}; {_LOOK}",
        search.stale,
    )


def _find_for_address(
    address: str, settings: Settings, environ: Mapping[str, str], search: _Search
) -> ConnectionFile:
    token_file, where = settings[TOKEN_FILE], settings.origin(TOKEN_FILE)
    if token_file is not None:
        try:
            token = read_token_file(token_file)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        source = f"{where} ({token_file})"
        return ConnectionFile("", (with_scheme(address),), token, source=source)
    search.notes.append("$WEFT_TOKEN_FILE (not set)")
    matches, others = [], []
    for candidate in search.scan(environ):
        if _is_listed(address, candidate):
            matches.append(_at_address(candidate, address))
        else:
            others.append(candidate)
            search.notes.append(f"{candidate.source} (is for {', '.join(candidate.addresses)})")
    if not matches and (hint := near_miss(address, others)):
        raise ConfigError(hint)
    if not matches:
        raise search.error(
            f"no token was found for {address}",
            f"if a scheduler runs there, give its connection file with {_THE_OPTION}, or set "
            f"WEFT_TOKEN_FILE to a file with its token; {_LOOK}",
            [file for file in search.stale if _is_listed(address, file)],
        )
    # Two schedulers cannot have one address: the newest file belongs to the current one.
    return max(matches, key=lambda match: match.created)


def _at_address(found: ConnectionFile, address: str | None) -> ConnectionFile:
    if address is None:
        return found
    # Elsewhere the address may be that of a tunnel. A file may be named after its host.
    is_checked = found.host == socket.gethostname() and not _is_listed(address, found)
    if is_checked and (hint := near_miss(address, [found])):
        raise ConfigError(hint)
    return dataclasses.replace(found, addresses=(with_scheme(address, found),))


def with_port(address: str) -> str:
    """Return an address with the port of `weft scheduler`, if it is that of a host alone."""
    host = address.rpartition("://")[2]
    if host.isdigit():
        return address
    is_alone = "." + host.rpartition(".")[2] != ".json" and (":" not in host or host[-1] == "]")
    if not is_alone or address_key(with_scheme(address)) is not None:
        return address
    completed = f"{address}:{DEFAULT_PORT}"
    return address if address_key(with_scheme(completed)) is None else completed


def _is_listed(address: str, file: ConnectionFile) -> bool:
    return address_key(with_scheme(address, file)) in map(address_key, file.addresses)


def with_scheme(address: str, file: ConnectionFile | None = None) -> str:
    """Return `address`; if it is a bare host:port, with its scheme added.

    The scheme is the one that `file` has for this address or, if the file has another host (that
    of a tunnel), for its first one. Without a file: weft always encrypts beyond loopback.
    """
    bare = address_key(f"tcp://{address}")
    if "://" in address or bare is None:
        return address
    keys = map(address_key, file.addresses if file is not None else ())
    known = [key for key in keys if key is not None and key.is_tcp]
    known.sort(key=lambda key: key[1:] != bare[1:])
    scheme = known[0].scheme if known else "tls" if needs_tls(bare.host) else "tcp"
    return f"{scheme}://{address}"


def _several(files: Sequence[ConnectionFile], advice: str) -> ConfigError:
    described = "; ".join(
        f"{file.source} ({', '.join(file.addresses)}, process {file.pid} on {file.host})"
        for file in files
    )
    return ConfigError(f"{len(files)} schedulers were found: {described}; {advice}")
