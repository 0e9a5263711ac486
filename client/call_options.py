"""Guesses which option of `submit` and `map` was meant by an argument that a function refused."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

_OPTIONS: Final = ("key", "priority", "pure", "resources", "retries", "workers")
#: {name that is not similar, or is known from other libraries: what it is here}
_ELSEWHERE: Final = {
    "chunksize": "the option batch_size= of map",
    "retry": "the option retries= of submit and map",
    "timeout": "result(timeout=) of the future",
}
#: As Python's functions and those in C refuse an argument.
_REFUSED: Final = re.compile(
    r"got an unexpected keyword argument '(\w+)'|^'(\w+)' is an invalid keyword argument"
)
_SIMILAR: Final = 0.75


def meant_option(text: str) -> str:
    """Return what was probably meant, by the text of a TypeError; "" = it is not known."""
    found = _REFUSED.search(text)
    if found is None:
        return ""
    name = found[1] or found[2]
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    close = get_close_matches(name, _OPTIONS, 1, _SIMILAR)
    return f"the option {close[0]}= of submit and map" if close else ""
