"""Arguments and pages of questions: read, and checked."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Info: TypeAlias = dict[str, Any]
#: A page of an answer, and the name of the next one, "" after the last.
Page: TypeAlias = tuple[Info, str]

#: Keys that may be asked about at once.
MAX_KEYS: Final = 1000


class BadArgument(ValueError):
    """An argument of a question, or its page, is not valid."""


def keys_of(arguments: Info) -> list[str]:
    """Return the argument `keys`."""
    keys = arguments.get("keys")
    if type(keys) is not list or not set(map(type, keys)) <= {str}:
        raise BadArgument("keys= is a list of keys")
    if len(keys) > MAX_KEYS:
        raise BadArgument(f"{len(keys)} keys are more than the limit of {MAX_KEYS} at once")
    return keys


def position_of(page: str) -> int:
    """Return the number that a page is named by; 0 for the first page."""
    if not page:
        return 0
    if not page.isascii() or not page.isdigit() or len(page) > 18:
        raise BadArgument(f"there is no page {page[:40]!r}")
    return int(page)
