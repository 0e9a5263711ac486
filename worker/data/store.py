"""The values of this worker: results of its tasks, and copies that other workers sent.

The only module that touches values. Each is stored under the attempt that made it, as an object or
packed: as it came, or in a file (`spilling`). A packed value stays so until a task needs it, and is
unpickled on the thread of that task: the event loop runs no user code, and a copy that is only
passed on is never unpickled at all.

A large value that a process of this host asks for is *shared*: its arrays move to a file that both
map (`host_blobs`), or are in one already. Then this process has it packed in that file, too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...protocol.values.host_blobs import SHARED_NBYTES, FileReference, HostBlob, share
from ...protocol.values.serialize import loads
from ...protocol.values.staying import Staying
from ...protocol.wire.payload import Blob, blob_nbytes
from .core.spill_plan import MIN_NBYTES
from .packing import PLAIN_TYPES, pack_for_reader, pack_result
from .spill_files import GoneValue, SpillFile

__all__ = ["Store"]

_NOTHING: Final = object()
#: Values from this size on move to a file for their first reader on this host, others for the
#: second: for one reader a file takes up to 2.3 times the CPU time of sending, since its pages are
#: small ones.
AT_ONCE_NBYTES: Final = 32 << 20
#: A value over its file is kept for readers of parts, if its pickle without buffers is as small,
#: and there are no more files: a process may have some 65 000 mappings.
_VIEW_NBYTES: Final = 64 << 10
_MOST_VIEWS: Final = 8192


class _Packed:
    """A value that no task here has needed yet, or not since it has left the memory.

    Its bytes are in memory, or in a file. `view` is the value over the file, for readers of parts.
    """

    __slots__ = ("blob", "file", "view")

    def __init__(self, blob: Blob | None, file: SpillFile | None = None) -> None:
        self.blob = blob
        self.file = file
        self.view: Any = _NOTHING

    def read(self) -> Blob:
        """Return the pickle. Not on the event loop, unless it is in memory."""
        if self.blob is not None:
            return self.blob
        assert self.file is not None
        return self.file.read()


class Store:
    """All values, and their bytes. Any thread may call any method.

    Attributes:
        nbytes: the sum of the sizes of all values in memory, as far as they are known.
        spilled_nbytes: the sum of the sizes of the others.
        memory_limit: of this worker, bytes; 0 = none.
        watched: `relieve` is called by those who add to `nbytes` above it.
        relieve: has room made, and waits for it if need be, with the values that were put. Not for
            the event loop, where `note_full` starts the same.
        note_full: see there.
        has_room: returns whether so many bytes more may be taken for a while.
        load: returns the value of an attempt, which is here, for a task. Others are put in its
            place while memory is short, so it is looked up again now and then.
    """

    def __init__(self, memory_limit: int = 0) -> None:
        self.memory_limit = memory_limit
        self.nbytes = self.spilled_nbytes = 0
        self.forget_watch()
        self.load: Callable[[int], Any] = self.load_plain
        #: {attempt: None} of values that were read while memory was short
        self.marks: dict[int, None] = {}
        #: {attempt: its file} of all values that have one; those in memory are as in the file
        self.files: dict[int, SpillFile] = {}
        #: {attempt: its blob} of all values in files that this process has open, and that other
        #: processes of this host can map
        self.shared: dict[int, HostBlob] = {}
        #: {attempt: None} of values that were sent to a process of this host
        self._sent_near: dict[int, None] = {}
        #: {attempt: value, or `_Packed`}. Single items are read and replaced without the lock: the
        #: core pins what a task uses, so that it is not dropped meanwhile.
        self._values: dict[int, Any] = {}
        #: {attempt: bytes}. The same attempts; `nbytes` and `spilled_nbytes` are the sum.
        self._sizes: dict[int, int] = {}
        #: Guards the sums and all dicts, and that the two above have the same attempts.
        self._lock = threading.Lock()
        #: Held while a value is copied into a file: it needs twice its memory then.
        self._sharing = threading.Lock()

    def forget_watch(self) -> None:
        """Watch nothing."""
        self.watched = sys.maxsize
        self.relieve: Callable[[list[Any]], object] = _do_nothing
        self.note_full: Callable[[], object] = _do_nothing
        self.has_room: Callable[[int], bool] = lambda _nbytes: True

    @property
    def shared_nbytes(self) -> int:
        """The bytes of all values in `shared`."""
        return sum([blob.nbytes for blob in list(self.shared.values())])

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __contains__(self, attempt: int) -> bool:
        """Return whether the value of an attempt is here."""
        return attempt in self._values

    def nbytes_of(self, attempt: int) -> int:
        """Return the size of one value; 0 if it is not here."""
        return self._sizes.get(attempt, 0)

    def put(self, attempts: Sequence[int], values: Sequence[Any], sizes: Sequence[int]) -> None:
        """Store the results of new attempts; `sizes` are estimates, in bytes."""
        kept, kept_sizes, n = self._values, self._sizes, 0
        with self._lock:
            # Not `dict.update`, which is slower for one row, and most of a chain's have one.
            for attempt, value, nbytes in zip(attempts, values, sizes):  # noqa: B905 - hot
                kept[attempt] = value
                kept_sizes[attempt] = nbytes
                n += nbytes
            self.nbytes += n

    def put_packed(self, attempt: int, blob: Blob) -> int:
        """Store a copy as another worker sent it, and return its size."""
        nbytes = max(1, blob_nbytes(blob))
        with self._lock:
            if self.files:
                self._let_file_go(attempt)
            if self.shared:
                self.shared.pop(attempt, None)
            if isinstance(blob, HostBlob) and blob.mapping.file is not None:
                self.shared[attempt] = blob
            self._values[attempt] = _Packed(blob)
            self.nbytes += nbytes - self._sizes.get(attempt, 0)
            self._sizes[attempt] = nbytes
        return nbytes

    def load_plain(self, attempt: int) -> Any:
        """Do `load`.

        Raises:
            GoneValue: it was in a file, and is not there any more.
        """
        value = self._values[attempt]
        if value.__class__ is _Packed:
            value = self._unpack(attempt, value)
        return value

    def load_marking(self, attempt: int) -> Any:
        """Do `load`, and mark the value as one that is used."""
        self.marks[attempt] = None
        return self.load_plain(attempt)

    def _unpack(self, attempt: int, packed: _Packed) -> Any:
        file = packed.file
        if file is None:
            # Two threads may do this at once. Each gets a whole value, and one of them stays.
            value = loads(packed.read())
            with self._lock:
                if self._values.get(attempt) is packed:  # else it has left the memory meanwhile
                    self._values[attempt] = value
            return value
        with file.lock:  # such a value is large: one of them is enough
            value = self._values.get(attempt, packed)
            if value is packed:
                value = loads(file.read())
                with self._lock:
                    if self._values.get(attempt) is packed:
                        self._values[attempt] = value
                        nbytes = self._sizes[attempt]
                        self.nbytes += nbytes
                        self.spilled_nbytes -= nbytes
        if value.__class__ is _Packed:  # it was read by another thread, and has left again
            return self._unpack(attempt, value)
        if self.nbytes > self.watched:
            self.note_full()
        return value

    def view(self, attempt: int) -> Any:
        """Do `load` for one who reads a part of a value: if it is in a file, it stays there.

        Raises:
            GoneValue: see `load_plain`.
        """
        packed = self._values[attempt]
        if packed.__class__ is not _Packed:
            return packed
        file = packed.file
        if file is None:
            return self._unpack(attempt, packed)
        if packed.view is _NOTHING:
            with file.lock:
                if packed.view is not _NOTHING:
                    return packed.view
                blob = file.view()
                value = loads(blob)
                if len(blob.data) > _VIEW_NBYTES or len(self.files) > _MOST_VIEWS:
                    return value
                packed.view = value
        return packed.view

    def pack_plain(self, attempt: int, key: str) -> Blob | None:
        """Do `pack` on the event loop; return None if it might run user code, or read a file.

        It is None as well if nothing is here. One read of the value decides: a task's thread may
        unpickle a copy at any moment.
        """
        value = self._values.get(attempt, _NOTHING)
        if type(value) is _Packed:  # not `__class__`, which may be user code
            return value.blob
        return pack_result(value, key) if type(value) in PLAIN_TYPES else None

    def pack(self, attempt: int, key: str) -> Blob | None:
        """Return the pickle of the result of task `key`, for a reader; None if it is not here.

        A result that cannot be pickled is replaced, see `pack_for_reader`. One that was lost with
        its file is not here.
        """
        value = self._values.get(attempt, _NOTHING)
        if value is _NOTHING:
            return None
        if type(value) is _Packed:
            try:
                return value.read()
            except GoneValue:
                return None
        blob = self.shared.get(attempt)
        if blob is not None:
            return blob
        return pack_for_reader(value, key, self.nbytes_of(attempt), self.memory_limit)

    def pack_near(self, attempt: int, key: str) -> Blob | FileReference | None:
        """Do `pack` for a process of this host: if it can be, the result is shared with it."""
        if self.nbytes_of(attempt) < SHARED_NBYTES:
            return self.pack(attempt, key)
        file = self.files.get(attempt)
        if file is not None:  # also if it is in memory again: it is a view of the file then
            try:
                return file.reference()
            except GoneValue:
                return self.pack(attempt, key)
        blob = self.shared.get(attempt)
        if blob is None:
            value = self._values.get(attempt, _NOTHING)
            packed = self.pack(attempt, key)
            if packed is None or not self._is_shared_now(attempt):
                return packed
            with self._sharing:
                blob = self.shared.get(attempt) or self._share(attempt, value, packed)
            if blob is None:
                return packed
        return blob.reference or blob

    def _is_shared_now(self, attempt: int) -> bool:
        if self.nbytes_of(attempt) >= AT_ONCE_NBYTES or attempt in self._sent_near:
            return True
        with self._lock:
            if attempt in self._values:
                self._sent_near[attempt] = None
        return False

    def _share(self, attempt: int, value: Any, packed: Blob) -> HostBlob | None:
        """Move a value into a file, if it is still this one. The caller holds `_sharing`."""
        if issubclass(type(value), Staying) and value.must_stay:
            return None
        if not self.has_room(self.nbytes_of(attempt)):
            return None
        blob = share(packed)
        if blob is None:
            return None
        with self._lock:
            if self._values.get(attempt, _NOTHING) is not value:
                return None  # it was dropped, or moved, meanwhile
            self._values[attempt] = _Packed(blob)
            self.shared[attempt] = blob
        return blob

    def drop(self, attempts: Sequence[int]) -> list[Any]:
        """Forget these values and return them, because their destructors are user code.

        The caller drops them where it holds no lock. Some may not be here.
        """
        pop, pop_size, n = self._values.pop, self._sizes.pop, 0
        dropped: list[Any] = []
        with self._lock:
            if self.files:
                dropped += map(self._let_file_go, attempts)
            if self.shared:
                dropped += [self.shared.pop(attempt, None) for attempt in attempts]
            if self._sent_near:
                for attempt in attempts:
                    self._sent_near.pop(attempt, None)
            for attempt in attempts:
                n += pop_size(attempt, 0)
                dropped.append(pop(attempt, None))
            self.nbytes -= n
        return dropped

    # --- Values that leave the memory (`spilling`) ------------------------------------------------

    def _let_file_go(self, attempt: int) -> SpillFile | None:
        """Count a value as in memory that is dropped or replaced; its file goes with the last use.

        The caller holds the lock.
        """
        file = self.files.pop(attempt, None)
        if file is not None and type(self._values[attempt]) is _Packed:
            nbytes = self._sizes[attempt]
            self.nbytes += nbytes
            self.spilled_nbytes -= nbytes
        return file

    def in_memory(self) -> list[int]:
        """Return the attempts of the larger values in memory, oldest first."""
        sizes = self._sizes.copy()  # in one step, while other threads add
        return [attempt for attempt, n in sizes.items() if n >= MIN_NBYTES and self.size(attempt)]

    def size(self, attempt: int) -> int:
        """Return the size of a value in memory; 0 if it is not."""
        value = self._values.get(attempt, _NOTHING)
        if value is _NOTHING or (type(value) is _Packed and value.file is not None):
            return 0
        return self._sizes.get(attempt, 0)

    def take_mark(self, attempt: int) -> bool:
        """Take the mark off a value; return whether there was one."""
        return self.marks.pop(attempt, self) is None

    def to_write(self, attempt: int) -> tuple[Any, Blob | None, SpillFile | None] | None:
        """Return what is to be written of a value: an object, or its pickle; and its file, if any.

        None if it is not in memory any more.
        """
        value = self._values.get(attempt, _NOTHING)
        if value is _NOTHING:
            return None
        if type(value) is not _Packed:
            return value, self.shared.get(attempt), self.files.get(attempt)
        return None if value.file is not None else (value, value.blob, None)

    def replace(self, attempt: int, value: Any, file: SpillFile, *, is_new: bool = True) -> int:
        """Let a value be in its file only, if it still is this one; return the bytes freed.

        The caller has the last reference to it then. `is_new` is whether the file was made for it
        just now; any other may have been given up meanwhile, and then nothing happens.
        """
        with self._lock:
            if self._values.get(attempt, _NOTHING) is not value:
                return 0
            if not is_new and self.files.get(attempt) is not file:
                return 0
            self._values[attempt] = _Packed(None, file)
            self.files[attempt] = file
            shared = self.shared.pop(attempt, None)
            nbytes = self._sizes[attempt]
            self.nbytes -= nbytes
            self.spilled_nbytes += nbytes
        del shared  # its memory is freed without the lock
        return nbytes

    def spare_file(self) -> SpillFile | None:
        """Give up the file of a value that is in memory again, the oldest one; None = no more."""
        with self._lock:
            for attempt, file in self.files.items():
                if type(self._values[attempt]) is not _Packed:
                    del self.files[attempt]
                    return file
        return None


def _do_nothing(*_args: object) -> None:
    """Nothing is watched."""
