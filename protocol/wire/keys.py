"""Keys of users as text, and back.

A user's key is a str, or a tuple of str, bytes, int, float, bool, None and such tuples, as dask's
collections name their parts. On the wire, in the cores and in logs a key is text:

    "load"           load
    ("x", 0, 1)      ('x', 0, 1)
    "('x', 0, 1)"    ("('x', 0, 1)")

A str is its own text, except for one that the reader would take for the text of another key: it is
put in parentheses. A tuple is written as Python writes it, and nothing else has that text. So
`key_of(text_of(key)) == key`, and no two different keys have the same text. Keys that are equal but
for the type of a number, `("x", 1)` and `("x", 1.0)`, are different keys; integers and texts of
numpy become those of Python.

Keys that weft makes end with a hash or a number, never with a parenthesis, and need no check.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from typing import Any, Final, TypeAlias

from .message import MAX_KEY_CHARS

Key: TypeAlias = str | tuple[Any, ...]

#: Deeper tuples are mistakes, and their texts would end the interpreter's stack.
_MAX_DEPTH: Final = 64
#: An int of more bits has more digits than a key has characters.
_MAX_INT_BITS: Final = 4 * MAX_KEY_CHARS

# The escapes that `repr` makes: others would warn, or are another way to write the same text.
_ESCAPE: Final = r"""\\[\\'"nrt]|\\x[0-9a-f]{2}"""
_UNICODE: Final = r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}"
_TOKEN: Final = re.compile(
    rf"""(?P<open>\()|(?P<close>,?\))|(?P<comma>,\ )
    |(?P<text>'(?:[^'\\]|{_ESCAPE}|{_UNICODE})*'|"(?:[^"\\]|{_ESCAPE}|{_UNICODE})*"
      |b'(?:[^'\\]|{_ESCAPE})*'|b"(?:[^"\\]|{_ESCAPE})*")
    |(?P<word>None|True|False|-?inf|nan|-?[0-9][0-9a-z.+-]*)""",
    re.VERBOSE,
)
_WORDS: Final = {"None": None, "True": True, "False": False}
#: The types in a tuple whose text Python writes as `_write` does.
_PLAIN: Final = frozenset({bool, bytes, float, int, str, type(None)})
#: A hash of content, or a random identity, as dask puts it into the names of tasks.
_HASH: Final = re.compile(r"-(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def text_of(key: object) -> str:
    """Return the text of a user's key.

    Raises:
        TypeError: it is neither a str nor a tuple of what a key may have in it.
        ValueError: its text is empty or too long, or cannot be sent.
    """
    if isinstance(key, str):
        text = key if key.__class__ is str else str.__str__(key)
        if text[:1] == "(" and key_of(text) != text:
            text = f"({text!r})"
    elif isinstance(key, tuple):
        text = _text_of_tuple(key)
    else:
        raise TypeError(
            "a key is a str, or a tuple of str, bytes, int, float, bool, None and such tuples; "
            f"not {type(key).__name__}"
        )
    if not 0 < len(text) <= MAX_KEY_CHARS:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters, this one has {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"key {text!r} cannot be sent as text: {error.reason}") from None
    return text


def names_content(text: str) -> bool:
    """Return whether a key has a hash of content in it, so that equal keys mean equal results."""
    return _HASH.search(text) is not None


def prefix_of(key: object) -> str:
    """Return what is before the hash in a key of dask: `('sum-9a0e…', 0)` is a part of `sum`."""
    head = key[0] if isinstance(key, tuple) and key else key
    text = head if isinstance(head, str) else repr(head)
    found = _HASH.search(text)
    return text if found is None else text[: found.start()]


def key_of(text: str) -> Key:
    """Return the key of a text: the inverse of `text_of`. Any other text is a key itself."""
    return text if text[:1] != "(" or text[-1] != ")" else _read(text)


def _text_of_tuple(key: tuple[Any, ...]) -> str:
    if key.__class__ is tuple and _PLAIN.issuperset(map(type, key)):
        try:
            return repr(key)
        except ValueError:  # an int of too many digits
            pass
    return _write(key, 0)


def _write(item: object, depth: int) -> str:
    if isinstance(item, tuple):
        if depth == _MAX_DEPTH:
            raise ValueError(f"a key has at most {_MAX_DEPTH} tuples within each other")
        parts = [_write(part, depth + 1) for part in item]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(item, str):
        return repr(str.__str__(item))
    if item is None or isinstance(item, bool):
        return repr(item)
    if isinstance(item, float):
        return float.__repr__(item)
    if isinstance(item, bytes):
        return repr(bytes(item))
    try:
        number = operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            "a tuple that is a key has str, bytes, int, float, bool, None and such tuples in it; "
            f"not {type(item).__name__}: {item!r:.60}"
        ) from None
    if number.bit_length() > _MAX_INT_BITS:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters; an int in this one has more")
    return repr(number)


@functools.lru_cache(maxsize=1024)
def _read(text: str) -> Key:
    """Return the key of a text in parentheses."""
    if len(text) > MAX_KEY_CHARS:
        return text
    try:
        key = _parse(text)
        return key if text_of(key) == text else text
    except (SyntaxError, TypeError, ValueError):
        return text


def _parse(text: str) -> Key:
    """Return the str or tuple that is written in a text.

    Raises:
        SyntaxError, ValueError: there is none.
    """
    #: The tuples that are open, the outermost first.
    stack: list[list[Any]] = [[]]
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"no key goes on with {text[position:]!r:.20}")
        position = match.end()
        token, kind = match[0], match.lastgroup
        if kind == "open":
            stack.append([])
        elif kind == "close":
            parts = stack.pop()
            if not stack:
                raise ValueError("more tuples end than begin")
            # One text in parentheses is itself; only the whole may be written so, see `text_of`.
            is_text = len(parts) == 1 and token == ")"
            stack[-1].append(parts[0] if is_text else tuple(parts))
        elif kind == "text":
            stack[-1].append(ast.literal_eval(token))
        elif kind == "word":
            stack[-1].append(_WORDS[token] if token in _WORDS else _number(token))
    (key,) = stack.pop()
    if stack or not isinstance(key, (str, tuple)):
        raise ValueError("no key is written like this")
    return key


def _number(token: str) -> int | float:
    try:
        return int(token)
    except ValueError:
        return float(token)
