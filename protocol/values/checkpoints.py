"""Results in files that later runs read: `persist_to=` of `submit` and `map`.

A file is named after the function and the content of its arguments, so it is found by equal calls
of any client, at any time. It is written as a whole or not at all, and is a plain pickle.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ..wire.payload import parts_of
from ..wording import how_to_install
from .digests import digest_of
from .functions import function_name
from .pickling import cloudpickle_dumps
from .serialize import dumps, dumps_function

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

_log: Final = logging.getLogger("weft.checkpoints")
_MISSING: Final = "persist_to= needs fsspec, {}: " + how_to_install("persist")


class Checkpointed(Generic[T]):
    """A function whose results are files, which are read in the place of running it again.

    Args:
        func: the function; no coroutine function.
        url: of a folder, as fsspec has it (`file:///data/results`, `s3://bucket/results`), or a
            path. It is made if it is missing.

    Raises:
        TypeError: one of these is something else.
        ImportError: fsspec is not installed here.
    """

    def __init__(self, func: Callable[..., T], url: str | os.PathLike[str]) -> None:
        import inspect

        if not isinstance(url, (str, os.PathLike)) or not os.fspath(url):
            raise TypeError(f"persist_to= is the URL or path of a folder, not {url!r}")
        self._url = os.fspath(url)
        if inspect.iscoroutinefunction(func):
            raise TypeError("persist_to= is for functions, and this is a coroutine function")
        _url_to_fs("which is not installed here")
        self.__wrapped__ = func
        self.__name__ = function_name(func)
        #: stands for the code of the function
        self._id = dumps_function(func)[0]

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        """Return the result of an equal call, or run the function and keep what it returns.

        Raises:
            ImportError: fsspec is not installed where this runs.
            SerializationError: the result cannot be pickled.
            OSError: the file cannot be written.
        """
        open_url = _url_to_fs("which is not installed on the worker")
        fs, folder = open_url(self._url)
        blob = dumps((args, sorted(kwargs.items())), "the arguments")
        digest = digest_of([self._id, *parts_of(blob)])
        path = f"{folder.rstrip('/')}/{self.__name__}-{digest}.pickle"
        if fs.exists(path):
            try:
                with fs.open(path, "rb") as file:
                    found: T = pickle.load(file)
                    return found
            except Exception as error:  # a class that has moved, or a file that is damaged
                reason = f"{type(error).__name__}: {error}"
                _log.warning(
                    "%s cannot be read, and is made again (%s)",
                    path,
                    reason,
                    extra={"code": "checkpoint-unreadable"},
                )
        value = self.__wrapped__(*args, **kwargs)
        data = cloudpickle_dumps(value)
        # One of its own: a transaction is that of all who use the object.
        fs, folder = open_url(self._url, skip_instance_cache=True)
        fs.makedirs(folder, exist_ok=True)
        with fs.transaction, fs.open(path, "wb") as file:
            file.write(data)
        return value


def _url_to_fs(where: str) -> Callable[..., tuple[AbstractFileSystem, str]]:
    """Return the function of fsspec that opens a URL; `where` says where it is missing."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(_MISSING.format(where)) from None
    opened: Callable[..., tuple[AbstractFileSystem, str]] = url_to_fs
    return opened
