"""The client package, which a process of a worker imports when a task first needs it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ...protocol.host.after_import import after_import
from ...protocol.values.actors import HandleCalls, set_handle_calls
from ...protocol.values.serialize import set_future_binder


def offer_client() -> None:
    """Let tasks use the futures and actors of pickled data, and compute dask's collections."""
    set_future_binder(_bind_future)
    set_handle_calls(_handle_calls)
    after_import("dask.config", _serve_dask)


def _bind_future(key: str) -> Any:
    """Make a future of the tasks' client, which is opened by this if no task has asked for it."""
    from ...client.shell.current import bind_future

    return bind_future(key)


def _handle_calls() -> HandleCalls:
    from ...client.actors import CALLS

    return CALLS


def _serve_dask(config: ModuleType) -> None:
    from ...client.dask.default import serve_tasks

    serve_tasks(config)
