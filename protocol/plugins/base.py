"""The base class of plugins, and the checks of what a user registers."""

from __future__ import annotations

from typing import Any

__all__ = ["WorkerPlugin"]


class WorkerPlugin:
    """Code that each worker runs before its tasks: a subclass has `setup`, `teardown` or both.

    `client.register_plugin(plugin)` pickles it and sends it to all workers, present and future
    ones. Both methods run in the worker's process, in a thread beside those of the tasks; each may
    be a coroutine function. What `setup` keeps in attributes, tasks find in
    `weft.get_worker().plugins[name]`.

    Attributes:
        name: identifies the plugin; without it a name is made from the class.
    """

    name: str

    def setup(self, worker: Any) -> Any:
        """Prepare a worker, which `weft.get_worker()` returns as well.

        An exception at the registration is raised by `register_plugin`. A later worker ends with
        it, and is started again by its supervisor.
        """

    def teardown(self, worker: Any) -> Any:
        """Undo it: when the plugin is unregistered or replaced, or the worker ends in order."""
