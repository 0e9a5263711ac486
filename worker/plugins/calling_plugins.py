"""The plugins of a process: their methods are called, and what these raise is packed.

For workers and for supervisors. The calls come one after the other, on one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.errors import LocalProtocolError
from ...protocol.net.connection import Connection
from ...protocol.values.exceptions import name_packed, pack_exception
from ...protocol.values.serialize import loads
from ...protocol.wire.messages import PluginDone
from ...protocol.wire.payload import Blob


class ReadyPlugins:
    """The plugins that are set up in a process.

    Args:
        context: what their methods get; its `plugins` has them by name.
        where: the process, for logs and errors, such as "worker w1".
        log: of the process.
        check: called after each method; what it raises counts as raised by the plugin.
    """

    def __init__(
        self,
        context: Any,
        where: str,
        log: logging.Logger,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self.context = context
        self._where = where
        self._log = log
        self._check = check
        #: {id: (name, plugin)}, in order
        self.by_id: dict[str, tuple[str, Any]] = {}

    def set_up(self, name: str, blobs: Sequence[Blob | None]) -> tuple[Any, list[Any] | None]:
        """Unpickle a plugin and set it up; return it, or None and the failure."""
        try:
            (blob,) = blobs
            plugin = loads(b"" if blob is None else blob)
            self._call(plugin, "setup")
        except BaseException as error:  # of user code: SystemExit ends the call only
            text = "plugin %r could not be set up on %s: %s: %s"
            self._log.warning(
                text,
                name,
                self._where,
                type(error).__name__,
                error,
                extra={"code": "plugin-failed"},
            )
            return None, packed(error, f"the set-up of plugin {name!r}", self._where)
        return plugin, None

    def keep(self, plugin_id: str, name: str, plugin: Any) -> None:
        """Keep a plugin that is set up, until it is torn down."""
        self.by_id[plugin_id] = name, plugin
        self.context.plugins[name] = plugin

    def tear_down(self, plugin_id: str) -> list[Any] | None:
        """Tear down a plugin, if it is here; return the failure."""
        found = self.by_id.pop(plugin_id, None)
        if found is None:
            return None
        name, plugin = found
        if self.context.plugins.get(name) is plugin:
            del self.context.plugins[name]
        return self.undo(name, plugin)

    def undo(self, name: str, plugin: Any) -> list[Any] | None:
        """Tear down a plugin that is not kept; return the failure."""
        try:
            self._call(plugin, "teardown")
        except BaseException as error:  # of user code
            text = "plugin %r could not be torn down on %s"
            self._log.warning(
                text, name, self._where, exc_info=error, extra={"code": "plugin-failed"}
            )
            return packed(error, f"the teardown of plugin {name!r}", self._where)
        return None

    def _call(self, plugin: Any, method: str) -> None:
        call(plugin, method, self.context)
        self._check()


def call(plugin: Any, method: str, context: Any) -> None:
    """Call `setup` or `teardown`, if the plugin has it; a coroutine runs in a loop of its own."""
    function = getattr(plugin, method, None)
    if function is None:
        return
    result = function(context)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def packed(error: BaseException, what: str, where: str) -> list[Any]:
    """Return an exception for the client; its note says what has failed, and where."""
    return name_packed(pack_exception(error, what, where), what, f"weft: {what} on {where}")


def report_done(
    connection: Connection,
    request: int,
    failure: list[Any] | None,
    what: str,
    where: str,
    *,
    was_ready: bool = False,
) -> None:
    """Answer an order of the scheduler; `what` and `where` are for an answer that is too large."""
    info: dict[str, Any] = {} if failure is None else {"failure": failure}
    if was_ready:
        info["was_ready"] = True
    try:
        connection.send([PluginDone(request=request, info=info)])
    except LocalProtocolError as error:  # the exception is too large
        info = {"failure": packed(error, what, where)}
        connection.send([PluginDone(request=request, info=info)])
