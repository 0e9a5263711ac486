"""The work of `Client.register_plugin` and of what is built on it."""

from __future__ import annotations

import hashlib
import inspect
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from ..shell.engine import Engine
from .plugin_waits import order
from .restarting import wait_for_successors

if TYPE_CHECKING:
    from pathlib import Path

_MAX_NAME: Final = 500
_THREADS: Final = (
    "the workers are threads of this program (processes=False), or were started without a "
    "supervisor, so there is none that could {}. Use worker processes, or a weft.WorkerPlugin"
)


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
