"""The base classes of plugins: code of users that workers, or their supervisors, run."""

from __future__ import annotations

from typing import Any


class WorkerPlugin:
    """Code that each worker runs before its tasks: a subclass has `setup`, `teardown` or both.

    `client.register_plugin(plugin)` pickles it and sends it to all workers, present and future
    ones. Both methods run in the worker's process, in a thread beside those of the tasks; each may
    be a coroutine function. What `setup` keeps in attributes, tasks find in
    `weft.get_worker().plugins[name]`.

    Attributes:
        name: identifies the plugin; without it a name is made from the class.
        idempotent: if a plugin of this name is registered, that stays, and this one is ignored.
    """

    name: str
    idempotent: bool = False

    def setup(self, worker: Any) -> object:
        """Prepare a worker, which `weft.get_worker()` returns as well.

        An exception at the registration is raised by `register_plugin`. A later worker ends with
        it, and is started again by its supervisor.
        """

    def teardown(self, worker: Any) -> object:
        """Undo it: when the plugin is unregistered or replaced, or the worker ends in order."""


class SupervisorPlugin:
    """Code that runs once on each machine, for all workers of one supervisor.

    `client.register_plugin(plugin)` pickles it and sends it to all supervisors (the processes of
    `weft worker` and `LocalCluster` that start the workers), present and future ones. Both methods
    run in one process beside the supervisor, which ends with it; each may be a coroutine function.
    A later supervisor starts its workers when it has set the plugin up. Processes that `setup`
    starts end with the family of workers at the latest.

    Attributes:
        name: identifies the plugin; without it a name is made from the class.
        idempotent: if a plugin of this name is registered, that stays, and this one is ignored.
        restart: replace the workers that run when the plugin has been set up on all machines.
    """

    name: str
    idempotent: bool = False
    restart: bool = False

    def setup(self, supervisor: Any) -> object:
        """Prepare a machine.

        An exception at the registration is raised by `register_plugin`. A later supervisor ends
        with it, and its workers too.

        Args:
            supervisor: has the attributes `env` (a dict of variables with which workers are started
                from now on), `supervisor_id`, `host`, `local_directory` (a folder that is removed
                with the workers) and `plugins`.
        """

    def teardown(self, supervisor: Any) -> object:
        """Undo it: when the plugin is unregistered or replaced, or the workers end in order."""
