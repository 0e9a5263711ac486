"""Turns calls into records for the core: pickles, keys and options. Runs in the user's thread.

Keys. A pure task's key is made of its function's name and a hash of the function, the arguments and
the keys of the futures among them, so the same call has the same key; one that is not pure is
numbered. A user's own key is used unchanged (a tuple as its text, see `protocol.wire.keys`), and
sent with the same hash, which distinguishes two tasks of one name.

Arguments are detached from the objects they were made from (arrays travel beside the pickle, as
views): the caller may change those as soon as `submit` returns, and the record may be sent again.
Large ones are taken out of their call first, see `shared_arguments`.
"""

from __future__ import annotations

import functools
import itertools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

from ...protocol.errors import SerializationError
from ...protocol.values.large_functions import LargeFunctions
from ...protocol.values.serialize import (
    MAX_LONE_FUTURES,
    dumps_arguments,
    dumps_arguments_many,
    dumps_function,
    dumps_futures,
    dumps_with_dependencies,
    function_name,
    note_met,
)
from ...protocol.wire.keys import text_of
from ...protocol.wire.message import MAX_DEPENDENCIES
from ...protocol.wire.payload import Blob, Payload, blob_nbytes
from ...protocol.wording import sized
from ..core.submitting import MAX_NBYTES, MAX_TASKS
from ..core.tasks import FunctionRecord
from ..future import Future
from .options import for_the_function
from .shared_arguments import SHARED_NBYTES, SharedArguments, Sharing, Uses

_log: Final = logging.getLogger("weft.client")

_FIRST_CHUNK: Final = 256
_MAX_FUNCTIONS: Final = 1024
#: Arguments of one call that are recorded with it.
MAX_INLINE_NBYTES: Final = 64 << 20
_MAX_FUNCTIONS_NBYTES: Final = 256 << 20
#: To compare or to pickle more than this for each call takes more time than many tasks.
_LARGE_FUNCTION: Final = 8 << 20


class MapChunk:
    """A part of a `map`: some rows, encoded."""

    __slots__ = ("args", "dependencies", "keys", "shared", "spec_hashes")

    def __init__(
        self,
        keys: list[str],
        args: list[Blob],
        dependencies: list[list[str]],
        spec_hashes: list[bytes] | None,
        shared: Uses | None,
    ) -> None:
        self.keys = keys
        self.args = args
        #: One list per row, or [] when no row has any.
        self.dependencies = dependencies
        self.spec_hashes = spec_hashes
        #: The large arguments that must be submitted before them.
        self.shared = shared


