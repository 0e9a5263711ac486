"""The plugins of one worker: set up and torn down one after the other, on a thread of their own.

A part of the shell. Neither the event loop nor a slot waits for a plugin. The answer leaves on the
connection on which the request came, or not at all: the scheduler asks again in the next session.

A set-up that goes on for `PATIENCE_S` after its plugin was ended may never return. It is
interrupted, and left to its thread, which may be in C code; other plugins get another thread. The
process is not ended for it, because that would cost tasks and results of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias

from ...protocol.errors import ConfigError, LocalProtocolError, PluginFailed
from ...protocol.net.connection import Connection
from ...protocol.values.serialize import loads
from ...protocol.wire.messages import PluginDone, SetUpPlugin, TearDownPlugin
from ..context import set_worker
from ..slots.executor import TaskExecutor
from ..slots.interrupting import TaskInterrupted, interrupt_code
from .calling_plugins import call, packed

logger = logging.getLogger("weft.worker")

#: A set-up whose plugin is ended meanwhile has this long to return, seconds.
PATIENCE_S: Final = 3.0

_Job: TypeAlias = "tuple[Connection, SetUpPlugin | TearDownPlugin]"


@dataclass(slots=True, eq=False)
class _SetUp:
    """A set-up that goes on."""

    plugin: str
    name: str
    thread: int
    #: nobody waits for it any more: another thread does what comes next
    is_left: bool = False


class WorkerPlugins:
    """The plugins of a worker. `on_message` and `close` are for the loop's thread."""

    def __init__(self, executor: TaskExecutor, end: Callable[[str], object]) -> None:
        """Prepare; `end` is called on the loop's thread with the reason why the worker must end."""
        self._executor = executor
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        #: The one that does the jobs; threads that were left are not it.
        self._thread: threading.Thread | None = None
        self._setting_up: _SetUp | None = None
        #: {id: (name, plugin)} of those that are set up, in order; for the thread
        self._ready: dict[str, tuple[str, Any]] = {}
        self._is_closed = False
        #: Why the worker ends: it must not work without a plugin that has failed.
        self.failure: PluginFailed | None = None

    def on_message(self, connection: Connection, message: SetUpPlugin | TearDownPlugin) -> None:
        """Do what the scheduler asks, after what it has asked before."""
        with self._lock:
            self._jobs.append((connection, message))
            current = self._setting_up
        if isinstance(message, TearDownPlugin) and current and current.plugin == message.plugin:
            self._loop.call_later(PATIENCE_S, self._leave, current)
        self._start()

    def _leave(self, current: _SetUp) -> None:
        """Wait no longer for a set-up that has not returned although its plugin was ended."""
        with self._lock:
            if self._setting_up is not current or self._is_closed:
                return
            current.is_left = True
            self._setting_up = self._thread = None
            # Under the lock: afterwards the thread takes it, and finds that it was left.
            interrupt_code(current.thread)
        logger.warning(
            "the set-up of plugin %r on worker %s did not return within %g s after the plugin was "
            "unregistered: it was interrupted, and is not waited for. If it goes on all the same, "
            "client.restart_workers() ends it",
            current.name,
            self._executor.context.name,
            PATIENCE_S,
        )
        self._start()

    async def begin_with(self, modules: Sequence[ModuleType]) -> None:
        """Call the functions `weft_setup` of preloaded modules, before the first session.

        Raises:
            ConfigError: one has failed; a new start would fail in the same way.
        """
        preloads = [preload for preload in map(Preload, modules) if preload.has_functions]
        if not preloads:
            return
        done = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._set_up_preloads, args=(preloads, done), name="weft-plugins", daemon=True
        )
        self._thread.start()
        failure: ConfigError | None = await done
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Tear all plugins down, and answer nothing any more; `join` shows when it is done."""
        self._is_closed = True
        with self._lock:
            self._jobs.clear()
        if self._ready or self._thread is not None:
            self._start()

    def join(self) -> bool:
        """Return whether nothing runs."""
        thread = self._thread
        return thread is None or not thread.is_alive()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weft-plugins", daemon=True)
                self._thread.start()

    # --- On the thread of the plugins -------------------------------------------------------------

    def _run(self) -> None:
        # One that was left is interrupted at any place, and then does nothing more.
        with contextlib.suppress(TaskInterrupted):
            self._work()

    def _work(self) -> None:
        context = copy.copy(self._executor.context)
        set_worker(context)
        while True:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                if job is None and not (self._is_closed and self._ready):
                    self._thread = None
                    return
                current = None if job is None else self._begin(job[1])
            if job is None:
                self._tear_down([*self._ready][-1], context)
                continue
            connection, message = job
            failure, reason = None, ""
            if isinstance(message, TearDownPlugin):
                failure = self._tear_down(message.plugin, context)
            elif current is not None:
                plugin, failure = self._set_up(message, context)
                with self._lock:
                    if not current.is_left:
                        self._setting_up = None
                    is_ended = current.is_left or self._is_ended(message.plugin)
                if current.is_left:
                    if plugin is not None:
                        self._undo(message.name, plugin, context)
                    return
                if plugin is not None:
                    self._ready[message.plugin] = message.name, plugin
                    context.plugins[message.name] = plugin
                    logger.info("plugin %r is set up on worker %s", message.name, context.name)
                if failure is not None and message.is_required and not is_ended:
                    reason = f"plugin {message.name!r} failed"
                    self.failure = PluginFailed(message.name, f"{failure[1]}: {failure[2]}")
            # A module that functions are named in may be another one now.
            self._executor.forget_calls()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(
                    self._finish, connection, message.request, failure, reason
                )

    def _begin(self, message: SetUpPlugin | TearDownPlugin) -> _SetUp | None:
        """Return what is to be set up, under the lock; None if there is nothing of that kind."""
        if isinstance(message, TearDownPlugin) or message.plugin in self._ready:
            return None
        if self._is_ended(message.plugin):
            return None
        self._setting_up = _SetUp(message.plugin, message.name, threading.get_ident())
        return self._setting_up

    def _is_ended(self, plugin: str) -> bool:
        return any(isinstance(m, TearDownPlugin) and m.plugin == plugin for _, m in self._jobs)

    def _set_up_preloads(self, preloads: list[Preload], done: asyncio.Future[Any]) -> None:
        context = copy.copy(self._executor.context)
        set_worker(context)
        failure: ConfigError | None = None
        for preload in preloads:
            try:
                call(preload, "setup", context)
            except BaseException as error:  # of user code
                failure = ConfigError(
                    f"the setup of preloaded module {preload.name!r} raised "
                    f"{type(error).__name__}: {error}",
                    "--preload",
                )
                failure.__cause__ = error
                break
            self._ready[f"preload {preload.name}"] = preload.name, preload
        with self._lock:
            self._thread = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_finish_future, done, failure)

    def _set_up(self, message: SetUpPlugin, context: Any) -> tuple[Any, list[Any] | None]:
        """Set a plugin up; return it, or None and the failure."""
        name = message.name
        try:
            (blob,) = message.blobs
            plugin = loads(b"" if blob is None else blob)
            call(plugin, "setup", context)
        except BaseException as error:  # of user code: SystemExit ends the call only
            logger.warning(
                "plugin %r could not be set up on worker %s: %s: %s",
                name,
                context.name,
                type(error).__name__,
                error,
            )
            return None, packed(error, f"the set-up of plugin {name!r}", _named(context))
        return plugin, None

    def _tear_down(self, plugin_id: str, context: Any) -> list[Any] | None:
        found = self._ready.pop(plugin_id, None)
        if found is None:
            return None
        name, plugin = found
        if context.plugins.get(name) is plugin:
            del context.plugins[name]
        return self._undo(name, plugin, context)

    @staticmethod
    def _undo(name: str, plugin: Any, context: Any) -> list[Any] | None:
        try:
            call(plugin, "teardown", context)
        except BaseException as error:  # of user code
            logger.warning(
                "plugin %r could not be torn down on worker %s",
                name,
                context.name,
                exc_info=error,
            )
            return packed(error, f"the teardown of plugin {name!r}", _named(context))
        return None

    # --- On the loop's thread again ---------------------------------------------------------------

    def _finish(
        self, connection: Connection, request: int, failure: list[Any] | None, reason: str
    ) -> None:
        if not self._is_closed:
            info = {} if failure is None else {"failure": failure}
            try:
                connection.send([PluginDone(request=request, info=info)])
            except LocalProtocolError as error:  # the exception is too large
                failure = packed(error, "a plugin", _named(self._executor.context))
                connection.send([PluginDone(request=request, info={"failure": failure})])
        if reason:
            self._end(reason)


class Preload:
    """A preloaded module as a plugin."""

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        self.setup = self._function(module, "setup")
        self.teardown = self._function(module, "teardown")

    @staticmethod
    def _function(module: ModuleType, step: str) -> Any:
        """Return the function for a step, by weft's name or else by dask's; None if absent."""
        return getattr(module, f"weft_{step}", None) or getattr(module, f"dask_{step}", None)

    @property
    def has_functions(self) -> bool:
        """Return whether the module is more than imported."""
        return self.setup is not None or self.teardown is not None


def _finish_future(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _named(context: Any) -> str:
    return f"worker {context.name}"
