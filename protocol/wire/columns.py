"""The types of the fields of messages, their limits, and the one check of each.

The *name* of a field's annotation is its schema: `keys: Keys` is encoded without change and, on
arrival, checked by `CHECKS["Keys"]`. A column check is one pass at C speed (`set(map(type,
column))`, about 30 ns per item). `generated` makes functions of these checks for each message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .payload import Blob, Payload

# -- schema names ---------------------------------------------------------------------------------
Keys = list[str]  #: task keys, each 1..MAX_KEY_CHARS characters
Texts = list[str]  #: short texts: addresses, names
Ints = list[int]  #: whole numbers, 0 <= n < 2**63
Sizes = list[int]  #: bytes of a value, or microseconds: 0 <= n <= MAX_SIZE, so sums stay numbers
Ids = list[bytes]  #: content hashes, 16 bytes each
Blobs = list[Blob | None]  #: opaque pickles; None = not carried here
KeyLists = list[list[str]]  #: one list of keys per task
Failures = list[list[Any]]  #: see failure.py
Number = int  #: a whole number, 0 <= n < 2**63
Text = str  #: at most MAX_TEXT_CHARS characters
Amounts = dict[str, float]  #: name -> amount, finite and >= 0
Facts = dict[str, Any]  #: small map for display (versions, host facts), see `_check_facts`
Info = dict[str, Any]  #: the answer to a question: a map with text keys, which may hold many facts
Flag = bool

MAX_ITEMS = 1 << 18  #: longest column of one message
#: Longer messages are sent in parts, so cores need not count rows. 2048 rows with the longest keys
#: and the longest blobs that are not moved out of band stay below the limit of a payload.
MAX_ROWS = 2048
#: Keys that one task may depend on: an assignment with the holders of all must fit a payload.
MAX_DEPENDENCIES = 1 << 16
MAX_KEY_CHARS = 1024
#: The largest of `Sizes`. Honest senders stay below: see `sizeof`; it is 9 years in microseconds.
MAX_SIZE = 1 << 48
MAX_NUMBER = (1 << 63) - 1
#: The longest pause between two attempts of a task, seconds: ten years.
MAX_PAUSE_S = 10 * 366 * 86400
MAX_TEXT_CHARS = 1 << 16
#: Tags of the spans that a task was submitted in, and characters of each.
MAX_SPAN_TAGS = 16
MAX_TAG_CHARS = 100
MAX_FACTS = 4096
#: Facts of one peer are passed on in answers to others, whose decoders have limits of their own.
MAX_FACTS_DEPTH = 8
MAX_FACTS_NBYTES = 64 << 10


# -- checks: (value, buffers) -> value, or ValueError/TypeError -----------------------------------
def as_column(value: Any) -> list[Any]:
    """Check that it is a list, which is not too long."""
    if type(value) is not list:
        raise TypeError(f"an array is expected, not {type(value).__name__}")
    if len(value) > MAX_ITEMS:
        raise ValueError(f"{len(value)} items are more than the limit of {MAX_ITEMS}")
    return value


def _check_keys(value: Any, _buffers: list[Any]) -> list[str]:
    column = as_column(value)
    if column:
        if set(map(type, column)) != {str}:
            raise TypeError("keys must be strings")
        if len(max(column, key=len)) > MAX_KEY_CHARS or not all(column):
            raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters")
    return column


def _check_texts(value: Any, _buffers: list[Any]) -> list[str]:
    column = as_column(value)
    if column and (set(map(type, column)) != {str} or len(max(column, key=len)) > MAX_TEXT_CHARS):
        raise TypeError("short texts are expected")
    return column


def _check_ints(value: Any, _buffers: list[Any]) -> list[int]:
    column = as_column(value)
    if column and (set(map(type, column)) != {int} or min(column) < 0 or max(column) >= 1 << 63):
        raise TypeError("whole numbers from 0 to 2**63 - 1 are expected")
    return column


def _check_sizes(value: Any, _buffers: list[Any]) -> list[int]:
    column = as_column(value)
    if column and (set(map(type, column)) != {int} or min(column) < 0 or max(column) > MAX_SIZE):
        raise TypeError("sizes from 0 to 2**48 are expected")
    return column


def _check_ids(value: Any, _buffers: list[Any]) -> list[bytes]:
    column = as_column(value)
    if column and (set(map(type, column)) != {bytes} or set(map(len, column)) != {16}):
        raise TypeError("16-byte ids are expected")
    return column


def _blob(value: Any, buffers: list[Any]) -> Blob | None:
    if type(value) is list:
        if len(value) != 2 or type(value[0]) is not int or type(value[1]) is not int:
            raise TypeError("a blob reference is [first buffer, number of buffers]")
        start, count = value
        if not (0 <= start < start + count <= len(buffers)):
            raise ValueError("a blob refers to buffers that the frame does not carry")
        return Payload(buffers[start], buffers[start + 1 : start + count])
    if value is not None and type(value) is not bytes:
        raise TypeError("a blob is bytes or a reference to buffers")
    return value


_PLAIN_BLOBS: Final = {bytes, type(None)}


def _check_blobs(value: Any, buffers: list[Any]) -> list[Blob | None]:
    column = as_column(value)
    if not set(map(type, column)) <= _PLAIN_BLOBS:
        return [_blob(item, buffers) for item in column]
    return column


def _check_key_lists(value: Any, buffers: list[Any]) -> list[list[str]]:
    column = as_column(value)
    if column and set(map(type, column)) != {list}:
        raise TypeError("a list of lists of keys is expected")
    flat: list[Any] = []
    for keys in column:
        if keys:
            flat += keys
    _check_keys(flat, buffers)
    return column


def _check_failures(value: Any, _buffers: list[Any]) -> list[list[Any]]:
    column = as_column(value)
    for failure in column:
        if type(failure) is not list or not 2 <= len(failure) <= 12 or type(failure[0]) is not str:
            raise TypeError("a failure is [kind, ...]")
        if not set(map(type, failure)) <= {str, bytes, int, type(None)}:
            raise TypeError("a failure has plain fields")
    return column


def _check_number(value: Any, _buffers: list[Any]) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("a whole number from 0 to 2**63 - 1 is expected")
    return value


def _check_text(value: Any, _buffers: list[Any]) -> str:
    if type(value) is not str or len(value) > MAX_TEXT_CHARS:
        raise TypeError("a short text is expected")
    return value


def _check_flag(value: Any, _buffers: list[Any]) -> bool:
    if type(value) is not bool:
        raise TypeError("true or false is expected")
    return value


def _check_amounts(value: Any, _buffers: list[Any]) -> dict[str, float]:
    if type(value) is not dict or len(value) > 64:
        raise TypeError("a small map of name to amount is expected")
    for name, amount in value.items():
        if (
            type(name) is not str
            or type(amount) not in (int, float)
            or not 0 <= amount < float("inf")
        ):
            raise TypeError("an amount is a finite number >= 0")
    return value


def _check_info(value: Any, _buffers: list[Any]) -> dict[str, Any]:
    if type(value) is not dict or len(value) > MAX_FACTS or not set(map(type, value)) <= {str}:
        raise TypeError(f"a map with text keys is expected, of at most {MAX_FACTS} entries")
    return value


def _check_facts(value: Any, buffers: list[Any]) -> dict[str, Any]:
    facts = _check_info(value, buffers)
    layer: list[Any] = [facts]
    depth = nbytes = 0
    while layer:
        depth += 1
        if depth > MAX_FACTS_DEPTH:
            raise ValueError(f"facts are nested in more than {MAX_FACTS_DEPTH} maps and lists")
        items: list[Any] = []
        for one in layer:
            items += one
            if type(one) is dict:
                items += one.values()
        nbytes += 8 * len(items) + sum(len(x) for x in items if type(x) in (str, bytes))
        if nbytes > MAX_FACTS_NBYTES:
            raise ValueError(f"facts take {nbytes} bytes or more, the limit is {MAX_FACTS_NBYTES}")
        layer = [x for x in items if type(x) in (dict, list)]
    return facts


#: {schema: its check}. The check of `Options` is added by `options`.
CHECKS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "Keys": _check_keys,
    "Texts": _check_texts,
    "Ints": _check_ints,
    "Sizes": _check_sizes,
    "Ids": _check_ids,
    "Blobs": _check_blobs,
    "KeyLists": _check_key_lists,
    "Failures": _check_failures,
    "Number": _check_number,
    "Text": _check_text,
    "Flag": _check_flag,
    "Amounts": _check_amounts,
    "Facts": _check_facts,
    "Info": _check_info,
}
