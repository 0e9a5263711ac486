"""The seam between a kernel and its features: what all of them declare, as one declaration.

Scheduler, worker and client have a dataclass of declarations each. Its fields are what a feature
may have: rows in a tuple or set, a table, or what only one feature has: that is None by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Declaration = TypeVar("_Declaration", bound="DataclassInstance")


def joined(kernel: _Declaration, features: Sequence[_Declaration]) -> _Declaration:
    """Return one declaration that has what these declare, in their order.

    Raises:
        ValueError: two declare the same row, or key of a table: one would hide the other.
    """
    parts = [part for part in fields(kernel) if part.name != "name"]
    return replace(kernel, **{part.name: _join(part, [kernel, *features]) for part in parts})


def _join(part: Field[Any], declarations: Sequence[Any]) -> Any:
    owners: dict[object, str] = {}
    values: dict[object, Any] = {}
    for declaration in declarations:
        rows = getattr(declaration, part.name)
        if part.default is None:
            rows = {} if rows is None else {part.name: rows}
        for row in rows:
            if row in owners:
                names = f"{owners[row]!r} and {declaration.name!r}"
                raise ValueError(f"{names} both declare {row!r} in `{part.name}`")
            owners[row] = declaration.name
            values[row] = rows[row] if isinstance(rows, Mapping) else None
    if part.default is None:
        return values.get(part.name)
    kind = type(getattr(declarations[0], part.name))
    return values if issubclass(kind, Mapping) else kind(values)
