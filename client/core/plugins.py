"""The plugins that this client has registered: they are stated anew to each new scheduler.

A part of the core. The scheduler keeps plugins in its memory only, and a later one knows none. So a
client states its own before all that it submits again; workers that have them only answer. A
plugin that any client has unregistered or replaced is not stated any more (`PluginGone`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...protocol.wire.messages import Answer, Ask, AskFailed, PluginGone
from ...protocol.wire.payload import Blob
from .events import AskScheduler, Warn

if TYPE_CHECKING:
    from .state import ClientState


@dataclass(slots=True)
class KeptPlugin:
    """The arguments of a registration."""

    arguments: dict[str, Any]
    blobs: list[Blob | None]


class KeptPlugins:
    """The plugins of a client."""

    __slots__ = ("kept", "restating")

    def __init__(self) -> None:
        #: {id: plugin} that were registered, in order
        self.kept: dict[str, KeptPlugin] = {}
        #: {request: name} of those that were stated in this session, and are not confirmed
        self.restating: dict[int, str] = {}


def keep_plugin(core: ClientState, question: AskScheduler) -> None:
    """Keep a plugin that the scheduler has, by the question that has registered it."""
    plugin_id = question.arguments["plugin"]
    core.plugins.kept[plugin_id] = KeptPlugin(question.arguments, question.blobs)


def on_plugin_gone(core: ClientState, message: PluginGone) -> None:
    """Forget a plugin that workers are not to have any more."""
    core.plugins.kept.pop(message.plugin, None)


def state_plugins(core: ClientState) -> None:
    """State the plugins to a new scheduler."""
    plugins = core.plugins
    plugins.restating = {}
    for plugin in plugins.kept.values():
        request = core.next_request()
        plugins.restating[request] = plugin.arguments["name"]
        core.to_scheduler.append(
            Ask(
                request=request,
                name="register_plugin",
                arguments=plugin.arguments,
                blobs=plugin.blobs,
            )
        )


def on_stated(core: ClientState, message: Any) -> bool:
    """Take the answer about a stated plugin; False if it is about something else."""
    name = core.plugins.restating.pop(message.request, None)
    if name is None:
        question = core.questions.get(message.request)
        if (
            question is not None
            and question.name == "register_plugin"
            and isinstance(message, Answer)
            and "workers" in message.info
        ):
            keep_plugin(core, question)
        return False
    problem = ""
    if not isinstance(message, Answer):
        problem = message.text if isinstance(message, AskFailed) else "it is not permitted"
    elif message.info.get("n_failed"):
        problem = f"it failed on {message.info['n_failed']} of the workers"
    if problem:
        text = f"plugin {name!r} could not be set up again with the new scheduler: {problem}"
        core.after.append(Warn(f"{text}; register it again"))
    return True
