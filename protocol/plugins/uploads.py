"""Plugins that bring files of the user to workers, which need not share a disk with the user.

What can be imported goes to a folder of the worker that is on its `sys.path`; in the processes of
workers a module that was imported before is imported again. Other files go to the worker's
`local_directory`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ..host.process_role import is_worker_process
from .base import WorkerPlugin
from .packing_files import (
    check_archive,
    modules_among,
    names_in,
    packed_directory,
    read_file,
    unpack_directory,
)

_ARCHIVES: Final = (".zip", ".egg", ".whl", ".pyz")
_SKIPPED: Final = (".git", ".github", ".pytest_cache", "__pycache__", "tests", "docs")


#: Modules that workers import, or what they run does. Nobody but Python's own tests imports `test`,
#: which is a common name.
_NEEDED: Final = frozenset(
    {"weft", "cloudpickle", "msgpack", "psutil", *sys.stdlib_module_names} - {"test"}
)


class _Upload(WorkerPlugin):
    """Files of the user that become files of a worker, as long as the plugin is there."""

    #: Where they are on the worker; "" before that.
    path = ""
    _place: _Place | None = None

    @property
    def _is_importable(self) -> bool:
        return True

    def setup(self, worker: Any) -> None:
        """Write the files, and make them importable."""
        self._place = _Place(worker, is_importable=self._is_importable)
        try:
            self._fill(self._place)
        except BaseException:
            self._place.remove()  # a plugin that has failed is not torn down
            raise

    def _fill(self, place: _Place) -> None:
        raise NotImplementedError

    def teardown(self, worker: Any) -> None:
        """Remove them again."""
        if self._place is not None:
            self._place.remove()


class UploadFile(_Upload):
    """Bring a file to all workers; `client.upload_file` registers one.

    A Python file, or an archive of packages (.zip, .whl, .egg, .pyz), can be imported by tasks.
    Another file is `os.path.join(weft.get_worker().local_directory, its name)`, and its path is
    `weft.get_worker().plugins["upload-" + its name].path` also on workers without such a folder.

    Args:
        filename: its path on this machine.
        load: import a Python file at once, so that an error in it is raised by the registration.

    Raises:
        ValueError: it is a directory, no regular file, no archive though its suffix says so, larger
            than 64 MiB, or a module of a name that workers need for another one, or has such a one;
            or an archive that leads out of itself, or has more than 1 GiB unpacked.
        OSError: it cannot be read.
    """

    def __init__(self, filename: str | os.PathLike[str], load: bool = True) -> None:
        path = Path(filename).resolve()
        if path.is_dir():
            raise ValueError(f"{filename} is a directory; use UploadDirectory, or upload_file")
        if path.suffix == ".py":
            _check_modules([path.stem], filename)
        self.filename = path.name
        self.name = f"upload-{path.name}"
        self.load = load
        self.data = read_file(path)
        if path.suffix in _ARCHIVES:
            if not zipfile.is_zipfile(io.BytesIO(self.data)):
                raise ValueError(f"{filename} is no archive, which its suffix says it is")
            _check_modules(modules_among(check_archive(self.data, filename)), filename)

    @property
    def _is_importable(self) -> bool:
        return Path(self.filename).suffix in (".py", *_ARCHIVES)

    def _fill(self, place: _Place) -> None:
        self.path = place.write(self.filename, self.data)
        file = Path(self.filename)
        if file.suffix == ".py":
            module = file.stem
            place.add(place.folder, [module])
            if self.load:
                importlib.import_module(module)
        elif self._is_importable:
            place.add(self.path, _tops_of(self.data))


class UploadDirectory(_Upload):
    """Bring a directory to all workers; a package in it, or which it is, can be imported by tasks.

    On a worker it is `weft.get_worker().plugins["upload-" + its name].path`.

    Args:
        path: of the directory on this machine.
        restart_workers: accepted for compatibility with dask; only False is allowed, since modules
            are imported again without it.
        update_path: put the directory itself on `sys.path`, for modules that lie in it; the folder
            that it is in is there in any case.
        skip_words: names of files and directories that are left out.
        skip: functions of a path; what one of them returns true for is left out.

    Raises:
        ValueError: it is no directory; it is a package of a name that workers need for another one,
            or puts such a one on `sys.path`; something in it is neither a file nor a directory; it
            has more than 64 MiB packed, or 1 GiB unpacked; or an option is not supported.
        OSError: a part of it cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        restart_workers: bool = False,
        update_path: bool = False,
        skip_words: Iterable[str] = _SKIPPED,
        skip: Iterable[Callable[[str], bool]] = (),
    ) -> None:
        folder = Path(path).resolve()
        if not folder.is_dir():
            raise ValueError(f"{path} is no directory on this machine")
        if restart_workers:
            raise ValueError(
                "restart_workers=True is not supported: workers import the modules of the "
                "directory again without a restart; leave it out"
            )
        self.directory = folder.name
        self.name = f"upload-{folder.name}"
        self.update_path = update_path
        self.data = packed_directory(folder, frozenset(skip_words), tuple(skip))
        names = names_in(self.data)
        inside = [name.removeprefix(f"{folder.name}/") for name in names] if update_path else []
        _check_modules(modules_among([*names, *inside]), path)

    def _fill(self, place: _Place) -> None:
        unpack_directory(self.data, place.folder)
        self.path = os.path.join(place.folder, self.directory)
        os.makedirs(self.path, exist_ok=True)  # an empty one is in no archive
        place.add(place.folder, [self.directory])
        if self.update_path:
            inside = [entry.name.partition(".")[0] for entry in os.scandir(self.path)]
            place.add(self.path, [name for name in inside if name.isidentifier()])


