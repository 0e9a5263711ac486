"""Recordings in files: one line of JSON for each row, compressed if the name ends with `.gz`."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from collections.abc import Iterable
from typing import IO, Literal, cast

from .recording import Recording, recording_in, rows_of


def save(recording: Recording, filename: str | os.PathLike[str]) -> None:
    """Write a recording to a file, for `load`; one whose name ends with `.gz` is compressed.

    Raises:
        OSError: it cannot be written.
    """
    write_lines(filename, (json.dumps(row, default=str) + "\n" for row in rows_of(recording)))


def load(filename: str | os.PathLike[str]) -> Recording:
    """Return the recording in a file that `save` or `weft timeline --save` has written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no recording, or of another version.
    """
    try:
        with _opened(filename, "rt") as file:
            return recording_in(json.loads(line) for line in file)
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error, RecursionError) as error:
        raise ValueError(f"{os.fspath(filename)}: {error}") from None


def write_lines(filename: str | os.PathLike[str], parts: Iterable[str]) -> None:
    """Write parts of a text to a file as a whole: what was there stays until all is written.

    Raises:
        OSError: it cannot be written.
    """
    path = os.fspath(filename)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe, or /dev/null
        with _opened(path, "wt") as file:
            file.writelines(parts)
        return
    # The ending stays, since it says whether it is compressed.
    part = os.path.join(os.path.dirname(path), f".part-{os.getpid()}-{os.path.basename(path)}")
    try:
        with _opened(part, "wt") as file:
            file.writelines(parts)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise


def _opened(filename: str | os.PathLike[str], mode: Literal["rt", "wt"]) -> IO[str]:
    path = os.fspath(filename)
    if path.endswith(".gz"):
        # Its type says bytes or text, as the mode does.
        return cast("IO[str]", gzip.open(path, mode, compresslevel=3, encoding="utf-8"))
    return open(path, mode, encoding="utf-8")
