"""The connection file: how workers and clients find a scheduler and get its token.

A scheduler writes one JSON file with its addresses, its token and the certificate to pin. A user
who can read that file can join the cluster, so it is written and read by the rules of
`secret_files` (mode 0600, owned by this user, no symbolic link, limited size). This module owns the
file's content; `finding` has its places. No error raised here quotes the content of a file.

The idea is Jupyter's kernel connection file and HyperQueue's access file.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..wire.handshake import CLUSTER_ID_BYTES
from ..wire.levels import Level, demand_text, level_of
from .addresses import address_key
from .secret_files import (
    MAX_TOKEN_BYTES,
    TOKEN,
    check_directory,
    make_directory,
    read_secret_file,
    write_secret_file,
)
from .security import MIN_TOKEN_BYTES, Security, certificate_der

FILE_VERSION: Final = 1
_MAX_FILE_BYTES: Final = 64 * 1024
_MAX_ADDRESSES: Final = 64
_HEX_ID: Final = re.compile(f"[0-9a-f]{{{2 * CLUSTER_ID_BYTES}}}")

#: The start time of a process is derived from the boot time, which changes when the clock is set.
#: Skipping a running scheduler would be worse than keeping the file of a dead one.
_CLOCK_TOLERANCE_S: Final = 60.0


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
    token: str = field(repr=False)
    certificate_pem: str | None = field(default=None, repr=False)
    dashboard: str | None = None
    pid: int = 0
    host: str = ""
    created: float = 0.0
    version: int = FILE_VERSION
    source: str = field(default="", compare=False)

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
        content = {name: getattr(self, name) for name in _FIELDS}
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
        self.from_plain(json.loads(text), str(path))
        check_destination(path, self.pid, self.host)
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
            raise _malformed(str(path), "it is not JSON") from None
        return cls.from_plain(content, str(path))

    @classmethod
    def from_plain(cls, content: object, where: str) -> ConnectionFile:
        """Make one from the decoded content of a file; `where` names it in errors.

        Unknown fields are ignored.

        Raises:
            ConfigError: it is malformed.
        """
        if not isinstance(content, dict):
            raise _malformed(where, "it is not a JSON object")
        values: dict[str, Any] = {}
        for name, (what, is_valid) in _FIELDS.items():
            value: Any = content.get(name)
            if name in _OPTIONAL and value in (None, ""):
                value = None
            elif not is_valid(value):
                raise _malformed(where, f"its {name!r} is not {what}")
            if name == "version" and value > FILE_VERSION:
                raise ConfigError(
                    f"{where} was written by a newer weft (format {value}, this one reads "
                    f"{FILE_VERSION}); install the same version of weft on both"
                )
            values[name] = value
        values["addresses"] = tuple(values["addresses"])
        return cls(**values, source=where)

    def is_stale(self) -> bool:
        """Return whether its scheduler ran on this host and has ended; False if not known."""
        return self.host == socket.gethostname() and not _is_alive(self)


def check_destination(path: str | os.PathLike[str], pid: int = 0, host: str = "") -> None:
    """Check that a scheduler, by default in this process, can write its file to `path`.

    Raises:
        ConfigError: the error that `ConnectionFile.write` would raise.
    """
    path = Path(path)
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
    is_here = there.host == (host or socket.gethostname())
    if there.pid != (pid or os.getpid()) and is_here and _is_alive(there):
        raise ConfigError(
            f"{path} is the connection file of another scheduler, process {there.pid}, that is "
            "running; stop it or choose another path with --connection-file"
        )


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


# --- Content --------------------------------------------------------------------------------------


def _malformed(where: str, what: str) -> ConfigError:
    return ConfigError(
        f"{where} is not a usable connection file: {what}; use the file that 'weft scheduler' "
        "wrote, unchanged"
    )


def _are_addresses(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= _MAX_ADDRESSES
        and all(isinstance(text, str) and address_key(text) is not None for text in value)
    )


def _is_certificate(value: Any) -> bool:
    if not isinstance(value, str) or "PRIVATE KEY" in value:
        return False
    try:
        certificate_der(value)
    except ConfigError:
        return False
    return True


#: {field: (what it is, whether a value is one)}. The version comes first, because a newer format
#: may have changed all else.
_FIELDS: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "version": ("a number of its range", lambda v: type(v) is int and 1 <= v < 2**31),
    "cluster_id": ("32 hex digits", lambda v: isinstance(v, str) and _HEX_ID.fullmatch(v)),
    "addresses": (
        f"a list of 1 to {_MAX_ADDRESSES} like tcp://host:port, tls://host:port, unix:///path",
        _are_addresses,
    ),
    "token": (
        f"{MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} printable characters",
        lambda v: isinstance(v, str) and TOKEN.fullmatch(v),
    ),
    "certificate_pem": ("a certificate without a private key", _is_certificate),
    "dashboard": (
        "an http:// or https:// URL",
        lambda v: isinstance(v, str) and v.startswith(("http://", "https://")),
    ),
    "pid": ("a number of its range", lambda v: type(v) is int and 1 <= v < 2**31),
    "host": ("a text", lambda v: isinstance(v, str)),
    # Before any conversion: an integer may be too large for a float. NaN fails this too.
    "created": ("a time", lambda v: type(v) in (int, float) and 0 <= v < 2**53),
}
#: Fields that may be missing.
_OPTIONAL: Final = ("certificate_pem", "dashboard")
