"""Changes attributes of modules and classes, and takes all of it back exactly."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

from ..protocol.host.forks import after_fork

_ABSENT: Final = object()
_lock = threading.RLock()


@after_fork
def _renew_lock() -> None:
    """Take another lock in a forked child: the thread that holds this one may not be there."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


def alone() -> threading.RLock:
    """Return the lock that who changes names of other packages holds."""
    return _lock


class Patches:
    """Attributes that were changed, in the order of the changes."""

    def __init__(self) -> None:
        self._changed: list[tuple[Any, str, Any]] = []
        #: {id of an original: (the original, what stands for it)}.
        self._in_place: dict[int, tuple[Any, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._changed)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Change an attribute of a module or class."""
        self._changed.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def add_base(self, cls: Any, base: type) -> None:
        """Give a class one more base, behind its first one."""
        first, *others = cls.__bases__
        self._changed.append((cls, "__bases__", cls.__bases__))
        cls.__bases__ = (first, base, *others)

    def replace(self, owner: Any, name: str, original: Any, value: Any) -> None:
        """Change an attribute, and note that `value` stands for `original` from now on."""
        self.set(owner, name, value)
        self._in_place[id(original)] = original, value

    def replace_item(self, mapping: dict[str, Any], name: str, value: Any) -> None:
        """Change an entry of a dictionary."""
        self._changed.append((mapping, name, mapping.get(name, _ABSENT)))
        mapping[name] = value

    def replace_imported(self, but_in: str = "") -> None:
        """Put what stands for an original where other modules have imported it.

        Args:
            but_in: a package, whose modules are left alone.
        """
        _replace_everywhere(self._in_place, but_in)

    def undo(self) -> None:
        """Take all changes back, the last one first, and what was imported meanwhile."""
        for owner, name, before in reversed(self._changed):
            if isinstance(owner, dict):
                if before is _ABSENT:
                    owner.pop(name, None)
                else:
                    owner[name] = before
            elif before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        back = {id(value): (value, original) for original, value in self._in_place.values()}
        _replace_everywhere(back)
        self._changed.clear()
        self._in_place.clear()


def _replace_everywhere(others: dict[int, tuple[Any, Any]], but_in: str = "") -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == but_in or type(getattr(module, "__dict__", None)) is not dict:
            continue
        # Copied: another thread may import. Only the dictionary is read: a module may compute
        # attributes when they are asked for.
        for attribute, value in list(module.__dict__.items()):
            found = others.get(id(value))
            if found is not None and found[0] is value:
                module.__dict__[attribute] = found[1]
