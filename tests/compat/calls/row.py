"""One call of another library: code that is run with it, and with weft.

The code of a row is that of a script, which has the names of its library's `preamble_of`, and those
of the section that it stands in. It works if it runs, and its last expression is true.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, NamedTuple

#: In the place of weft's own words: it has no counterpart, and the page says why.
NOTHING: Final = "nothing"


class Call(NamedTuple):
    """A row of the table.

    Attributes:
        name: the call as users write it; several rows of one call differ in what follows it.
        code: what is run.
        own: the code for weft, where its words differ.
        says: these words, as the page shows them; "" = `own` itself.
    """

    name: str
    code: str
    own: str = ""
    says: str = ""

    def code_for(self, side: str) -> str:
        """Return what is run with the library of this name."""
        return textwrap.dedent(self.own if self.own and side == "weft" else self.code).strip()


class Library(NamedTuple):
    """A library whose calls are run with it and with weft.

    Attributes:
        name: of its module and of its distribution.
        page: the file in docs that has the table.
        sections: {heading: rows}.
        preamble_of: gives the script that is run once, for a side.
        opened: starts the cluster of a section, for a side, the heading and the names of that
            script; yields more names.
        needs: {heading: modules without which its rows are not run with the library}.
    """

    name: str
    page: str
    sections: dict[str, list[Call]]
    preamble_of: Callable[[str], str]
    opened: Callable[[str, str, dict[str, Any]], AbstractContextManager[dict[str, Any]]]
    needs: Mapping[str, list[str]] = MappingProxyType({})

    @property
    def calls(self) -> list[Call]:
        """All rows."""
        return [call for rows in self.sections.values() for call in rows]


class Outcome(NamedTuple):
    """How a row has ended: `works`, `refused` by name with a reason, `nothing`, or `fails`."""

    kind: str
    text: str = ""


def evaluated(code: str, name: str, names: dict[str, Any]) -> Any:
    """Run a script; return the value of its last expression, None without one."""
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return last and eval(compile(ast.Expression(last.value), name, "eval"), names)


def outcome_of(call: Call, side: str, names: dict[str, Any]) -> Outcome:
    """Run a row with the library of this name, among names that stay as they are."""
    if side == "weft" and call.own == NOTHING:
        return Outcome(NOTHING, call.says)
    try:
        value = evaluated(call.code_for(side), f"<{call.name}>", dict(names))
    except Exception as error:
        # Where a library is installed tells nothing of it.
        text = re.sub(r" \(/\S+\)$", "", f"{error}".strip().partition("\n")[0])
        if side == "weft" and _is_refusal(error, text):
            return Outcome("refused", text)
        return Outcome("fails", f"{type(error).__name__}: {text}")
    finally:
        names["release"]()
    return Outcome("works") if value else Outcome("fails", f"gave {value!r}")


#: What errors of weft say about names that it does not have, before the reason or the advice.
_NO_NAME: Final = re.compile(
    r" has no .*[:;] (?!neither )|= is not (supported by|an option of) weft|leave \w+=.* out"
)


def _is_refusal(error: Exception, text: str) -> bool:
    """Return whether an error names what weft does not have, and says why or what to do."""
    from weft.protocol.errors import NotSupported

    is_named = isinstance(error, (AttributeError, TypeError)) and _NO_NAME.search(text)
    return isinstance(error, NotSupported) or bool(is_named)
