"""The methods of `Client` that run code of the user beside the tasks: plugins and uploads."""

from __future__ import annotations

import hashlib
import inspect
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import NotSupported, PluginFailed, QuestionFailed
from ...protocol.plugins.base import SupervisorPlugin, WorkerPlugin
from ...protocol.plugins.environment import Environ, InstallPlugin
from ...protocol.plugins.uploads import UploadDirectory, UploadFile
from ...protocol.values.exceptions import add_note, unpack_exception
from ...protocol.values.serialize import dumps, function_name
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.failure import MAX_RELAYED_BYTES
from ...protocol.wire.payload import Payload, blob_nbytes
from ...protocol.wording import sized
from ..insight.cluster_info import describe_workers
from ..modes import waits
from ..shell.engine import Engine
from .plugin_waits import order
from .restarting import wait_for_successors

if TYPE_CHECKING:
    from ..client import Client

_MAX_NAME: Final = 500
_THREADS: Final = (
    "the workers are threads of this program (processes=False), or were started without a "
    "supervisor, so there is none that could {}. Use worker processes, or a weft.WorkerPlugin"
)


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

    Example:
        >>> class Model(weft.WorkerPlugin):
        ...     def setup(self, worker):
        ...         worker.model = {"weight": 2}        # loaded once per worker
        >>> answers = client.register_plugin(Model(), name="model")
        >>> def predict(x):
        ...     return weft.get_worker().model["weight"] * x
        >>> client.gather(client.map(predict, [1, 2]))
        [2, 4]
    """
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

    Example:
        >>> import pathlib
        >>> pathlib.Path("helpers.py").write_text("def twice(x): return 2 * x")
        26
        >>> answers = client.upload_file("helpers.py")
        >>> def call(x):
        ...     import helpers
        ...     return helpers.twice(x)
        >>> client.submit(call, 21).result()
        42
    """
    return client.register_plugin(upload_of(Path(filename).resolve(), load), timeout=timeout)  # type: ignore[no-any-return]


# --- Their work -----------------------------------------------------------------------------------


class Registration(NamedTuple):
    """A plugin as it is registered."""

    name: str
    blob: Any
    is_for_supervisors: bool
    #: workers that run are replaced
    renews: bool
    #: it changes nothing if there is one of its name
    idempotent: bool


def check_plugin(plugin: object, name: str | None) -> str:
    """Return the name under which a plugin is registered.

    Raises:
        TypeError, ValueError, NotSupported: it is no plugin of workers, or the name is none.
    """
    if isinstance(plugin, type):
        raise TypeError(
            f"register_plugin takes a plugin, not the class {plugin.__name__}: pass "
            f"{plugin.__name__}()"
        )
    kinds = [cls.__name__ for cls in type(plugin).__mro__]
    if "SchedulerPlugin" in kinds:
        raise refuse_scheduler_plugin()
    if not is_for_supervisors(plugin) and "WorkerPlugin" not in kinds:
        raise TypeError(
            "register_plugin takes an object of a subclass of weft.WorkerPlugin or "
            f"weft.SupervisorPlugin, not {type(plugin).__name__}"
        )
    for method in ("setup", "teardown"):
        if not callable(getattr(plugin, method, print)):
            raise TypeError(f"{method} of {type(plugin).__name__} is no method")
    own = getattr(type(plugin), "transition", None)
    if own is not None and not _is_of_dask(own):
        raise NotSupported(
            f"{type(plugin).__name__} has a method transition, and weft calls none: code of users "
            "between two tasks would cost each of them time. client.story(key) shows what happened "
            "to a task; remove the method"
        )
    if name is None:
        name = getattr(plugin, "name", None) or f"{type(plugin).__name__}-{uuid.uuid4().hex[:12]}"
    return check_name(name)


def is_for_supervisors(plugin: object) -> bool:
    """Return whether supervisors set a plugin up; a `NannyPlugin` of dask is one of these."""
    kinds = [cls.__name__ for cls in type(plugin).__mro__]
    return isinstance(plugin, SupervisorPlugin) or "NannyPlugin" in kinds


def _is_of_dask(method: Any) -> bool:
    return str(getattr(method, "__module__", "")).startswith("distributed.diagnostics.plugin")


