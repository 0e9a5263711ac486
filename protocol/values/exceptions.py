"""Packing of a task's exception on the worker, and unpacking on the client that raises it.

The user gets the exception as the task raised it: its own type, cause and context, a traceback of
the user's frames without weft's, and a note that names the task and the worker. A packed exception
has five plain fields, which the scheduler forwards, and may show, without unpickling:

    [blob, type name, text, traceback text, frames]

`blob` is the pickled exception, `b""` if it cannot be pickled; `frames` is a pickle too, of what
pickling an exception drops: tracebacks, cause, context, and the note. If the exception itself
cannot be unpickled, `TaskErred` takes its place, with type name, text and traceback text.

Neither direction may fail: an exception's `__str__`, `__reduce__` and class are user code. While
packing, even SystemExit of that code is caught: it would end the thread that runs tasks.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import traceback
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..errors import RemoteProtocolError, TaskErred
from .pickling import PROTOCOL, TINY_NBYTES, cloudpickle_dumps, needs_cloudpickle
from .tracebacks import from_rows, print_rows, to_rows, without_own_frames

#: `[blob, type name, text, traceback text, frames]`; a tuple or list of bytes, three str, bytes.
PackedException: TypeAlias = Sequence[Any]

MAX_TRACEBACK_CHARS = 64 * 1024
_MAX_TEXT_CHARS = 16 * 1024
#: A larger exception is replaced by its text: the scheduler keeps it while a client wants it.
_MAX_BLOB_NBYTES = 8 * 1024 * 1024
#: Exceptions in one chain of causes, contexts and groups.
_MAX_CHAIN = 50
N_PACKED = 5

#: The parts of one exception that pickling drops; others refer to it by its index in the list.
#: (blob, type name, text, rows, cause, context, suppress_context, parts); cause and context are
#: places or None; parts are those of a group's exceptions, which travel in the group's blob.
_Link: TypeAlias = "tuple[bytes, str, str, list[Any], int | None, int | None, bool, list[int]]"


def pack_exception(exc: BaseException, key: str, worker: str) -> list[Any]:
    """Return what a client needs to raise `exc` as it was raised here.

    Args:
        exc: as caught, with its traceback; SystemExit and KeyboardInterrupt too. Not changed.
        key: of the task.
        worker: name or address, for the note.
    """
    tb = without_own_frames(exc.__traceback__)
    links = _links(exc)
    blob, name, text, *_ = links[0]
    links[0] = (b"", *links[0][1:])
    note = f"weft: task {key} on worker {worker}"
    frames = pickle.dumps((key, note, links), PROTOCOL)
    return [blob, name, text, _traceback_text(exc, tb, name, text), frames]


def name_packed(packed: PackedException, key: str, note: str) -> list[Any]:
    """Return a packed exception with a key and a note that its packer did not know.

    Args:
        packed: as `pack_exception` made it, in a process that this one trusts.
        key: replaces the key it was packed with.
        note: replaces the line that names the task and the worker.
    """
    *fields, frames = packed
    _, _, links = pickle.loads(frames)
    return [*fields, pickle.dumps((key, note, links), PROTOCOL)]


def unpack_exception(packed: PackedException, key: str = "") -> BaseException:
    """Return the exception that was passed to `pack_exception`, or a `TaskErred` in its place.

    A new object each time. SystemExit, KeyboardInterrupt, GeneratorExit and asyncio.CancelledError
    become `TaskErred` with the original as the cause, because raised here they would end or cancel
    the caller.

    Raises:
        RemoteProtocolError: this is not a packed exception.
    """
    if len(packed) != N_PACKED or [*map(type, packed)] != [bytes, str, str, str, bytes]:
        raise RemoteProtocolError("a packed exception must be bytes, three texts and bytes")
    blob, name, text, traceback_text, frames = packed
    if not frames:
        cut = TaskErred(key, name, text)
        add_note(cut, traceback_text)
        return cut
    try:
        key, note, links = pickle.loads(frames)
    except Exception as exc:
        raise RemoteProtocolError(
            f"the frames of a packed exception cannot be read: {exc}"
        ) from exc
    links[0] = (blob, *links[0][1:])
    made = [_unpickle(link, key) for link in links]
    _adopt_parts(made, links)
    for one, (*_, rows, cause, context, suppress, _parts) in zip(made, links, strict=True):
        set_field(one, "__traceback__", from_rows(rows))
        # Setting the cause sets suppress_context, so that comes last.
        set_field(one, "__cause__", None if cause is None else made[cause])
        set_field(one, "__context__", None if context is None else made[context])
        set_field(one, "__suppress_context__", suppress)
    head = made[0]
    if _would_end_caller(head):
        head = TaskErred(key, name, text)
        head.__cause__ = made[0]
    elif isinstance(head, TaskErred) and name != _type_name(head):
        add_note(head, f"Traceback on the worker:\n{traceback_text}")
    add_note(head, note)
    return head


# --- Packing --------------------------------------------------------------------------------------


def _links(head: BaseException) -> list[_Link]:
    """Return a link for `head` and for each exception that it leads to, `head` first."""
    found: list[BaseException] = [head]
    in_group: set[int] = set()
    places = {id(head): 0}

    def place(exc: BaseException | None) -> int | None:
        if exc is None or id(exc) in places:
            return None if exc is None else places[id(exc)]
        if len(found) >= _MAX_CHAIN:
            return None
        places[id(exc)] = len(found)
        found.append(exc)
        return places[id(exc)]

    links: list[_Link] = []
    for exc in found:  # grows while it is walked
        parts = [place(part) for part in _group_parts(exc)]
        if None in parts:
            parts = []  # too long a chain: the parts arrive without tracebacks
        in_group.update(part for part in parts if part is not None)
        is_part = len(links) in in_group
        links.append(
            (
                b"" if is_part else _pickled(exc),
                _type_name(exc),
                _text(exc),
                to_rows(without_own_frames(exc.__traceback__)),
                place(exc.__cause__),
                place(exc.__context__),
                exc.__suppress_context__,
                [part for part in parts if part is not None],
            )
        )
    return links


def _group_parts(exc: BaseException) -> Sequence[BaseException]:
    # By attributes, not by type: Python 3.10 knows groups only as a backport.
    if type(exc).__name__ not in {"ExceptionGroup", "BaseExceptionGroup"}:
        return ()
    parts = getattr(exc, "exceptions", ())
    return parts if isinstance(parts, tuple) else ()


def _pickled(exc: BaseException) -> bytes:
    """Return a pickle that can be unpickled here, or `b""`."""
    return _pickled_if_it_comes_back(exc) or _pickled_if_it_comes_back(_Bare(exc))


def _pickled_if_it_comes_back(candidate: object) -> bytes:
    try:
        blob = _dumps(candidate)
        comes_back = isinstance(pickle.loads(blob), BaseException)
    except BaseException:
        # `__reduce__` and constructors are user code and raise anything. The exception then travels
        # as its text, in which the user sees what is missing.
        return b""
    return blob if comes_back and len(blob) <= _MAX_BLOB_NBYTES else b""


class _ExceptionPickler(pickle.Pickler):
    """Pickles exceptions by their own reducers, even if tblib has registered one for all of them:
    tblib's loses the text of UnicodeDecodeError.
    """

    def reducer_override(self, obj: object) -> Any:
        return obj.__reduce_ex__(PROTOCOL) if isinstance(obj, BaseException) else NotImplemented


def _dumps(obj: object) -> bytes:
    try:
        file = io.BytesIO()
        _ExceptionPickler(file, PROTOCOL).dump(obj)
        blob = file.getvalue()
        if len(blob) < TINY_NBYTES or not needs_cloudpickle(blob):
            return blob
    except Exception:
        return cloudpickle_dumps(obj)
    return cloudpickle_dumps(obj)


class _Bare:
    """An exception pickled without its constructor.

    By default an exception is unpickled as `type(*args)`, which fails for classes whose
    constructor takes other arguments than it passes to its base.
    """

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self.exc), self.exc.args, dict(self.exc.__dict__))


def _rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    exc = cls.__new__(cls, *args)
    exc.args = args
    exc.__dict__.update(state)
    return exc


def _type_name(exc: BaseException) -> str:
    cls = type(exc)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return _sendable(f"{module}{cls.__qualname__}", _MAX_TEXT_CHARS)


def _text(exc: BaseException) -> str:
    try:
        text = str(exc)
    except BaseException as broken:
        text = f"<its __str__ raised {type(broken).__name__}>"
    return _sendable(text, _MAX_TEXT_CHARS)


def _traceback_text(exc: BaseException, tb: Any, name: str, text: str) -> str:
    try:
        if _is_plain(exc) and tb is not None:
            end = traceback.format_exception_only(type(exc), exc)
            printed = "".join(["Traceback (most recent call last):\n", print_rows(tb), *end])
        else:
            printed = "".join(traceback.format_exception(type(exc), exc, tb))
    except BaseException:
        # `__notes__`, `__str__` or a source line cannot be printed: return what is certain.
        printed = "".join([*traceback.format_tb(tb), f"{name}: {text}\n"])
    return _sendable(printed, MAX_TRACEBACK_CHARS)


def _is_plain(exc: BaseException) -> bool:
    """Whether what is printed of an exception is its traceback, and lines that need none.

    Names that might have been meant are looked for in the frames, so they need it.
    """
    return (
        exc.__cause__ is None
        and (exc.__context__ is None or exc.__suppress_context__)
        and not _group_parts(exc)
        and not isinstance(exc, (AttributeError, ImportError, NameError, SyntaxError))
    )


def _sendable(text: str, max_chars: int) -> str:
    """Cut the middle out of a long text, and escape what UTF-8 cannot hold."""
    if len(text) > max_chars:
        mark = "\n[...]\n"
        head = max_chars // 4
        text = text[:head] + mark + text[len(text) - (max_chars - head - len(mark)) :]
    return text.encode("utf-8", "backslashreplace").decode()


# --- Unpacking ------------------------------------------------------------------------------------


def _unpickle(link: _Link, key: str) -> BaseException:
    """Return the link's exception, or a stand-in: it may have no blob, or fail to load here."""
    blob, name, text = link[:3]
    if blob:
        try:
            exc = pickle.loads(blob)
            if isinstance(exc, BaseException):
                return exc
        except Exception as problem:
            text = f"{text} [not readable here: {type(problem).__name__}: {problem}]"
    return TaskErred(key, name, text)


def _adopt_parts(made: list[BaseException], links: list[_Link]) -> None:
    """Put the exceptions that came inside a group's blob in the places of the group's parts."""
    for i, link in enumerate(links):
        parts = link[-1]
        arrived = _group_parts(made[i])
        if len(arrived) == len(parts):
            for place, part in zip(parts, arrived, strict=True):
                made[place] = part


def _would_end_caller(exc: BaseException) -> bool:
    if isinstance(exc, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        return True
    if isinstance(exc, Exception):
        return False
    import asyncio

    return isinstance(exc, asyncio.CancelledError)


def add_note(exc: BaseException, note: str) -> None:
    """Add a line that is printed below the traceback."""
    # Not by `add_note`, which Python 3.10 lacks (it keeps notes and does not print them), and which
    # asks the class: a frozen dataclass would refuse.
    with contextlib.suppress(Exception):
        notes = getattr(exc, "__notes__", ())
        if note not in notes:  # an exception object may be raised again and again
            set_field(exc, "__notes__", [*notes, note])


#: set_field(exc, name, value): whatever its class has in place of that.
set_field = BaseException.__setattr__
