"""The plugins of one worker: set up and torn down one after the other, on a thread of their own.

A part of the shell. Neither the event loop nor a slot waits for a plugin. The answer leaves on the
connection on which the request came, or not at all: the scheduler asks again in the next session.
So a set-up that an ended session has asked for is not begun, and one that fails does not end the
worker: the next scheduler may not hold that plugin, and may have given out tasks without it. A
teardown is done, because the next scheduler does not repeat it.

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

from ...protocol.errors import ConfigError, PluginFailed
from ...protocol.net.connection import Connection
from ...protocol.wire.messages import SetUpPlugin, TearDownPlugin
from ..context import set_worker
from ..slots.executor import TaskExecutor
from ..slots.interrupting import TaskInterrupted, interrupt_code
from .calling_plugins import ReadyPlugins, call, report_done

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
        context = copy.copy(executor.context)
        self._where = f"worker {context.name}"
        #: The plugins that are set up; for the thread.
        self._ready = ReadyPlugins(context, self._where, logger)
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
            "the set-up of plugin %r on %s did not return within %g s after the plugin was "
            "unregistered: it was interrupted, and is not waited for. If it goes on all the same, "
            "client.restart_workers() ends it",
            current.name,
            self._where,
            PATIENCE_S,
            extra={"code": "plugin-failed"},
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
        if self._ready.by_id or self._thread is not None:
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
        ready = self._ready
        set_worker(ready.context)
        while True:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                if job is None and not (self._is_closed and ready.by_id):
                    self._thread = None
                    return
                current = None if job is None else self._begin(*job)
            if job is None:
                ready.tear_down([*ready.by_id][-1])
                continue
            connection, message = job
            failure, fatal = None, None
            if isinstance(message, TearDownPlugin):
                failure = ready.tear_down(message.plugin)
            elif current is not None:
                plugin, failure = ready.set_up(message.name, message.blobs)
                with self._lock:
                    if not current.is_left:
                        self._setting_up = None
                    is_ended = current.is_left or self._is_ended(message.plugin)
                if current.is_left:
                    if plugin is not None:
                        ready.undo(message.name, plugin)
                    return
                if plugin is not None:
                    ready.keep(message.plugin, message.name, plugin)
                    logger.info("plugin %r is set up on %s", message.name, self._where)
                if failure is not None and message.is_required and not is_ended:
                    fatal = PluginFailed(message.name, f"{failure[1]}: {failure[2]}")
            # A module that functions are named in may be another one now.
            self._executor.forget_calls()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(
                    self._finish, connection, message.request, failure, fatal
                )

    def _begin(
        self, connection: Connection, message: SetUpPlugin | TearDownPlugin
    ) -> _SetUp | None:
        """Return what is to be set up, under the lock; None if there is nothing of that kind."""
        if isinstance(message, TearDownPlugin) or message.plugin in self._ready.by_id:
            return None
        if connection.closed or self._is_ended(message.plugin):
            return None
        self._setting_up = _SetUp(message.plugin, message.name, threading.get_ident())
        return self._setting_up

    def _is_ended(self, plugin: str) -> bool:
        return any(isinstance(m, TearDownPlugin) and m.plugin == plugin for _, m in self._jobs)

    def _set_up_preloads(self, preloads: list[Preload], done: asyncio.Future[Any]) -> None:
        set_worker(self._ready.context)
        failure: ConfigError | None = None
        for preload in preloads:
            try:
                call(preload, "setup", self._ready.context)
            except BaseException as error:  # of user code
                failure = ConfigError(
                    f"the setup of preloaded module {preload.name!r} raised "
                    f"{type(error).__name__}: {error}",
                    "--preload",
                )
                failure.__cause__ = error
                break
            self._ready.by_id[f"preload {preload.name}"] = preload.name, preload
        with self._lock:
            self._thread = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_finish_future, done, failure)

    # --- On the loop's thread again ---------------------------------------------------------------

    def _finish(
        self,
        connection: Connection,
        request: int,
        failure: list[Any] | None,
        fatal: PluginFailed | None,
    ) -> None:
        if not self._is_closed:
            report_done(connection, request, failure, "a plugin", self._where)
        if fatal is not None and not connection.closed:
            self.failure = fatal
            self._end(f"plugin {fatal.plugin!r} failed")


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
