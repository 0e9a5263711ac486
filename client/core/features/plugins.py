"""The plugins that this client has registered: they are stated anew to each new scheduler.

A part of the core. The scheduler keeps plugins in its memory only, and a later one knows none. So a
client states its own before all that it submits again; workers that have them only answer. A
plugin that any client has unregistered or replaced is not stated any more (`PluginGone`, or
`PluginsKept` after a lost connection). One that was stated and not confirmed before the connection
ended is stated again in the next session.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.messages import Answer, AskFailed, PluginGone, PluginsKept
from ..events import Warn
from ..feature import ClientFeature
from ..tasks import Watcher
from .questions import AskScheduler, questions_of, take_answer

if TYPE_CHECKING:
    from ..state import ClientState

#: {question: what the answer lists if the plugin is kept}
REGISTRATIONS: Final = {
    "register_plugin": "workers",
    "register_supervisor_plugin": "supervisors",
}

#: The watcher of questions that no user has asked.
_NOBODY: Final = Watcher(wants_data=False)


class KeptPlugins:
    """The plugins of a client, each as the question that states it to a scheduler."""

    def __init__(self) -> None:
        #: {id: question} of those that were registered, in order
        self.kept: dict[str, AskScheduler] = {}
        #: {request: question} of those that were stated to this scheduler, and are not confirmed
        self.restating: dict[int, AskScheduler] = {}


def plugins_of(core: ClientState) -> KeptPlugins:
    """Return the plugins that this client has registered."""
    return core.record(KeptPlugins)


def _id_of(question: AskScheduler) -> str:
    """Return what identifies the plugin, by its content."""
    return str(question.arguments["plugin"])


def on_plugin_gone(core: ClientState, message: PluginGone) -> None:
    """Forget a plugin that workers are not to have any more."""
    plugins_of(core).kept.pop(message.plugin, None)


def on_plugins_kept(core: ClientState, message: PluginsKept) -> None:
    """Forget the plugins that have ended while this client was away."""
    plugins = plugins_of(core)
    known = {*message.plugins, *map(_id_of, plugins.restating.values())}
    plugins.kept = {i: plugin for i, plugin in plugins.kept.items() if i in known}


def _on_begun(core: ClientState, is_new: bool) -> None:
    """State the plugins to a new scheduler, or those that it may not have read to the same one."""
    plugins = plugins_of(core)
    unconfirmed = {*map(_id_of, plugins.restating.values())}
    plugins.restating = {}
    for plugin_id, question in plugins.kept.items():
        if is_new or plugin_id in unconfirmed:
            request = core.next_request()
            plugins.restating[request] = question
            core.to_scheduler.append(question.message(request))


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
        kept = replace(question, watcher=_NOBODY, page="")
        plugins_of(core).kept[_id_of(question)] = kept
    take_answer(core, message)


def on_stated(core: ClientState, message: Any) -> bool:
    """Take the answer about a stated plugin; False if it is about something else."""
    question = plugins_of(core).restating.pop(message.request, None)
    if question is None:
        return False
    problem = ""
    if not isinstance(message, Answer):
        problem = message.text if isinstance(message, AskFailed) else "it is not permitted"
    elif message.info.get("was_ignored"):
        plugins_of(core).kept.pop(_id_of(question), None)  # another client has stated its own first
    elif message.info.get("n_failed"):
        where = REGISTRATIONS[question.name]
        problem = f"it failed on {message.info['n_failed']} of the {where}"
    if problem:
        name = question.arguments["name"]
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
        PluginsKept: on_plugins_kept,
    },
    requests=(lambda core: plugins_of(core).restating,),
    begun=(_on_begun,),
    refused=(on_stated,),
)
