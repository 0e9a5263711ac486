"""Messages about plugins: code of users that workers run beside their tasks.

A client registers one by the question `register_plugin`, and ends it by `unregister_plugin`; the
answer comes when all workers have reported.
"""

from __future__ import annotations

from ..message import Blobs, Flag, Info, Message, Number, Text, Texts, message


@message(160)
class SetUpPlugin(Message):
    """Set a plugin up; `PluginDone` answers. A worker that has done so only answers again.

    A worker that `is_required` to have it gets no task before, and ends if it fails.
    """

    request: Number
    plugin: Text  #: identifies the plugin, by its content
    name: Text
    blobs: Blobs  #: its pickle
    is_required: Flag = False


@message(161)
class TearDownPlugin(Message):
    """Tear a plugin down and forget it; `PluginDone` answers."""

    request: Number
    plugin: Text


@message(162)
class PluginDone(Message):
    """Answer a `SetUpPlugin` or `TearDownPlugin`; `info` has the `failure` if there was one."""

    request: Number
    info: Info


@message(163)
class PluginGone(Message):
    """Notify clients of a plugin that was unregistered, or replaced: none of them states it again.

    A client states the plugins that it has registered to each new scheduler.
    """

    plugin: Text


@message(203)
class PluginsHeld(Message):
    """Send the ids of all plugins to a client that is back: its others ended while it was away.

    A `PluginGone` on a connection that ended may not have been read.
    """

    plugins: Texts
