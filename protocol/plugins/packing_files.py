"""Reads the files of uploads: one file, or a directory as an archive, up to the limit of a plugin.

What cannot be sent is an error that names it, before more than the limit is read: a plugin that
lacks a part of a package would fail in tasks.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from ..wire.failure import MAX_RELAYED_BYTES
from ..wording import sized

#: Bytes that an archive or a directory may have on a worker.
MAX_UNPACKED: Final = 1 << 30

#: Suffixes of the files of modules; before that of a compiled one stands the kind of machine.
_OF_MODULES: Final = ("py", "pyc", "so", "pyd")
_CHUNK: Final = 1 << 20
_ADVICE: Final = (
    "Let tasks read large data where they run, from a disk that machines share or a store, or pass "
    "it to them with client.scatter; skip_words= of UploadDirectory leaves files out"
)
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
    n_left = MAX_UNPACKED
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
            if path.stat().st_size > n_left:
                raise _too_large_unpacked(folder)
            with path.open("rb") as file, archive.open(info, "w") as packing:
                while chunk := file.read(_CHUNK):
                    n_left -= len(chunk)
                    if n_left < 0:  # it has grown
                        raise _too_large_unpacked(folder)
                    packing.write(chunk)
                    if packed.tell() > MAX_RELAYED_BYTES:
                        raise _too_large(folder)
    return packed.getvalue()


def check_archive(data: bytes, path: object) -> list[str]:
    """Return the names in an archive that was made elsewhere, if workers may have it.

    Workers import from it without unpacking it, so nothing is written outside of a folder. But what
    a name means that leads elsewhere is not certain, and an archive may be small and have members
    that fill the memory.

    Raises:
        ValueError: it is damaged, has members that are no regular files or lead to a place outside,
            or is larger unpacked than a plugin may be.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            for member in members:
                _check_member(member, path)
            if sum(member.file_size for member in members) > MAX_UNPACKED:
                raise _too_large_unpacked(path)
            for member in members:
                # The sizes may be wrong: no more is read of a member than the one that it claims,
                # and what is left shows in its checksum.
                with archive.open(member) as file:
                    while file.read(_CHUNK):
                        pass
    # RuntimeError: it has a password. NotImplementedError: it is packed in an unusual way.
    except (zipfile.BadZipFile, EOFError, RuntimeError, zlib.error, OSError) as error:
        raise ValueError(f"{path} cannot be read as an archive: {error}; make it anew") from error
    return [member.filename for member in members]


def _check_member(member: zipfile.ZipInfo, path: object) -> None:
    name = member.orig_filename.replace("\\", "/")
    if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
        raise ValueError(
            f"{path} has a member {member.orig_filename!r}, whose name leads to a place outside of "
            "the archive; make it anew, with names that are relative to its top"
        )
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(
            f"{path} has a member {name!r} that is a link or a device; make it anew with the file "
            "itself (zip follows links, unless with --symlinks)"
        )


def unpack_directory(data: bytes, folder: str) -> None:
    """Unpack an archive of `packed_directory`.

    Raises:
        ValueError: it would fill the disk.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(info.file_size for info in archive.infolist()) > MAX_UNPACKED:
            raise _too_large_unpacked("the directory")
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


def names_in(data: bytes) -> list[str]:
    """Return the names in an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.namelist()


def modules_among(names: Iterable[str]) -> list[str]:
    """Return the modules and packages at the top of an archive with these files."""
    found: dict[str, None] = {}
    for name in names:
        top, _, rest = name.partition("/")
        module, dot, suffix = top.partition(".")
        is_module = bool(dot) and not rest and suffix.rpartition(".")[2] in _OF_MODULES
        if is_module or rest.partition(".")[0] == "__init__":
            found[module] = None
    return [name for name in found if name.isidentifier() and name != "__main__"]


def _too_large_unpacked(path: object) -> ValueError:
    return ValueError(
        f"{path} has more than {sized(MAX_UNPACKED)} unpacked, the limit on a worker. {_ADVICE}"
    )


def _too_large(path: Path) -> ValueError:
    return ValueError(
        f"{path} has more than {sized(MAX_RELAYED_BYTES)} to be sent, the limit of a plugin: the "
        f"scheduler keeps it and sends it to each worker. {_ADVICE}"
    )
