"""A private directory on shared memory, which is removed with the process that made it.

It owns the place of the directory, its mode, which keeps other users out, and its removal: by
`close()`, at the end of the interpreter, or, if the process was killed, by the next process of the
same user that makes such a directory. The directory of a living process is never removed.

**Owners.** The owner holds a lock (`flock`) on its directory, which the kernel drops when the last
process that holds it has ended: the owner, and children that it forked and that may still be using
the files. A check of the pid would find no process or another one, if containers have pids of their
own and share the memory, or if the pid was used again. The pid in the name is for display only. A
directory gets its name after its lock, so that a process that tidies up finds none that is not
locked yet.

On Windows there are no such locks: there a killed process leaves its directory in the folder for
temporary files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from ...protocol.errors import ConfigError

logger = logging.getLogger("weft.client")

#: The beginning of the names of all such directories; the owner's pid and a random text follow.
PREFIX = "weft-shared-"

#: The folder of shared memory on Linux, if it is a file system in memory.
_SHARED_MEMORY = "/dev/shm"

#: Number of times that removing starts again because a worker made one more file meanwhile.
_REMOVE_ATTEMPTS = 10


class SharedDirectory:
    """A directory of mode 0700 for the values that processes of one run exchange.

    Attributes:
        path: its path, the argument of `pack`, `unpack` and `discard` in all the processes.
    """

    __slots__ = ("__weakref__", "_finalizer", "path")

    def __init__(self, path: str, lock_fd: int | None) -> None:
        """Take over the directory `path` and its lock; see `create`."""
        self.path = path
        # Runs when the object is collected, too, and at the latest when the interpreter ends.
        self._finalizer = weakref.finalize(self, _remove_own, path, lock_fd, os.getpid())

    @classmethod
    def create(cls) -> SharedDirectory:
        """Make a new directory, and remove those of killed processes of this user.

        Raises:
            ConfigError: no directory can be made anywhere.
        """
        reason = ""
        for base in _bases():
            _tidy_up(base)
            try:
                return cls(*_make(base))
            except OSError as error:
                reason = f"{error.strerror} ({base})"
        raise ConfigError(
            f"worker processes need a directory for shared data, and none can be made: {reason}; "
            "set TMPDIR to a folder that you may write to"
        )

    def close(self) -> None:
        """Remove the directory and its files. Does nothing the second time, or in a forked child.

        Values that were unpacked stay valid.
        """
        self._finalizer()

    def __enter__(self) -> SharedDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bases() -> Iterator[str]:
    """Yield the folders to try, the best one first."""
    if _is_in_memory(_SHARED_MEMORY) and os.access(_SHARED_MEMORY, os.R_OK | os.W_OK | os.X_OK):
        yield _SHARED_MEMORY
    try:
        yield tempfile.gettempdir()
    except FileNotFoundError as error:
        logger.debug("no folder for temporary files: %s", error)


def _is_in_memory(path: str) -> bool:
    """Return whether a file system in memory is mounted there. Linux only; elsewhere False."""
    if sys.platform != "linux":
        return False
    kind = ""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no /proc here
        return False
    real = os.path.realpath(path)
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[1] == real:
            kind = fields[2]  # a later mount hides an earlier one
    return kind == "tmpfs"


def _make(base: str) -> tuple[str, int | None]:
    """Make a directory in `base`, and lock it. Return its path and the descriptor with the lock."""
    unnamed = tempfile.mkdtemp(prefix=f".{PREFIX}", dir=base)  # mode 0700
    random_part = unnamed.rpartition("-")[2]
    path = os.path.join(base, f"{PREFIX}{os.getpid()}-{random_part}")
    lock_fd = None
    try:
        lock_fd = _lock(unnamed)
        os.rename(unnamed, path)
    except BaseException:
        if lock_fd is not None:
            os.close(lock_fd)
        with contextlib.suppress(FileNotFoundError):  # interrupted after it got its name
            os.rmdir(unnamed)
        raise
    return path, lock_fd


def _lock(path: str) -> int | None:
    """Lock a directory of this user. None if it is locked, not this user's, or cannot be locked."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another user's, not a directory, or removed just now
        return None
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
    except OSError as error:  # its owner lives, or this file system has no such locks
        logger.debug("%s is not locked: %s", path, error)
    os.close(fd)
    return None


def _tidy_up(base: str) -> None:
    """Remove the directories of killed processes of this user in `base`."""
    try:
        with os.scandir(base) as entries:
            paths = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    except OSError as error:
        logger.debug("cannot look for abandoned directories in %s: %s", base, error)
        return
    for path in paths:
        fd = _lock(path)
        if fd is None:
            continue
        try:
            _remove(path)
        finally:
            os.close(fd)
        logger.debug("removed %s, which a killed process left", path)


def _remove_own(path: str, lock_fd: int | None, owner_pid: int) -> None:
    """Remove the directory of a `SharedDirectory`, except in a forked child, which inherits it."""
    if os.getpid() != owner_pid:
        return
    try:
        _remove(path)
    finally:
        if lock_fd is not None:
            os.close(lock_fd)


def _remove(path: str) -> None:
    """Remove a directory of files. If that fails, the next `create` tries again."""
    reason: OSError | None = None
    for _ in range(_REMOVE_ATTEMPTS):
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    # Workers, too, remove files that they do not need any more.
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
            os.rmdir(path)
            return
        except FileNotFoundError:  # removed as a whole, by an administrator or a clean-up service
            return
        except OSError as error:  # one more file was made, or (Windows) a reader has it mapped
            reason = error
    logger.debug("cannot remove %s: %s", path, reason)
