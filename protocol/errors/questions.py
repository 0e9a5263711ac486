"""The errors of questions to the processes of a cluster: `weft info`, `client.run` and others."""

from __future__ import annotations

from .base import WeftError


class QuestionFailed(WeftError):
    """A process of the cluster was asked something and gave no answer.

    The text says which process, and why. Other processes that were asked at the same time are not
    affected: functions that ask many return this error in the place of the missing answer.

    Args:
        text: what happened, and what can be done.
        process: the name or address of the process that was asked, "" if it is the scheduler.
    """

    def __init__(self, text: str, process: str = "") -> None:
        super().__init__(text, process)
        self.text = text
        self.process = process

    def __str__(self) -> str:
        return f"{self.process}: {self.text}" if self.process else self.text


class NoAnswer(QuestionFailed, TimeoutError):
    """A process that was asked is gone, cannot be reached, or did not answer in time.

    A worker whose task holds the interpreter lock answers late. If its machine cannot be reached
    from here, its log and `weft info` show more.
    """


class UnknownWorker(WeftError, ValueError):
    """A worker that was named is not connected to the cluster.

    Workers are named by their address, name or host; `client.nthreads()` lists the addresses.
    """


class PluginFailed(WeftError):
    """A plugin could not be set up on a new worker, or the process that was to do so has ended.

    `register_plugin` raises it if the process of a worker or of a machine's plugins has ended
    during the set-up; the plugin is not kept. A new worker ends with this error, because no task
    may run without the plugin, and its supervisor starts another one in its place, after a growing
    pause. Remove the cause, or end the plugin with `client.unregister_plugin(name)`.

    Args:
        plugin: its name.
        reason: the exception that it has raised, as text, or how the process ended.
        where: the process, for example "on worker w".
    """

    def __init__(self, plugin: str, reason: str, where: str = "here") -> None:
        super().__init__(plugin, reason, where)
        self.plugin = plugin
        self.reason = reason
        self.where = where

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} could not be set up {self.where}: {self.reason}"


class UnsupportedRequest(WeftError):
    """A process of the cluster runs a version of weft that does not know the request.

    Install the same version of weft on both machines, the newer one. Nothing else has failed: the
    connection stays open.

    Args:
        request: what was requested.
        process: the process that does not know it.
    """

    def __init__(self, request: str, process: str) -> None:
        super().__init__(request, process)
        self.request = request
        self.process = process

    def __str__(self) -> str:
        return (
            f"{self.process} does not know {self.request}, because it runs another version of "
            "weft; install the same version on both machines"
        )
