"""Finds the scheduler to connect to: the places of connection files, and the search in them.

Every command uses `find` to choose the cluster and its token; its errors list the places searched
and why each candidate was skipped. An address that is only nearly right is reported with the one
that was probably meant, because "no token for it" would say nothing of use.

This module does not read the environment, which callers pass as a mapping, and never opens a
connection. No error raised here quotes the content of a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import ConfigError
from ..settings.common import CONNECTION_FILE, TOKEN_FILE
from ..settings.sources import read_settings
from .addresses import DEFAULT_PORT, address_key, is_listed, with_port, with_scheme
from .connection_file import ConnectionFile
from .secret_files import POSIX, MissingFile, check_private, make_directory, read_token_file

MAX_PORT: Final = 65535
#: The name of the option on the command line, and in Python.
_THE_OPTION: Final = "--connection-file (connection_file=)"
_LOOK: Final = "'weft info --all' lists those of this machine, 'weft doctor' looks for the cause"


class NoSchedulerFound(ConfigError):
    """No connection file of a live scheduler was found in the places that were searched.

    Start a scheduler with `weft scheduler`, or name the address or the connection file of one.

    Args:
        what: what is missing.
        advice: what to do about it.
        details: the places that were searched, each with the reason why nothing was found there.
        is_answered: a process listens at the given address, but nothing here has its token.
    """

    def __init__(
        self, what: str, advice: str, details: str = "", is_answered: bool = False
    ) -> None:
        super().__init__("; ".join(part for part in (what, details, advice) if part))
        self.args = (what, advice, details, is_answered)
        self.what, self.advice, self.details, self.is_answered = self.args

    @property
    def short(self) -> str:
        """The text without the details."""
        return f"{self.what}; {self.advice}"


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


class _Scan(NamedTuple):
    """The files of the run directories."""

    #: Those whose schedulers may run, and those whose scheduler has ended.
    usable: list[ConnectionFile]
    gone: list[ConnectionFile]
    #: Why the others were skipped.
    notes: list[str]


def _scan(environ: Mapping[str, str]) -> _Scan:
    usable, gone, notes = _Scan([], [], [])
    for directory in run_directories(environ):
        try:
            paths = sorted(path for path in directory.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            notes.append(f"{directory} (does not exist)")
            continue
        except OSError as error:
            notes.append(f"{directory} ({error.strerror})")
            continue
        if not paths:
            notes.append(f"{directory} (no *.json in it)")
        for path in paths:
            try:
                file = ConnectionFile.read(path)
            except ConfigError as error:
                notes.append(f"{path} (skipped: {error})")
                continue
            if file.is_stale():
                what = f"its scheduler, process {file.pid}, is gone; remove the file"
                notes.append(f"{path} (skipped: {what})")
            (gone if file.is_stale() else usable).append(file)
    return _Scan(usable, gone, notes)


def remove_stale_files(environ: Mapping[str, str] = os.environ) -> None:
    """Remove the connection files that killed schedulers of this host left in the run directory."""
    for file in _scan(environ).gone:
        file.remove(file.source)


def known_files(
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[ConnectionFile], list[str]]:
    """Return the files of the run directories whose schedulers may run, and notes of the others."""
    found = _scan(environ)
    return found.usable, found.notes


# --- Search ---------------------------------------------------------------------------------------


def find(
    connection_file: str | os.PathLike[str] | None,
    address: str | None,
    environ: Mapping[str, str],
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
    if address is not None:
        address = _checked(with_port(address), environ)
    if connection_file:
        return _of_file(connection_file, address)
    settings = read_settings(environ)
    path = settings[CONNECTION_FILE]
    if path is not None:
        return _of_file(path, address, f"{settings.origin(CONNECTION_FILE)}: ")
    notes = ["--connection-file (not given)", "$WEFT_CONNECTION_FILE (not set)"]
    if address is not None:
        token_file, where = settings[TOKEN_FILE], settings.origin(TOKEN_FILE)
        if token_file is not None:
            try:
                token = read_token_file(token_file)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
            source = f"{where} ({token_file})"
            return ConnectionFile("", (with_scheme(address),), token, source=source)
        notes.append("$WEFT_TOKEN_FILE (not set)")
    files, gone, skipped = _scan(environ)
    notes += skipped
    if address is not None:
        others = [file for file in files if not is_listed(address, file.addresses)]
        notes += [f"{file.source} (is for {', '.join(file.addresses)})" for file in others]
        files = [file for file in files if file not in others]
        gone = [file for file in gone if is_listed(address, file.addresses)]
        if not files and (hint := near_miss(address, others)):
            raise ConfigError(hint)
    if files and (address is not None or len(files) == 1):
        # Two schedulers cannot have one address: the newest file belongs to the current one.
        return _at_address(max(files, key=lambda file: file.created), address)
    if files:
        described = "; ".join(
            f"{file.source} ({', '.join(file.addresses)}, process {file.pid} on {file.host})"
            for file in files
        )
        raise ConfigError(
            f"{len(files)} schedulers were found: {described}; give the address of one, or its "
            f"file with {_THE_OPTION} or $WEFT_CONNECTION_FILE"
        )
    raise _none_found(address, gone, notes)


def _checked(address: str, environ: Mapping[str, str]) -> str:
    if address_key(with_scheme(address)) is not None:
        return address
    hint = near_miss(address, _scan(environ).usable)
    if hint.endswith("?"):
        raise ConfigError(hint)
    if address.endswith(".json"):
        hint = "a connection file is given with " + _THE_OPTION
    raise ConfigError(
        f"{address!r} is not an address: use tcp://host:port, tls://host:port or unix:///path"
        + (f"; {hint}" if hint else "")
    )


def _of_file(path: str | os.PathLike[str], address: str | None, where: str = "") -> ConnectionFile:
    try:
        return _at_address(ConnectionFile.read(path), address)
    except MissingFile as error:
        what, _, details = str(error).partition("; ")
        raise NoSchedulerFound(where + what, "", details) from None
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def _at_address(found: ConnectionFile, address: str | None) -> ConnectionFile:
    if address is None:
        return found
    # Elsewhere the address may be that of a tunnel. A file may be named after its host.
    is_checked = found.host == socket.gethostname() and not is_listed(address, found.addresses)
    if is_checked and (hint := near_miss(address, [found])):
        raise ConfigError(hint)
    return dataclasses.replace(found, addresses=(with_scheme(address, found.addresses),))


def _none_found(
    address: str | None, gone: Sequence[ConnectionFile], notes: list[str]
) -> NoSchedulerFound:
    """Return the error; it begins with a scheduler that has ended, if one has."""
    if address is None:
        what = "no running scheduler was found"
        advice = (
            "start one with 'weft scheduler'; one that was started with --connection-file is "
            f"found only by that file: give it with {_THE_OPTION}; {_LOOK}"
        )
    else:
        what = f"no token was found for {address}"
        advice = (
            f"if a scheduler runs there, give its connection file with {_THE_OPTION}, or set "
            f"WEFT_TOKEN_FILE to a file with its token; {_LOOK}"
        )
    if gone:
        last = max(gone, key=lambda file: file.created)
        what = (
            f"the scheduler at {last.addresses[0]}, process {last.pid}, is gone (it left "
            f"{last.source}): {what}"
        )
    return NoSchedulerFound(what, advice, f"looked in {', '.join(notes)}")


# --- Addresses that are nearly right --------------------------------------------------------------


def near_miss(address: str, known: Sequence[ConnectionFile]) -> str:
    """Return what is nearly right with `address`, and what to give instead; "" = nothing known."""
    port = _port(address)
    if address.isascii() and address.isdigit():
        places = [(one, file) for file in known for one in (*file.addresses, file.dashboard or "")]
        meant = next(
            (
                one if one in file.addresses else file.addresses[0]
                for one, file in places
                if _port(one) == address
            ),
            "",
        )
        if not meant and len(address) <= 5 and 0 < int(address) <= MAX_PORT:
            meant = f"tcp://127.0.0.1:{address}"
        return f"{address} is a port without a host" + (f": did you mean {meant}?" if meant else "")
    has_port = port.isascii() and port.isdigit() and not address.startswith("unix:")
    # Only short texts become numbers: Python refuses thousands of digits with an error of its own.
    if has_port and (len(port) > 5 or int(port) > MAX_PORT):
        return f"its port is too large, the largest is {MAX_PORT}"
    # A host alone has got the default port.
    name = address.removesuffix(f":{DEFAULT_PORT}")
    for file in known:
        best = file.addresses[0]
        if file.dashboard and _is_at(address, file.dashboard):
            return f"{address} is for the pages of a scheduler: did you mean {best}?"
        for one in file.addresses if "://" in address else ():
            if _is_at(address, one) and address_key(address) != address_key(one):
                return f"the scheduler at {address} has another scheme: did you mean {one}?"
        if name == Path(file.source).stem:
            return f"{name} is the name of a cluster, and not an address: did you mean {best}?"
    if address.startswith(("http://", "https://")):
        return f"{address} is for pages: give the address that the scheduler has printed"
    return ""


def _port(address: str) -> str:
    return address.rpartition(":")[2].rstrip("/")


def _is_at(address: str, other: str) -> bool:
    """Return whether two addresses have the same host and port, whatever their schemes."""
    bare = [text.rpartition("://")[2].rstrip("/") for text in (address, other)]
    keys = [address_key(f"tcp://{text}") for text in bare]
    return keys[0] is not None and keys[0] == keys[1]
