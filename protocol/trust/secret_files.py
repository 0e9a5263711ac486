"""Safe use of files with a secret in them, and of the directories that hold such files.

This module owns the rules (mode 0600 or 0700, owned by this user, no symbolic link, limited size)
and their error texts, which explain what to do and never quote a file. One environment variable
relaxes the rules for files that a container's runtime mounts. The content of the files is the
business of the callers, except that of a token file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from ..settings.common import TRUST_MOUNTED_SECRETS
from .security import MIN_TOKEN_BYTES

MAX_TOKEN_BYTES: Final = 1024
TOKEN: Final = re.compile(rf"[!-~]{{{MIN_TOKEN_BYTES},{MAX_TOKEN_BYTES}}}")

#: If set to 1, secret files may be links, may belong to root, and may be readable by others, like
#: those that Kubernetes and docker mount. Off by default.
TRUST_VARIABLE: Final = TRUST_MOUNTED_SECRETS.environment

# Windows lacks these; there the permissions are those of the user's profile directory.
NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
POSIX: Final = os.name == "posix"


class MissingFile(ConfigError):
    """A file that holds a secret does not exist.

    Correct its path, or wait until the process that writes it has done so.
    """


def read_secret_file(
    path: Path,
    what: str,
    max_bytes: int,
    hint: str = "is the scheduler running, and is this the path that it printed?",
) -> bytes:
    """Return the content of a file that no other user can have read or written.

    Args:
        path: the path of the file itself; a symbolic link is refused.
        what: the kind of file, for error texts.
        max_bytes: the limit of its size.
        hint: the advice of the error if the file does not exist.

    Raises:
        ConfigError: it is missing, not safe to use, or larger.
    """
    # O_NOFOLLOW: a link in a directory that others can write to could lead anywhere. O_NONBLOCK: a
    # FIFO must be refused, not waited for. All checks are made on the opened file, so that no
    # other one can take its place in between.
    # Mounted secrets are links to files of root that all users of the container can read.
    is_mounted = TRUST_MOUNTED_SECRETS.kind.read(
        os.environ.get(TRUST_VARIABLE) or "0", f"${TRUST_VARIABLE}"
    )
    nofollow = 0 if is_mounted else NOFOLLOW
    try:
        fd = os.open(path, os.O_RDONLY | nofollow | _NONBLOCK | CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(
                f"the {what} {path} is a symbolic link, which is refused; give the path of the "
                "file itself"
            ) from None
        if error.errno == errno.ENOENT:
            raise MissingFile(f"there is no {what} {path}; {hint}") from None
        raise ConfigError(_unopened(path, what, error)) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"the {what} {path} is not a regular file; give the path of one")
        if POSIX and is_mounted:
            _check_mounted(status, f"the {what} {path}")
        elif POSIX:
            check_private(status, f"the {what} {path}", path, "600")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > max_bytes:
        raise ConfigError(
            f"the {what} {path} is larger than {max_bytes} bytes, so it is not one; check the path"
        )
    return data


def _unopened(path: Path, what: str, error: OSError) -> str:
    text = f"cannot open the {what} {path}: {error.strerror}"
    if POSIX and error.errno == errno.EACCES:
        text += f"; user {os.geteuid()} must be able to read it"
    return text


def write_secret_file(path: Path, text: str, what: str) -> None:
    """Write a file with mode 0600, atomically: readers see the old or the new content.

    Its directory is made with mode 0700 if it is missing.

    Raises:
        ConfigError: it cannot be written, or other users could replace files in its directory.
    """
    make_directory(path.parent)
    check_directory(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write the {what} {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _check_mounted(status: os.stat_result, subject: str) -> None:
    """Check only that no user but root and this one can have written the file."""
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise ConfigError(
            f"{subject} can be written by others (mode {stat.S_IMODE(status.st_mode):04o}, user "
            f"{status.st_uid}), which is refused even with {TRUST_VARIABLE}=1; mount it read-only "
            "for all but root or yourself"
        )


def check_private(status: os.stat_result, subject: str, path: Path, mode: str) -> None:
    """Check that only this user can use the file or directory; errors propose `mode`."""
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"{subject} belongs to user {status.st_uid}, not to you (user {os.geteuid()}), so it "
            "is not trusted; use one of your own"
        )
    if status.st_mode & 0o077:
        raise ConfigError(
            f"{subject} can be used by others (mode {stat.S_IMODE(status.st_mode):04o}); run "
            f"'chmod {mode} {path}', and restart the scheduler if others may have seen its token"
        )


def read_token_file(path: str | os.PathLike[str]) -> str:
    """Read a file that holds a token and nothing else, checked like a connection file.

    Raises:
        ConfigError: it is missing, not safe to use, or does not hold one token.
    """
    hint = "give the path of a file that holds the cluster's token and nothing else"
    data = read_secret_file(Path(path), "token file", MAX_TOKEN_BYTES + 2, hint)
    token = data.decode("ascii", errors="replace").strip()
    if TOKEN.fullmatch(token) is None:
        raise ConfigError(
            f"the token file {path} does not hold a token: {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} "
            "printable characters on one line"
        )
    return token


def make_directory(path: Path) -> None:
    """Make `path` and its missing parents, accessible to this user only."""
    try:
        # Each gets mode 0700: `parents=True` would make the parents with the default mode.
        for directory in (*reversed(path.parents), path):
            if not directory.exists():
                with contextlib.suppress(FileExistsError):
                    directory.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot make the directory {path}: {error.strerror}") from None


def check_directory(path: Path) -> None:
    """Check that no other user can rename or remove this user's files in `path`."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot use the directory {path}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is not a directory; choose another path")
    if not POSIX or status.st_mode & stat.S_ISVTX:
        return
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"others may replace files in {path} (mode {stat.S_IMODE(status.st_mode):04o}, user "
            f"{status.st_uid}); choose a directory of your own, or run 'chmod go-w {path}'"
        )
