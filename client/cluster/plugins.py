"""The methods of `Client` that run code of the user beside the tasks: plugins and uploads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...protocol.durations import seconds_or_none
from ..modes import waits

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ..client import Client


@waits
def register_plugin(
    client: Client[Any],
    plugin: object,
    name: str | None = None,
    idempotent: bool | None = None,
    *,
    timeout: Duration | None = None,
) -> dict[str, dict[str, str]]:
    """Set a plugin up on all workers, or once on each machine: now, and where others join.

    A worker that joins later gets no task before it has set it up. The workers that are there
    go on with their tasks meanwhile; when this returns, all of them have set it up. A plugin
    replaces another one of its name, which is torn down first; the same one again changes
    nothing. It stays when this client is closed.

    A `weft.SupervisorPlugin` is set up by the supervisors of the workers, so that a later one
    starts its workers after it. If its `restart` is true, the workers that run are replaced, as
    by `restart_workers`, when all supervisors have set it up.

    Args:
        plugin: an object of a subclass of `weft.WorkerPlugin` or `weft.SupervisorPlugin`.
        name: by which `unregister_plugin` ends it; None = `plugin.name`, or else one that is
            made from the class.
        idempotent: if a plugin of this name is registered already, keep that and ignore this
            one; None = `plugin.idempotent`, or else False.
        timeout: time to wait for the set-up; None = without limit. A warning names those that
            are late, after 5 s and again later.

    Returns:
        ``{address: {"status": "OK"}}`` of the workers, or ``{id: ...}`` of the supervisors.

    Raises:
        NotSupported: it is a plugin for the scheduler, or for supervisors, and there are none
            (`processes=False`).
        TimeoutError: it was not set up everywhere within `timeout`: the text names those that
            are late, and it goes on there. Or it is set up, and workers that it replaces have
            not joined again within `timeout` (None: that of this client).
        SerializationError: it cannot be pickled.
        QuestionFailed: it is too large, or there are too many.
        NotPermitted: the client's token is of a lower role than client.
        PluginFailed: the process of a worker has ended during the set-up (by a crash of a C
            extension, `os._exit`, the memory limit); the plugin is not kept.
        Exception: what its set-up raised on one of them; the plugin is not kept then, and is
            torn down where it was set up.
    """
    from .registering import prepare, register

    prepared = prepare(plugin, name, idempotent)
    timeout_s = seconds_or_none(timeout, "timeout")
    return client._run(register(client._running(), prepared, timeout_s, client._timeout_s))


@waits
def register_worker_plugin(
    client: Client[Any], plugin: object, name: str | None = None, nanny: bool | None = None
) -> dict[str, dict[str, str]]:
    """Do what `register_plugin` does.

    Args:
        plugin: see `register_plugin`.
        name: see `register_plugin`.
        nanny: accepted for compatibility with dask; the class of the plugin says where it runs.
    """
    return client.register_plugin(  # type: ignore[no-any-return]
        plugin, name
    )


def register_scheduler_plugin(client: Client[Any], *_args: Any, **_options: Any) -> NoReturn:
    """Refuse: the scheduler runs no code of users.

    Raises:
        NotSupported: always; the text says what to use.
    """
    from .registering import refuse_scheduler_plugin

    raise refuse_scheduler_plugin()


@waits
def unregister_plugin(client: Client[Any], name: str, *, timeout: Duration | None = None) -> None:
    """Tear a plugin down wherever it was set up, and send it to no other process.

    A set-up that goes on has 3 s to return. After that it is interrupted, and not waited for.
    Variables that a `weft.SupervisorPlugin` has set stay in the workers that run.

    Args:
        name: as it was registered.
        timeout: time to wait for the teardown; None = without limit. A warning names those
            that are late, after 5 s and again later.

    Raises:
        TimeoutError: it was not torn down everywhere in time; it goes on there.
        QuestionFailed: there is none of this name.
        Exception: what its teardown raised on one of them; it is unregistered all the same.
    """
    from .registering import check_name, unregister

    name = check_name(name)
    timeout_s = seconds_or_none(timeout, "timeout")
    return client._run(unregister(client._running(), name, timeout_s))


@waits
def unregister_worker_plugin(client: Client[Any], name: str, nanny: bool | None = None) -> None:
    """Do what `unregister_plugin` does.

    Args:
        name: as it was registered.
        nanny: accepted for compatibility with dask; a name is that of one plugin, of workers or
            supervisors.
    """
    return client.unregister_plugin(name)  # type: ignore[no-any-return]


@waits
def register_worker_callbacks(
    client: Client[Any], setup: Callable[..., Any]
) -> dict[str, dict[str, str]]:
    """Call a function once on each worker, present and future ones.

    It is registered as a plugin, `callback-` and its name; a function of the same name replaces
    it.

    Args:
        setup: the function; a parameter `worker` or `dask_worker` gets the worker.
    """
    from .registering import Callback

    if not callable(setup):
        raise TypeError(f"setup= is a function, not {type(setup).__name__}")
    return client.register_plugin(  # type: ignore[no-any-return]
        Callback(setup)
    )


@waits
def upload_file(
    client: Client[Any],
    filename: str | os.PathLike[str],
    load: bool = True,
    *,
    timeout: Duration | None = None,
) -> dict[str, dict[str, str]]:
    """Bring a file or a directory to all workers, also to later ones and on other machines.

    A module (`helpers.py`), a package (its directory, or a .zip, .whl or .egg file), or a
    directory with modules can be imported by tasks afterwards; so functions of a module beside
    your script run on workers that do not have it. When it is uploaded again, the workers
    import it anew. Another file is in `weft.get_worker().local_directory`. It is registered as
    a plugin, `upload-` and its name.

    Args:
        filename: the path here.
        load: import a module at once, so that an error in it is raised here.
        timeout: see `register_plugin`.

    Raises:
        OSError: it cannot be read.
        Exception: see `register_plugin`.
    """
    from pathlib import Path

    from .registering import upload_of

    return client.register_plugin(  # type: ignore[no-any-return]
        upload_of(Path(filename).resolve(), load), timeout=timeout
    )
