"""Records of logging on their way to another process: plain data, as far as they have some.

The text of a record is formatted where it is logged, and so is its exception, because arguments and
exceptions may be any objects. What programs add with `extra=` travels if it is plain.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any, Final

from ..wire.payload import Blob
from ..wire.plain import pack, unpack

__all__ = ["packed", "text_of", "unpacked"]

#: Longer texts are cut.
MAX_TEXT_CHARS: Final = 4000
#: One attribute that is not among `_STANDARD`, and all of them, packed.
_MAX_EXTRA_NBYTES: Final = 4 << 10
_MAX_EXTRAS_NBYTES: Final = 16 << 10
#: What a whole record may take.
_MAX_NBYTES: Final = 256 << 10

#: {attribute that each record has: its types}; without those that are made anew
_STANDARD: Final[dict[str, tuple[type, ...]]] = {
    "created": (float,),
    "exc_text": (str, type(None)),
    "filename": (str,),
    "funcName": (str, type(None)),
    "levelname": (str,),
    "lineno": (int,),
    "module": (str,),
    "msecs": (int, float),
    "msg": (str,),
    "pathname": (str,),
    "process": (int, type(None)),
    "processName": (str, type(None)),
    "relativeCreated": (int, float),
    "stack_info": (str, type(None)),
    "taskName": (str, type(None)),
    "thread": (int, type(None)),
    "threadName": (str, type(None)),
    "weft_key": (str,),
}
_MADE_ANEW: Final = frozenset({"args", "asctime", "exc_info", "levelno", "message", "name"})


def text_of(record: logging.LogRecord) -> str:
    """Return the text of a record, also if its arguments cannot be formatted."""
    try:
        return record.getMessage()
    except Exception as error:  # of user code: a wrong number of arguments, a failing __str__
        return f"{record.msg!r} (its arguments cannot be formatted: {type(error).__name__})"


def packed(record: logging.LogRecord, key: str) -> bytes:
    """Return a record without its name and level, as packed plain data.

    Args:
        record: as a handler gets it.
        key: of the task that has logged it, "" if none has.
    """
    attributes = record.__dict__
    found: dict[str, Any] = {
        name: _cut(value)
        for name, kinds in _STANDARD.items()
        if isinstance(value := attributes.get(name), kinds)
    }
    found |= {"msg": _cut(text_of(record)), "weft_key": key}
    if record.exc_info and not record.exc_text:
        found["exc_text"] = _cut("".join(traceback.format_exception(*record.exc_info)).rstrip())
    left = _MAX_EXTRAS_NBYTES
    for name, value in attributes.items():
        if name in _STANDARD or name in _MADE_ANEW or name.startswith("_"):
            continue
        nbytes = _nbytes(name, value)
        if nbytes <= min(left, _MAX_EXTRA_NBYTES):
            found[name] = value
            left -= nbytes
    return pack(found)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return f"{value[:MAX_TEXT_CHARS]} [...]"
    return value


def _nbytes(name: str, value: Any) -> int:
    """Return the size of an attribute; beyond every limit if it is not plain."""
    try:
        return len(pack([name, value]))
    except Exception:  # no type that can be packed, a number beyond 64 bits, a list within itself
        return _MAX_EXTRAS_NBYTES + 1


def unpacked(name: str, level: int, blob: Blob, worker: str) -> logging.LogRecord:
    """Return a record as handlers of this process expect it.

    It has the attributes `weft_worker`, the name of the worker, and `weft_key`.

    Args:
        name: of its logger.
        level: its number.
        blob: what `packed` has returned, in another process.
        worker: by which it came.

    Raises:
        ValueError: the blob is not that of a record.
    """
    data = blob if isinstance(blob, bytes) else blob.data
    if len(data) > _MAX_NBYTES:
        raise ValueError(f"{len(data)} bytes are no record of logging")
    found = unpack(blob)
    if type(found) is not dict:
        raise ValueError(f"a record is a map, not {type(found).__name__}")
    attributes = {
        key: value
        for key, value in found.items()
        if isinstance(key, str)
        and key not in _MADE_ANEW
        and isinstance(value, _STANDARD.get(key, (object,)))
    }
    attributes |= {"name": name, "levelno": level, "weft_worker": worker}
    attributes.setdefault("levelname", logging.getLevelName(level))
    return logging.makeLogRecord(attributes)
