"""Advice about objects that cannot be pickled, by the names of their types."""

from __future__ import annotations

from typing import Final

_FILE: Final = "an open file is of one process: pass its path, and open it in the task"
_LOCK: Final = (
    "a lock is of one process: make it in the task, leave it out in __getstate__ of its class, or "
    "use a weft.Lock, which is for the whole cluster"
)
_CONNECTION: Final = (
    "a connection is of one process: pass its address, and connect in the task, or once per "
    "worker in a weft.WorkerPlugin"
)
_REMEDIES: Final = {
    "generator": "a generator is of one process: make it a list, or call its function in the task",
    "async_generator": "a generator is of one process: make it a list",
    "coroutine": "a coroutine is of one process: submit its function, with the arguments",
    "_thread.lock": _LOCK,
    "_thread.RLock": _LOCK,
    "_io.TextIOWrapper": _FILE,
    "_io.BufferedReader": _FILE,
    "_io.BufferedWriter": _FILE,
    "_io.BufferedRandom": _FILE,
    "_io.FileIO": _FILE,
    "socket.socket": _CONNECTION,
    "ssl.SSLSocket": _CONNECTION,
    "sqlite3.Connection": _CONNECTION,
    "_thread._local": "data of threads is of one process: leave it out in __getstate__",
}


def with_remedy(text: str, type_name: str) -> str:
    """Return the text of an error about an object of this type, with what to do if it is known."""
    remedy = _REMEDIES.get(type_name)
    return f"{text}; {remedy}" if remedy else text
