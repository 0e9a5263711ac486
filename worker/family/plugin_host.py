"""The host: the process in which the plugins of a supervisor run, beside the supervisor.

The spawner forks it as it forks a worker, so it ends with the family, and so do the processes that
plugins start without a session of their own. It runs one job after the other, in its main thread,
and answers each. When the supervisor closes the channel, it tears down all plugins, the last one
first, and ends.

Over the channel go messages of msgpack, each with its length before it:

    -> {"step": "setup" or "teardown", "plugin": id, "name": text, "data": pickle, "buffers": [...]}
    <- {"failure": a packed exception or None, "environment": {name: text}}

The supervisor reads these answers, and never unpickles: the code of users stays here.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from typing import Any, Final

import msgpack

from ...protocol.wire.payload import Payload
from ..plugins.calling_plugins import ReadyPlugins

_log = logging.getLogger("weft.supervisor")

#: The length of a message.
LENGTH: Final = struct.Struct("!Q")


class SupervisorContext:
    """What the methods of a `SupervisorPlugin` get.

    Attributes:
        supervisor_id: identifies the supervisor; `client.scheduler_info()` shows it as the `nanny`
            of its workers.
        host: the name of the machine.
        local_directory: a folder for files, which is removed with the family of workers.
        env: environment variables with which workers are started from now on. Without a plugin
            that changes it, it is empty: workers get the variables of `weft worker` anyway.
        plugins: those that are set up here, by name.
    """

    def __init__(self, supervisor_id: str, host: str, local_directory: str) -> None:
        self.supervisor_id = supervisor_id
        self.host = host
        self.local_directory = local_directory
        self.env: dict[str, str] = {}
        self.plugins: dict[str, Any] = {}

    @property
    def id(self) -> str:
        """The same as `supervisor_id`."""
        return self.supervisor_id

    def __repr__(self) -> str:
        return f"<supervisor {self.supervisor_id} on {self.host}>"


def main(plain: dict[str, Any]) -> None:
    """Be the host, until the supervisor closes the channel. `plain` is its configuration."""
    context = SupervisorContext(
        plain["supervisor_id"], socket.gethostname(), plain["local_directory"]
    )
    host = _Host(context)
    pid = os.getpid()
    with socket.socket(fileno=plain["channel"]) as channel, channel.makefile("rb") as stream:
        while True:
            head = stream.read(LENGTH.size)
            if len(head) < LENGTH.size:
                break
            body = stream.read(LENGTH.unpack(head)[0])
            answer = msgpack.packb(host.do(msgpack.unpackb(body)))
            if os.getpid() != pid:
                os._exit(0)  # a plugin has forked, and the copy has come back from its method
            try:
                channel.sendall(LENGTH.pack(len(answer)) + answer)
            except OSError:
                break  # the supervisor is gone, so the spawner ends this process
    host.end()


class _Host:
    def __init__(self, context: SupervisorContext) -> None:
        self._context = context
        where = f"the supervisor on {context.host}"
        self._ready = ReadyPlugins(context, where, _log, self._check_environment)

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do a job; return the answer."""
        context, before = self._context, dict(self._context.env)
        if job["step"] == "teardown":
            failure = self._ready.tear_down(job["plugin"])
            if not is_environment(context.env):
                context.env = before
        else:
            name, data, buffers = job["name"], job["data"], job["buffers"]
            _log.info("plugin %r is set up by the supervisor", name)
            blob = Payload(data, buffers) if buffers else data
            plugin, failure = self._ready.set_up(name, [blob])
            if failure is None:
                self._ready.keep(job["plugin"], name, plugin)
            else:
                context.env = before
        return {"failure": failure, "environment": context.env}

    def end(self) -> None:
        """Tear down all plugins, the last one first."""
        for plugin_id in reversed([*self._ready.by_id]):
            self._ready.tear_down(plugin_id)

    def _check_environment(self) -> None:
        if not is_environment(self._context.env):
            raise TypeError(
                "supervisor.env is a dict of names and values of environment variables, both "
                f"texts: not {self._context.env!r:.200}"
            )


def is_environment(env: object) -> bool:
    """Return whether this can be the `env` of a `SupervisorContext`."""
    return isinstance(env, dict) and all(
        _is_text(name) and _is_text(value) and name and "=" not in name
        for name, value in env.items()
    )


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
