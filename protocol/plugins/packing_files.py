"""Reads the files of uploads: one file, or a directory as an archive, up to the limit of a plugin.

What cannot be sent is an error that names it, before more than the limit is read: a plugin that
lacks a part of a package would fail in tasks.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..wire.failure import MAX_RELAYED_BYTES
from ..wording import sized

_CHUNK: Final = 1 << 20
#: A fixed time: the same files are the same archive.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def read_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ValueError: it is larger than a plugin may be, or no regular file.
        OSError: it cannot be read.
    """
    _check_regular(path)
    if path.stat().st_size > MAX_RELAYED_BYTES:
        raise _too_large(path)
    return path.read_bytes()


def packed_directory(
    folder: Path, skip_words: frozenset[str], skip: tuple[Callable[[str], bool], ...]
) -> bytes:
    """Return an archive of a directory, which has its name at the top.

    Links are followed. Files keep their modes, and empty directories are in it.

    Raises:
        ValueError: it is larger than a plugin may be, or has something in it that is no file.
        OSError: a part of it cannot be read.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in _walk(folder, skip_words, skip, ()):
            inside = os.path.relpath(path, folder.parent)
            info = zipfile.ZipInfo(inside + "/" if path.is_dir() else inside, _TIME)
            info.external_attr = path.stat().st_mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            if path.is_dir():
                archive.writestr(info, b"")
                continue
            _check_regular(path)
            with path.open("rb") as file, archive.open(info, "w") as packing:
                while chunk := file.read(_CHUNK):
                    packing.write(chunk)
                    if packed.tell() > MAX_RELAYED_BYTES:
                        raise _too_large(folder)
    return packed.getvalue()


def unpack_directory(data: bytes, folder: str) -> None:
    """Unpack an archive of `packed_directory`."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            path = archive.extract(info, folder)
            if not info.is_dir():
                os.chmod(path, stat.S_IMODE(info.external_attr >> 16) | stat.S_IWUSR)


def _walk(
    folder: Path,
    skip_words: frozenset[str],
    skip: tuple[Callable[[str], bool], ...],
    above: tuple[Path, ...],
) -> Iterator[Path]:
    """Yield the files below a directory, and the empty directories, in order."""
    real = folder.resolve()
    if real in above:
        raise ValueError(f"{folder} is a link to a directory that it is in; name it in skip_words=")
    for path in sorted(folder.iterdir()):
        if path.name in skip_words or path.suffix == ".pyc" or any(one(str(path)) for one in skip):
            continue
        if not path.is_dir():
            yield path
            continue
        inside = [*_walk(path, skip_words, skip, (*above, real))]
        yield from inside or [path]


def _check_regular(path: Path) -> None:
    # Reading a named pipe would wait for a process that writes into it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no regular file; name it in skip_words= of UploadDirectory")


def _too_large(path: Path) -> ValueError:
    return ValueError(
        f"{path} has more than {sized(MAX_RELAYED_BYTES)} to be sent, the limit of a plugin: the "
        "scheduler keeps it and sends it to each worker. Let tasks read large data where they run; "
        "skip_words= of UploadDirectory leaves files out"
    )