def check_name(name: object) -> str:
    """Return the name of a plugin.

    Raises:
        TypeError, ValueError: it is none.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a plugin is a text, not {type(name).__name__}")
    if not 1 <= len(name) <= _MAX_NAME:
        raise ValueError(f"the name of a plugin has 1 to {_MAX_NAME} characters, not {len(name)}")
    return name


def refuse_scheduler_plugin() -> NotSupported:
    """Return the error for plugins of the scheduler."""
    return NotSupported(
        "the scheduler runs no code of users: it never unpickles, so that a client can neither "
        "stop nor change it. client.subscribe_topic('scheduler', handler) gets its events, in any "
        "process; client.story(key), client.scheduler_info(), `weft status` and /metrics show what "
        "it does. A weft.WorkerPlugin is code in the workers"
    )


def prepare(plugin: object, name: str | None, idempotent: bool | None = None) -> Registration:
    """Return a plugin as it is registered, in the caller's thread.

    Raises:
        TypeError, ValueError, NotSupported: see `check_plugin`.
        SerializationError: it cannot be pickled.
        QuestionFailed: it is too large.
    """
    name = check_plugin(plugin, name)
    if idempotent is None:
        idempotent = bool(getattr(plugin, "idempotent", False))
    if isinstance(plugin, (Environ, InstallPlugin)):
        plugin = plugin.for_supervisors() or plugin
    blob = dumps(plugin, f"plugin {name}")
    nbytes = blob_nbytes(blob)
    if nbytes > MAX_RELAYED_BYTES:
        raise QuestionFailed(
            f"plugin {name!r} has {sized(nbytes)}, more than the limit of "
            f"{sized(MAX_RELAYED_BYTES)}: the scheduler keeps it and sends it to each worker. Let "
            "it read its data where it runs, or pass data to tasks as arguments"
        )
    by_supervisors = is_for_supervisors(plugin)
    renews = by_supervisors and bool(getattr(plugin, "restart", False))
    return Registration(name, blob, by_supervisors, renews, idempotent)


async def register(
    engine: Engine, plugin: Registration, timeout_s: float | None, renewal_s: float
) -> dict[str, dict[str, str]]:
    """See `Client.register_plugin`; workers that it replaces have `renewal_s` without a limit."""
    name, blob, by_supervisors, renews, idempotent = plugin
    workers = await describe_workers(engine) if by_supervisors else {}
    if workers and not any(worker["supervisor"] for worker in workers.values()):
        what = "replace them" if renews else "run a plugin"
        raise NotSupported(f"plugin {name!r} cannot be registered: {_THREADS.format(what)}")
    digest = hashlib.sha256(f"{name}\n".encode())
    for part in (blob.data, *blob.buffers) if isinstance(blob, Payload) else (blob,):
        digest.update(part)
    arguments: dict[str, Any] = {"name": name, "plugin": digest.hexdigest()[:32]}
    question, processes = "register_plugin", "workers"
    if by_supervisors:
        question, processes = "register_supervisor_plugin", "supervisors"
        arguments["restart"] = renews
    if idempotent:
        arguments["idempotent"] = True
    info = await order(engine, question, arguments, [blob], timeout_s)
    _raise_failures(info, name, "set up", processes)
    if processes not in info:
        raise QuestionFailed(
            f"plugin {name!r} was unregistered, or replaced, before all {processes} had set it up"
        )
    with reading("the scheduler"):
        done = {address: {"status": "OK"} for address in part_of(info, processes, list)}
        renewed = part_of(info, "renewed", list) if renews else []
    left = {a: worker for a, worker in workers.items() if worker["supervisor"] in renewed}
    await wait_for_successors(engine, left, renewal_s if timeout_s is None else timeout_s)
    return done


async def unregister(engine: Engine, name: str, timeout_s: float | None) -> None:
    """See `Client.unregister_plugin`."""
    info = await order(engine, "unregister_plugin", {"name": name}, [], timeout_s)
    _raise_failures(info, name, "torn down", "processes")


def _raise_failures(info: dict[str, Any], name: str, step: str, processes: str) -> None:
    """Raise the first exception that a plugin has raised, if there is one."""
    n_failed = info.get("n_failed")
    if not n_failed:
        return
    with reading("the scheduler"):
        failures = part_of(info, "failures", list)
        first = failures[0]["failure"] if failures else None
        where, death = (failures[0].get("died") if failures else None) or ("", "")
    if death:
        raise PluginFailed(name, f"{death}. It is not kept", f"on {where}")
    if first is None:
        raise QuestionFailed(f"plugin {name!r} could not be {step}")
    error = unpack_exception(first)
    if n_failed > 1:
        add_note(error, f"weft: plugin {name!r} could not be {step} on {n_failed} {processes}")
    raise error


class Callback(WorkerPlugin):
    """A function that each worker calls once, for `Client.register_worker_callbacks`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = f"callback-{function_name(function)}"

    def setup(self, worker: Any) -> object:
        """Call it, with the worker if it takes an argument named `dask_worker` or `worker`."""
        parameters = inspect.signature(self.function).parameters
        named = {name: worker for name in ("dask_worker", "worker") if name in parameters}
        return self.function(**named)


def upload_of(path: Path, load: bool) -> WorkerPlugin:
    """Return the plugin that brings a file or a directory to workers.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_dir():
        return UploadFile(path, load)
    return UploadDirectory(path, update_path=not (path / "__init__.py").exists())
