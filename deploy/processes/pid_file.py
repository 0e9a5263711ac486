"""A file with the number of this process, for scripts that send it signals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ...protocol.errors import ConfigError


@contextlib.contextmanager
def pid_file(path: Path | None) -> Iterator[None]:
    """Keep the number of this process in a file, which is removed with the block; None = no file.

    A file of an earlier process is replaced. Forked children leave the file alone.

    Raises:
        ConfigError: the file cannot be written.
    """
    if path is None:
        yield
        return
    own = os.getpid()
    made = path.with_name(f".{path.name}.{own}")
    try:
        made.write_text(f"{own}\n")
        made.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "--pid-file") from None
    try:
        yield
    finally:
        if os.getpid() == own:
            with contextlib.suppress(OSError, ValueError):
                if int(path.read_text()) == own:
                    path.unlink()
