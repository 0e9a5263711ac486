"""Calls a function right after a module was imported, without importing it.

    after_import("dask.config", configure)

If the module is loaded already, the function is called at once. The finder that does this is on
`sys.meta_path` only while there is something to wait for.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .forks import after_fork

#: {module: functions to be called with it}; changed under the lock.
_waiting: dict[str, dict[Callable[[ModuleType], object], None]] = {}
#: Reentrant: a destructor that runs meanwhile may come here.
_lock = threading.RLock()


@after_fork
def _renew_lock() -> None:
    """Take another lock in a forked child: the thread that holds this one may not be there."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


def after_import(name: str, call: Callable[[ModuleType], object]) -> None:
    """Call `call(module)` once, when the module of this name is loaded, in the importing thread.

    A second time with the same function while it waits changes nothing. No lock may be held that
    `call` takes: this may wait until another thread has imported the module.
    """
    module = loaded_module(name)
    if module is not None:
        call(module)
        return
    with _lock:
        _waiting.setdefault(name, {})[call] = None
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)


def forget(name: str, call: Callable[[ModuleType], object]) -> None:
    """Undo `after_import`, unless the function was called."""
    with _lock:
        _waiting.get(name, {}).pop(call, None)
        _remove_finder()


def loaded_module(name: str) -> ModuleType | None:
    """Return a module if it is loaded; if another thread is importing it, wait for that."""
    module = sys.modules.get(name)
    if module is None or not _is_initializing(module):
        return module
    module = import_module(name)  # which does not wait in the thread that is importing it
    return None if _is_initializing(module) else module


def _is_initializing(module: ModuleType) -> bool:
    return getattr(module.__spec__, "_initializing", False) is True


def _remove_finder() -> None:
    for name in [name for name, calls in _waiting.items() if not calls]:
        del _waiting[name]
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Asking(threading.local):
    """Whether the finder is asking the others, on this thread."""

    is_asking = False


class _Finder:
    """A finder on `sys.meta_path` that lets the others find, and adds calls to what they find."""

    def __init__(self) -> None:
        self._here = _Asking()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting or self._here.is_asking:
            return None
        self._here.is_asking = True  # a finder may call all others, as this one does
        try:
            for finder in sys.meta_path.copy():
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if find is None else find(name, path, target)
                if spec is not None:
                    _call_after(spec.loader, name, _on_imported)
                    return spec
        finally:
            self._here.is_asking = False
        return None


_finder = _Finder()


def _on_imported(module: ModuleType) -> None:
    with _lock:
        calls = _waiting.pop(module.__name__, {})
        _remove_finder()
    for call in calls:
        call(module)


def _call_after(loader: Any, name: str, call: Callable[[ModuleType], None]) -> None:
    """Have `call(module)` made after this loader has executed the module of this name."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def execute_and_call(module: ModuleType) -> None:
        execute(module)
        if module.__name__ == name:  # some loaders serve many modules
            del loader.exec_module
            call(module)

    # On the object, because tools look at its class. A loader that takes no attributes is left
    # alone; then the calls are not made.
    with contextlib.suppress(AttributeError, TypeError):
        loader.exec_module = execute_and_call