class Encoder:
    """Encodes the calls of one client. Any thread may call any method."""

    def __init__(self, key_part: str) -> None:
        #: Distinguishes this client's numbered keys from those of all others.
        self._key_part = key_part
        # next() of it is atomic.
        self._numbers = itertools.count()
        #: {function id: its record}, the latest ones, which stay if no task needs them. Forgetting
        #: one costs no more than sending it again.
        self._functions: dict[bytes, FunctionRecord] = {}
        self._functions_nbytes = 0
        #: Those that any task keeps alive, too: one object per function id.
        self._living: weakref.WeakValueDictionary[bytes, FunctionRecord] = (
            weakref.WeakValueDictionary()
        )
        self._large = LargeFunctions(self._note_large, _LARGE_FUNCTION)
        self.shared = SharedArguments()
        #: {name of a function with much data in it: whether the user was warned}
        self._noted: dict[str, bool] = {}

    def function(self, func: Callable[..., Any]) -> FunctionRecord:
        """Return the record of a function.

        Raises:
            SerializationError: it cannot be pickled.
        """
        function_id, blob = dumps_function(func, self._large)
        record = self._functions.get(function_id)
        return record or self._remember(function_id, blob, function_name(func))

    def own_function(self, function_id: bytes, name: str) -> FunctionRecord:
        """Return the record of a function that workers have; its id stands for a pickle."""
        return self._functions.get(function_id) or self._remember(function_id, function_id, name)

    def _remember(self, function_id: bytes, blob: bytes, name: str) -> FunctionRecord:
        record = self._living.get(function_id) or FunctionRecord(function_id, blob, name)
        functions = self._functions
        nbytes = self._functions_nbytes + len(record.blob)
        if len(functions) >= _MAX_FUNCTIONS or nbytes > _MAX_FUNCTIONS_NBYTES:
            functions.clear()
            nbytes = len(record.blob)
        self._functions_nbytes = nbytes
        record = functions.setdefault(function_id, record)
        self._living[function_id] = record
        return record

    def _note_large(self, func: Callable[..., Any], nbytes: int) -> None:
        """Warn once per function that is looked at again and again, with much data in it."""
        name = function_name(func)
        is_first = name not in self._noted
        if not is_first and not self._noted[name]:
            self._noted[name] = True
            owner = getattr(func, "__self__", None)
            if owner is None:
                where = "in its closure or in global variables that it reads"
                data = "the data"
            else:
                where = f"in its object (self), of type {type(owner).__name__}"
                data = "the object"
            _log.warning(
                "the function %s is pickled again for each submit, with %s %s, which may have "
                "changed; use one map for many calls, or let a task return %s and pass its future "
                "as an argument",
                name,
                sized(nbytes),
                where,
                data,
            )
        elif is_first and len(self._noted) < _MAX_FUNCTIONS:
            self._noted[name] = False

    def number_key(self, name: str) -> str:
        """Return a key that no other task has."""
        return f"{name}-{self._key_part}-{next(self._numbers)}"

    def call(
        self,
        function: FunctionRecord,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inline: bool = False,
    ) -> tuple[Blob, list[str], Uses | None]:
        """Encode the arguments of one call.

        Args:
            function: the function to call.
            args: positional arguments.
            kwargs: keyword arguments.
            inline: large arguments are part of the call, not tasks of their own.

        Returns:
            The arguments, the keys that they depend on, and the tasks to be submitted before.
        """
        shared = None
        keys = None if kwargs or not args else lone_futures(args)
        if keys is not None:
            return dumps_futures(len(keys)), keys, shared
        blob, dependencies = dumps_arguments(function.name, args, kwargs)
        if blob.__class__ is not bytes or len(blob) > SHARED_NBYTES:
            nbytes = blob_nbytes(blob)
            if inline:
                check_inline(nbytes)
            elif nbytes > SHARED_NBYTES:
                sharing = Sharing(self.shared)
                call = sharing.call(0, function.name, args, kwargs, nbytes)
                if call is not None:
                    blob, dependencies = call
                    shared = sharing.uses
            blob = _detached(blob)
        if len(dependencies) > MAX_DEPENDENCIES:
            raise too_many_dependencies(function.name, len(dependencies))
        return blob, dependencies, shared

    def rows(
        self,
        function: FunctionRecord,
        rows: Iterator[tuple[Any, ...]],
        kwargs: dict[str, Any] | None,
        keys: list[str] | str | None,
        pure: bool,
        max_tasks: int = MAX_TASKS,
        *,
        inline: bool = False,
    ) -> Iterator[MapChunk]:
        """Encode many calls of a function, in chunks of at most about a megabyte.

        The first chunk is small, so that the first tasks start early; the size of the others
        follows the size of the arguments.

        Args:
            function: the function to call.
            rows: positional arguments of each call.
            kwargs: keyword arguments that all calls have in common, None = none.
            keys: a list of keys, a prefix, or None for the function's name as the prefix.
            pure: whether equal calls share a key.
            max_tasks: largest number of tasks in a chunk.
            inline: see `call`.
        """
        n_done = 0
        size = min(_FIRST_CHUNK, max_tasks)
        prefix = keys if isinstance(keys, str) else function.name
        chunk = list(itertools.islice(rows, 1))
        # The first row alone, if it is large: hundreds of them would have to be in memory at once.
        if not _is_large(function.name, chunk, kwargs):
            chunk += itertools.islice(rows, size - 1)
        while chunk:
            try:
                encoded = None if kwargs else _encode_futures(chunk)
                args, dependencies = encoded or dumps_arguments_many(function.name, chunk, kwargs)
            except SerializationError as error:
                raise _renumbered(error, n_done) from error.__cause__
            nbytes = sum([blob_nbytes(a) for a in args])
            shared = None
            if inline:
                check_inline(max(map(blob_nbytes, args)))
            elif nbytes > SHARED_NBYTES:
                sharing = Sharing(self.shared)
                shared, nbytes = _share(
                    sharing, function.name, chunk, kwargs or {}, args, dependencies
                )
            if {*map(type, args)} != {bytes}:
                args = [_detached(a) for a in args]
            if not any(dependencies):
                dependencies = []
            elif len(max(dependencies, key=len)) > MAX_DEPENDENCIES:
                raise too_many_dependencies(function.name, max(map(len, dependencies)))
            n = len(chunk)
            spec_hashes = None
            if isinstance(keys, list):
                chunk_keys = keys[n_done : n_done + n]
                digests = _digests(function.id, args, dependencies)
                spec_hashes = [digest.digest() for digest in digests]
            elif pure:
                digests = _digests(function.id, args, dependencies)
                chunk_keys = [f"{prefix}-{digest.hexdigest()}" for digest in digests]
            else:
                start = f"{prefix}-{self._key_part}-"
                chunk_keys = [
                    start + number for number in map(str, itertools.islice(self._numbers, n))
                ]
            n_done += n
            yield MapChunk(chunk_keys, args, dependencies, spec_hashes, shared)
            size = min(max(n * MAX_NBYTES // max(nbytes, 1), 1), 4 * size, max_tasks)
            chunk = list(itertools.islice(rows, size))


def check_inline(nbytes: int) -> None:
    """Refuse arguments that are too large to be recorded with their call."""
    if nbytes > MAX_INLINE_NBYTES:
        raise ValueError(
            f"the arguments of a detached call take {sized(nbytes)}, and at most "
            f"{sized(MAX_INLINE_NBYTES)} are recorded; put them into a file, and pass its path"
        )


def lone_futures(args: tuple[Any, ...]) -> list[str] | None:
    """Return the keys of arguments that are different futures; None if anything else is there."""
    keys: list[str] = []
    for arg in args:
        if arg.__class__ is not Future or arg._is_released:
            return None
        keys.append(arg._state.key)
    if len(keys) > 1 and not len({*keys}) == len(keys) <= MAX_LONE_FUTURES:
        return None
    note_met(args)
    return keys


def _encode_futures(rows: list[tuple[Any, ...]]) -> tuple[list[Blob], list[list[str]]] | None:
    """Encode calls whose arguments are futures and nothing else; None if one is another call."""
    if not isinstance(rows[0][0], Future):
        return None
    keys: list[list[str]] = []
    for row in rows:
        found = lone_futures(row)
        if found is None:
            return None
        keys.append(found)
    return [dumps_futures(len(row)) for row in keys], keys


def _share(
    sharing: Sharing,
    name: str,
    rows: list[tuple[Any, ...]],
    kwargs: dict[str, Any],
    args: list[Blob],
    dependencies: list[list[str]],
) -> tuple[Uses | None, int]:
    """Take the large arguments out of the calls of a chunk.

    Args:
        sharing: of this chunk.
        name: of the function.
        rows: positional arguments of each call.
        kwargs: keyword arguments of all.
        args: the encoded calls; changed in place.
        dependencies: their dependencies; changed in place.

    Returns:
        The tasks to be submitted before, and the number of bytes to be sent.
    """
    is_shared = False
    for row, blob in enumerate(args):
        nbytes = blob_nbytes(blob)
        if nbytes > SHARED_NBYTES:
            call = sharing.call(row, name, rows[row], kwargs, nbytes)
            if call is not None:
                args[row], dependencies[row] = call
                is_shared = True
    nbytes = sharing.nbytes + sum([blob_nbytes(a) for a in args])
    return sharing.uses if is_shared else None, nbytes


def _is_large(name: str, rows: list[tuple[Any, ...]], kwargs: dict[str, Any] | None) -> bool:
    blobs, _ = dumps_arguments_many(name, rows, kwargs)
    return any(blob_nbytes(blob) > SHARED_NBYTES for blob in blobs)


def too_many_dependencies(name: str, n: int) -> ValueError:
    """Return the error for a task with too many inputs."""
    return ValueError(
        f"a task of {name} would depend on {n} futures, more than {MAX_DEPENDENCIES}; combine them "
        "in steps, some thousand at a time, as a tree"
    )


@functools.lru_cache(maxsize=_MAX_FUNCTIONS)
def _keyed(function_id: bytes) -> blake2b:
    """Return the beginning of the hashes of all calls of a function, to be copied."""
    return blake2b(digest_size=16, key=function_id)


def pure_key(name: str, function_id: bytes, args: Blob, dependencies: list[str]) -> str:
    """Return the key that names a call by its content."""
    if args.__class__ is bytes and not dependencies:  # as `_digest` does
        digest = _keyed(function_id).copy()
        digest.update(args)
    else:
        digest = _digest(function_id, args, dependencies)
    return f"{name}-{digest.hexdigest()}"


def spec_hash(function_id: bytes, args: Blob, dependencies: list[str]) -> bytes:
    """Return the hash of a call."""
    return _digest(function_id, args, dependencies).digest()


def _digest(function_id: bytes, args: Blob, dependencies: list[str]) -> blake2b:
    digest = _keyed(function_id).copy()
    if isinstance(args, Payload):
        digest.update(args.data)
        for buffer in args.buffers:
            digest.update(buffer)
    else:
        digest.update(args)
    for key in dependencies:
        # With its length, so that the keys "a", "b" differ from the key "ab".
        digest.update(f"{len(key)}:{key}".encode("utf-8", "surrogatepass"))
    return digest


def _digests(
    function_id: bytes, args: list[Blob], dependencies: list[list[str]]
) -> Iterator[blake2b]:
    if not dependencies and {*map(type, args)} == {bytes}:
        copy = _keyed(function_id).copy
        for blob in args:
            digest = copy()
            digest.update(blob)  # type: ignore[arg-type]
            yield digest
        return
    for blob, keys in zip(args, dependencies or [[]] * len(args), strict=True):
        yield _digest(function_id, blob, keys)


def _detached(blob: Blob) -> Blob:
    return blob.detached() if isinstance(blob, Payload) else blob


def _renumbered(error: SerializationError, n_before: int) -> SerializationError:
    """Count the calls of the whole `map`, not those of one chunk."""
    head, _, tail = error.where.rpartition(" (call ")
    number = tail.removesuffix(")")
    if not n_before or not head or not number.isdigit():
        return error
    where = f"{head} (call {int(number) + n_before})"
    return SerializationError(where, error.type_name, error.text)


# --- Options of users -----------------------------------------------------------------------------


def bind_constants(
    func: Callable[..., Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any] | None]:
    """Make keyword arguments that all calls share a part of the function, to be sent once.

    They stay with the calls if there are futures among them, which each task must depend on.
    """
    if not kwargs:
        return func, None
    _, dependencies = dumps_with_dependencies(kwargs, "the keyword arguments")
    if dependencies:
        return func, kwargs
    return functools.partial(func, **kwargs), None


def rows_of(iterables: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the arguments of each call of a `map`.

    Raises:
        TypeError: one of them cannot be iterated over.
    """
    try:
        return zip(*iterables, strict=False)
    except TypeError as error:
        for given in iterables:
            if not isinstance(given, Iterable) and not hasattr(given, "__getitem__"):
                name = type(given).__name__
                hint = f": did you mean range({given})?" if name == "int" else ""
                raise TypeError(
                    f"map needs iterables, and {given!r:.60} is not one{hint}"
                ) from error
        raise


def check_batch_size(batch_size: object) -> int:
    """Return the largest number of tasks in one message, checked.

    Raises:
        TypeError, ValueError: it is not a whole number, or is below one.
    """
    if type(batch_size) is not int:
        raise TypeError(f"batch_size= is a whole number, not {batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size= is a whole number >= 1, not {batch_size}")
    return batch_size


def check_key(key: object) -> str:
    """Return the text of a key of the user's own.

    Raises:
        TypeError, ValueError: it cannot be a key.
    """
    try:
        return text_of(key)
    except TypeError as error:
        raise TypeError(f"{error}; {for_the_function('key')}") from None


def check_keys(key: object) -> str | list[str]:
    """Return the prefix, or the texts of the keys, that a user gave for a `map`.

    Raises:
        TypeError, ValueError: they cannot be keys.
    """
    if isinstance(key, str):
        return check_key(key)
    return [check_key(name) for name in (key if isinstance(key, Iterable) else [key])]
