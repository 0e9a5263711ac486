"""The places of a command for the arguments of a call, `{0}` and `{name}`, and what fills them."""

from __future__ import annotations

import keyword
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Final

#: Two braces stand for one, as in `str.format`.
_PLACE: Final = re.compile(r"(\{+)(\w+)(\}+)")


class Arguments:
    """The arguments of one call.

    Args:
        command: for the texts of errors.
        args: for `{0}`, `{1}`, ...
        kwargs: for names.
    """

    def __init__(self, command: str, args: Iterable[object], kwargs: Mapping[str, object]) -> None:
        self._command = command
        self._given = {**{str(i): value for i, value in enumerate(args)}, **kwargs}
        self._unused = dict.fromkeys(self._given)

    def fill(self, text: str, *, is_line: bool = False) -> str:
        """Return a text with the arguments in their places; in a line for the shell, quoted.

        Raises:
            TypeError: there is none for a place, or it is no word.
            ValueError: a place of a line is inside quotes.
        """

        def filled(match: re.Match[str]) -> str:
            before, name, after = match.groups()
            n = min(len(before), len(after))
            if n % 2:
                is_quoted = is_line and _is_quoted(text, match.start())
                if name not in self._given:  # `awk '{print}'` and `${HOME}` are not meant
                    if is_quoted or text[: match.start()].endswith("$"):
                        return match[0]
                elif is_quoted:
                    raise ValueError(
                        f"{match[0]} stands inside quotes in {text!r}: leave the quotes out, "
                        "each argument is quoted anyway"
                    )
                name = shlex.quote(self._word(name)) if is_line else self._word(name)
            if len(before) % 2 == len(after) % 2:
                return before[: len(before) // 2] + name + after[: len(after) // 2]
            left = n - n // 2  # `str.format` would refuse it: the braces that have no pair stay
            return before[left:] + name + after[left:]

        return _PLACE.sub(filled, text)

    def _word(self, name: str) -> str:
        if name not in self._given:
            raise TypeError(
                f"the command {self._command!r} is called without an argument for {{{name}}}; "
                f"write {{{{{name}}}}} if the braces belong to it"
            )
        self._unused.pop(name, None)
        value = self._given[name]
        return as_word(
            value, f"the argument {name}", "data goes into a file: inputs={'name': data}"
        )

    def check_used(self) -> None:
        """Raise TypeError if the command has no place for an argument."""
        for name in self._unused:
            raise TypeError(
                f"the command {self._command!r} has no {{{name}}} for the argument {name}"
            )


class Places:
    """The names of the places of some texts."""

    def __init__(self) -> None:
        #: Each once, in their order.
        self.names: dict[str, None] = {}

    def note(self, text: str, *, is_line: bool = False) -> str:
        """Note the places of a text, without those that `Arguments` would refuse; return it."""
        for match in _PLACE.finditer(text):
            is_one = min(len(match[1]), len(match[3])) % 2
            if is_one and not (is_line and _is_quoted(text, match.start())):
                self.names[match[2]] = None
        return text


def is_keyword(name: str) -> bool:
    """Return whether a call can give an argument of this name as a keyword."""
    return name.isidentifier() and not keyword.iskeyword(name)


def as_word(value: object, what: str, advice: str) -> str:
    """Return a word of a command: a text, a path, or a number, also of numpy."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (str, Real)):
        return str(value)
    raise TypeError(
        f"{what} of a command is a text, a number or a path, not {type(value).__name__}; {advice}"
    )


def _is_quoted(line: str, place: int) -> bool:
    """Return whether a place of a line for the shell is inside quotes."""
    quote = ""
    i = 0
    while i < place:
        char = line[i]
        if char == "\\" and quote != "'":
            i += 1  # the next one is taken as it is
        elif not quote and char in "'\"":
            quote = char
        elif char == quote:
            quote = ""
        i += 1
    return bool(quote)
