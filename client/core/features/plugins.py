"""The plugins that this client has registered: they are stated anew to each new scheduler.

A part of the core. The scheduler keeps plugins in its memory only, and a later one knows none. So a
client states its own before all that it submits again; workers that have them only answer. A
plugin that any client has unregistered or replaced is not stated any more (`PluginGone`, or
`PluginsHeld` after a lost connection). One that was stated and not confirmed before the connection
ended is stated again in the next session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.messages import Answer, Ask, AskFailed, PluginGone, PluginsHeld
from ....protocol.wire.payload import Blob
from ..events import Warn
from ..feature import ClientFeature
from .questions import AskScheduler, questions_of, take_answer

if TYPE_CHECKING:
    from ..state import ClientState

#: {question: what the answer lists if the plugin is kept}
REGISTRATIONS: Final = {
    "register_plugin": "workers",
    "register_supervisor_plugin": "supervisors",
}


@dataclass(slots=True)
class KeptPlugin:
    """The question of a registration, and its arguments."""

    question: str
    arguments: dict[str, Any]
    blobs: list[Blob | None]

    @property
    def id(self) -> str:
        """Identifies the plugin, by its content."""
        return str(self.arguments["plugin"])


class KeptPlugins:
    """The plugins of a client."""

    __slots__ = ("kept", "restating")

    def __init__(self) -> None:
        #: {id: plugin} that were registered, in order
        self.kept: dict[str, KeptPlugin] = {}
        #: {request: plugin} of those that were stated to this scheduler, and are not confirmed
        self.restating: dict[int, KeptPlugin] = {}


def plugins_of(core: ClientState) -> KeptPlugins:
    """Return the plugins that this client has registered."""
    return core.record(KeptPlugins)


def _keep(core: ClientState, question: AskScheduler) -> None:
    """Keep a plugin that the scheduler has, by the question that has registered it."""
    plugin_id = question.arguments["plugin"]
    plugins_of(core).kept[plugin_id] = KeptPlugin(question.name, question.arguments, question.blobs)


def on_plugin_gone(core: ClientState, message: PluginGone) -> None:
    """Forget a plugin that workers are not to have any more."""
    plugins_of(core).kept.pop(message.plugin, None)


def on_plugins_held(core: ClientState, message: PluginsHeld) -> None:
    """Forget the plugins that have ended while this client was away."""
    plugins = plugins_of(core)
    known = {*message.plugins, *(plugin.id for plugin in plugins.restating.values())}
    plugins.kept = {i: plugin for i, plugin in plugins.kept.items() if i in known}


def _on_begun(core: ClientState, is_new: bool) -> None:
    """State the plugins to a new scheduler, or those that it may not have read to the same one."""
    plugins = plugins_of(core)
    unconfirmed = {plugin.id for plugin in plugins.restating.values()}
    plugins.restating = {}
    for plugin in plugins.kept.values():
        if not is_new and plugin.id not in unconfirmed:
            continue
        request = core.next_request()
        plugins.restating[request] = plugin
        core.to_scheduler.append(
            Ask(
                request=request,
                name=plugin.question,
                arguments=plugin.arguments,
                blobs=plugin.blobs,
            )
        )


def on_answer(core: ClientState, message: Answer | AskFailed) -> None:
    """Take an answer: about a plugin that was stated again, or for a user, perhaps about one."""
    if on_stated(core, message):
        return
    question = questions_of(core).get(message.request)
    if (
        isinstance(question, AskScheduler)
        and question.name in REGISTRATIONS
        and isinstance(message, Answer)
        and REGISTRATIONS[question.name] in message.info
        and not message.info.get("was_ignored")
    ):
        _keep(core, question)
    take_answer(core, message)


def on_stated(core: ClientState, message: Any) -> bool:
    """Take the answer about a stated plugin; False if it is about something else."""
    plugin = plugins_of(core).restating.pop(message.request, None)
    if plugin is None:
        return False
    problem = ""
    if not isinstance(message, Answer):
        problem = message.text if isinstance(message, AskFailed) else "it is not permitted"
    elif message.info.get("was_ignored"):
        plugins_of(core).kept.pop(plugin.id, None)  # another client has stated its own first
    elif message.info.get("n_failed"):
        where = REGISTRATIONS[plugin.question]
        problem = f"it failed on {message.info['n_failed']} of the {where}"
    if problem:
        name = plugin.arguments["name"]
        text = f"plugin {name!r} could not be set up again with the new scheduler: {problem}"
        core.after.append(Warn(f"{text}; register it again"))
    return True


FEATURE: Final = ClientFeature(
    name="plugins",
    records=(KeptPlugins,),
    handlers={
        Answer: on_answer,
        AskFailed: on_answer,
        PluginGone: on_plugin_gone,
        PluginsHeld: on_plugins_held,
    },
    requests=lambda core: plugins_of(core).restating,
    begun=_on_begun,
    refused=on_stated,
)
