"""The client library: futures, for blocking and ``async`` callers alike.

The names are loaded at first use, so that a program that imports only the core (the simulator) gets
no sockets. No module here may have one of these names, because importing it would replace the name.
"""

from __future__ import annotations

# From the checkout root, `import client` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.client":
    raise ImportError(f"import weft.client, not {__name__}")

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client
    from .completing import as_completed
    from .display.progress import progress
    from .executor import Executor
    from .future import Future
    from .in_tasks import get_client, worker_client
    from .results.future_arguments import futures_of
    from .shell.current import default_client
    from .waiting import wait

__all__ = [
    "Client",
    "Executor",
    "Future",
    "as_completed",
    "default_client",
    "futures_of",
    "get_client",
    "progress",
    "wait",
    "worker_client",
]

#: {public name: module here that defines it}. The same names as under TYPE_CHECKING.
_HOMES = {
    "Client": "client",
    "Executor": "executor",
    "Future": "future",
    "as_completed": "completing",
    "default_client": "shell.current",
    "futures_of": "results.future_arguments",
    "get_client": "in_tasks",
    "worker_client": "in_tasks",
    "progress": "display.progress",
    "wait": "waiting",
}

if not TYPE_CHECKING:  # a checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value  # the next access does not come here
        return value
