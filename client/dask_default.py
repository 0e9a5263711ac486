"""The scheduler that `x.compute()` uses: dask's configuration names the current client while there
is one that blocks.

dask is never imported here. If it is loaded already, its configuration is changed at once, else
right after its module `dask.config` was imported. The configuration belongs to the whole process,
clients belong to threads as well (`as_current`), and other code may change the configuration in
between. So the value put there is no client but `_CurrentClient`, which looks for the client each
time when dask looks the scheduler up; where there is none, as in a worker's task, it stands for
the value that was configured before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..protocol.errors import ClientClosed

if TYPE_CHECKING:
    from .client import Client

_CONFIG = "dask.config"
_SHUFFLE = "dataframe.shuffle.method"
#: A string object of its own, recognised by identity: a user may have set "tasks" as well.
_TASKS = "".join(["ta", "sks"])

#: Reentrant: a destructor that runs meanwhile may close a client.
_lock = threading.RLock()
#: The open clients, in the order in which they were registered; changed under the lock.
_entries: list[_OpenClient] = []


class _OpenClient:
    """A client that is open and the default, or the current one of some thread."""

    __slots__ = ("before", "client", "is_default", "pid", "undo")

    def __init__(self, client: Client, is_default: bool) -> None:
        self.client = weakref.ref(client)
        self.is_default = is_default
        self.pid = os.getpid()
        #: Undoes the change of dask's configuration for this client; None if there was none.
        self.undo: list[Any] | None = None
        #: The scheduler that was configured before.
        self.before: Any = None


class _CurrentClient:
    """The value of dask's `scheduler` setting.

    dask treats any object as a client whose class has "Client" in its name and which has a `get`;
    and a false object as none.
    """

    def __bool__(self) -> bool:
        return _find_client() is not None or bool(_configured_before())

    @property
    def asynchronous(self) -> bool:
        client = _find_client()
        return client is not None and client.asynchronous

    @property
    def get(self) -> Callable[..., Any]:
        client = _find_client()
        if client is not None:
            return client.get  # bound: dask looks for `persist` on its owner
        before = _configured_before()
        if not before:
            raise ClientClosed()  # since dask asked whether there is one
        found: Callable[..., Any] = sys.modules["dask.base"].get_scheduler(scheduler=before)
        return found

    def __repr__(self) -> str:
        return f"<the current weft.Client: {_find_client()!r}>"

    def __reduce__(self) -> str:
        return "_current_client"


_current_client = _CurrentClient()


def register(client: Client, *, is_default: bool) -> None:
    """Let dask use a client: in all threads, or only where `as_current` names it."""
    module = _loaded_config()
    with _lock:
        entry = _OpenClient(client, is_default)
        _entries.append(entry)
        if module is not None:
            _configure(module, entry)
        elif _hook not in sys.meta_path:
            sys.meta_path.insert(0, _hook)


def give_back(client: Client, *, is_default: bool) -> None:
    """Undo one `register`; does nothing if there was none."""
    with _lock:
        for entry in reversed(_entries):
            if entry.client() is client and entry.is_default == is_default:
                _remove(entry)
                break
        for entry in [entry for entry in _entries if entry.client() is None]:
            _remove(entry)
        if not _entries and _hook in sys.meta_path:
            sys.meta_path.remove(_hook)


def _remove(entry: _OpenClient) -> None:
    at = _entries.index(entry)
    del _entries[at]
    if entry.undo is None:
        return
    later = _entries[at] if at < len(_entries) else None
    if later is None:
        for undo in reversed(entry.undo):
            undo()
    elif later.undo is None:  # nothing was configured in between
        later.undo, later.before = entry.undo, entry.before


def _find_client() -> Client | None:
    """Return the client that is to compute dask's collections in the calling thread."""
    from .shell.current import named_current

    entries = _entries.copy()
    # A forked child cannot use the clients of its parent.
    if not entries or entries[-1].pid != os.getpid() or _is_in_task():
        return None
    client = named_current()
    if client is not None:
        return client
    for entry in reversed(entries):
        client = entry.client()
        if entry.is_default and client is not None:
            return client
    return None


def _is_in_task() -> bool:
    """Return whether a task runs on this thread; it would wait for itself."""
    context = sys.modules.get(f"{__name__.partition('.')[0]}.worker.context")
    return context is not None and context.is_in_task()


def _configured_before() -> Any:
    for entry in reversed(_entries.copy()):
        if entry.undo is not None:
            return entry.before
    return None


# --- dask's configuration -------------------------------------------------------------------------


def _loaded_config() -> ModuleType | None:
    module = sys.modules.get(_CONFIG)
    if module is None:
        return None
    if getattr(module.__spec__, "_initializing", False):
        # Another thread is importing it: this waits for that. In the same thread it does not wait.
        module = import_module(_CONFIG)
    return module if hasattr(module, "refresh") else None


def _configure(module: Any, entry: _OpenClient) -> None:
    before = module.get("scheduler", None)
    if before is _current_client:
        return
    entry.before = before
    entry.undo = [_set(module, "scheduler", _current_client)]
    # dask's other choice without dask.distributed is the disk of one machine.
    if module.get(_SHUFFLE, None) is None:
        entry.undo.append(_set(module, _SHUFFLE, _TASKS))


def _set(module: Any, name: str, value: object) -> Callable[[], None]:
    change = module.set({name: value})

    def undo() -> None:
        if module.get(name, None) is value:  # otherwise the user has changed it since then
            change.__exit__(None, None, None)

    return undo


class _Hook:
    """A finder on `sys.meta_path`, while there are clients, that waits for dask.config's import."""

    def __init__(self) -> None:
        self._is_asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _CONFIG or self._is_asking:
            return None
        self._is_asking = True  # a finder may call all others, as this one does
        try:
            for finder in sys.meta_path.copy():
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if find is None else find(name, path, target)
                if spec is not None:
                    _call_after(spec.loader, self._on_imported)
                    return spec
        finally:
            self._is_asking = False
        return None

    def _on_imported(self, module: ModuleType) -> None:
        with _lock:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            if _entries:
                _configure(module, _entries[0])


_hook = _Hook()


def _call_after(loader: Any, call: Callable[[ModuleType], None]) -> None:
    """Have `call(module)` made after this loader has executed `dask.config`."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def execute_and_call(module: ModuleType) -> None:
        execute(module)
        if module.__name__ == _CONFIG:  # some loaders serve many modules
            del loader.exec_module
            call(module)

    # On the object, because tools look at its class. A loader that takes no attributes is left
    # alone; then the next client that opens is the first that dask uses.
    with contextlib.suppress(AttributeError, TypeError):
        loader.exec_module = execute_and_call
