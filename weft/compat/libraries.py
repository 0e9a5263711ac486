"""Libraries that use more of dask.distributed than its names: joblib and coffea."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..client import Client, futures_of, progress
from .choosing import is_weft_here
from .patching import Patches


def offer_to_joblib(patches: Patches, module: ModuleType) -> None:
    """Let `joblib.parallel_config("dask")` be the backend of weft where a weft client is current.

    That of dask.distributed runs in the event loop of its clients, and reads their inner parts.
    """
    backends: dict[str, Any] = module.BACKENDS
    found = backends.get("dask")

    def backend(**options: Any) -> Any:
        from .distributed import is_installed

        client = options.get("client")
        is_for_weft = isinstance(client, Client) if client is not None else is_weft_here()
        if is_installed() and is_for_weft and not options.get("scheduler_host"):
            from ..joblib import WeftBackend

            # Large arguments are sent once in any case, and a batch waits for a worker.
            for name in ("scatter", "wait_for_workers_timeout", "loop", "scheduler_host"):
                options.pop(name, None)
            return WeftBackend(**options)
        if found is not None:
            return found(**options)
        from joblib._dask import DaskDistributedBackend

        return DaskDistributedBackend(**options)

    patches.replace_item(backends, "dask", backend)


def show_progress_of_coffea(patches: Patches, module: ModuleType) -> None:
    """Show the progress of futures of weft as `weft.progress` does: coffea asks the scheduler."""
    original: Any = module.progress

    def shown(*futures: Any, **options: Any) -> Any:
        found = futures_of(futures)
        return progress(*found) if found else original(*futures, **options)

    patches.set(module, "progress", shown)
