"""Plain data of users in messages: texts, bytes, numbers, and lists and maps of these.

What may be larger than a map or a payload of a message travels packed, as a blob. A blob has no
limit of its own but that of buffers, and the processes on its way do not look into it.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from .payload import Blob, Payload

#: The most maps and lists within each other.
MAX_DEPTH: Final = 32
#: The most within each other in what is passed on from process to process: an encoder accepts
#: fewer than a decoder, and a message that cannot be encoded ends the connection of its receiver.
MAX_ANSWER_DEPTH: Final = 8
#: The largest size of plain data in one message: no text in it exceeds what a message may have.
MAX_PLAIN_NBYTES: Final = 64 << 10
#: Counted for each item beside its text.
_ITEM_NBYTES: Final = 64
_NESTED: Final = frozenset({dict, list})


def size_of(value: Any, depth: int = 0) -> int:
    """Return the approximate size of plain data.

    Args:
        value: the data.
        depth: the number of maps and lists around it.

    Raises:
        ValueError: it is nested too deeply, or has keys that are no text.
    """
    layer, nbytes = [value], 0
    while layer:
        if depth > MAX_DEPTH:
            raise ValueError(f"metadata is nested in at most {MAX_DEPTH} dicts and lists")
        inner: list[Any] = []
        for item in layer:
            nbytes += _ITEM_NBYTES
            if type(item) is dict:
                if not set(map(type, item)) <= {str}:
                    raise ValueError("the keys of dicts in metadata are texts")
                nbytes += sum(map(len, item))
                inner += item.values()
            elif type(item) is list:
                inner += item
            elif type(item) in (str, bytes):
                nbytes += len(item)
        layer = inner
        depth += 1
    return nbytes


def is_flat(value: Any, depth: int = MAX_ANSWER_DEPTH) -> bool:
    """Return whether maps and lists are nested in at most `depth` others; long lists at C speed."""
    items = value.values() if type(value) is dict else value
    if _NESTED.isdisjoint(map(type, items)):
        return True
    return depth > 1 and all(is_flat(x, depth - 1) for x in items if type(x) in _NESTED)


def pack(value: Any) -> bytes:
    """Return plain data as a blob. Texts need not be valid Unicode: file names may be not."""
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


def unpack(blob: Blob) -> Any:
    """Return the plain data in a blob.

    Raises:
        ValueError: there is none in it.
    """
    data = blob.data if isinstance(blob, Payload) else blob
    try:
        return msgpack.unpackb(data, unicode_errors="surrogatepass", strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        text = str(error)[:200] or type(error).__name__
        raise ValueError(f"the packed data cannot be read: {text}") from None