class _Place:
    """Where a worker keeps what was uploaded, and its part of `sys.path`."""

    def __init__(self, worker: Any, *, is_importable: bool) -> None:
        parent = worker.local_directory
        #: What can be imported has a folder of its own, which no other worker uses.
        self._is_own = is_importable or not parent
        self.folder = parent
        if self._is_own:
            self.folder = tempfile.mkdtemp(prefix="weft-upload-", dir=parent or None)
        self._entries: dict[str, None] = {}
        #: What was written to a folder of the worker: the path, and which file it was.
        self._written: tuple[str, tuple[int, int]] | None = None

    def write(self, name: str, data: bytes) -> str:
        """Write a file, so that no reader sees a part of it; return its path."""
        path = os.path.join(self.folder, name)
        number, draft = tempfile.mkstemp(prefix=f".{name}-", dir=self.folder)
        try:
            with open(number, "wb") as file:
                file.write(data)
            found = os.stat(draft)
            os.replace(draft, path)
            self._written = path, (found.st_dev, found.st_ino)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        return path

    def add(self, entry: str, modules: Iterable[str]) -> None:
        """Make modules importable, in place of others of their names that were imported before.

        A program whose workers live in its own process keeps what it has imported, and its order.
        """
        self._entries[entry] = None
        if is_worker_process():
            sys.path.insert(0, entry)
            _forget(modules)
        else:
            sys.path.append(entry)
        importlib.invalidate_caches()

    def remove(self) -> None:
        """Remove the files, and forget the modules that were imported from them."""
        for entry in self._entries:
            with contextlib.suppress(ValueError):
                sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)
        _forget([name for name, file in _imported() if file.startswith(tuple(self._entries))])
        if self._is_own:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self._written is not None:
            # Workers may share the folder: the file may be that of another one, or a newer one.
            path, written = self._written
            with contextlib.suppress(OSError):
                found = os.stat(path)
                if (found.st_dev, found.st_ino) == written:
                    os.unlink(path)
        importlib.invalidate_caches()


def _check_modules(names: Iterable[str], path: object) -> None:
    for name in names:
        if name in _NEEDED:
            raise ValueError(
                f"{path} would hide the module {name!r}, which workers need; give it another name, "
                "or leave it out"
            )


def _imported() -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield name, file


def _forget(modules: Iterable[str]) -> None:
    """Have modules, and those in them, imported anew."""
    names = frozenset(modules) - _NEEDED
    for name in list(sys.modules):
        if name in names or name.partition(".")[0] in names:
            del sys.modules[name]


def _tops_of(data: bytes) -> list[str]:
    """Return the modules at the top of an archive, and packages, also those without a file."""
    tops = {name.partition("/")[0].partition(".")[0] for name in names_in(data)}
    return [name for name in tops if name.isidentifier() and name != "__main__"]
