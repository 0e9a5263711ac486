"""Messages about plugins: code of users that workers and supervisors run beside the tasks.

A client registers one by the question `register_plugin` or `register_supervisor_plugin`, and ends
it by `unregister_plugin`; the answer comes when all of these processes have reported.
"""

from __future__ import annotations

from ..message import Blobs, Flag, Info, Message, Number, Text, Texts, message
from ..roles import CLIENTS, SUPERVISORS, WORKERS


@message(160, to=WORKERS)
class SetUpPlugin(Message):
    """Set a plugin up; `PluginDone` answers. A worker that has done so only answers again.

    A worker that `is_required` to have it gets no task before, and ends if it fails.
    """

    request: Number
    plugin: Text  #: identifies the plugin, by its content
    name: Text
    blobs: Blobs  #: its pickle
    is_required: Flag = False


@message(161, to=WORKERS)
class TearDownPlugin(Message):
    """Tear a plugin down and forget it; `PluginDone` answers."""

    request: Number
    plugin: Text


@message(162, by=WORKERS + SUPERVISORS)
class PluginDone(Message):
    """Answer an order about a plugin.

    `info` has the `failure` if there was one, and `was_ready` from a supervisor that had set it up.
    """

    request: Number
    info: Info


@message(163, to=CLIENTS)
class PluginGone(Message):
    """Notify clients of a plugin that was unregistered, or replaced: none of them states it again.

    A client states the plugins that it has registered to each new scheduler.
    """

    plugin: Text


# The messages to supervisors are others than those to workers: a supervisor of a version that does
# not know them answers `Unsupported`.
@message(200, to=SUPERVISORS)
class SetUpOnSupervisor(Message):
    """Set a plugin up for a supervisor; `PluginDone` answers. One that has it only answers again.

    A supervisor that `is_required` to have it starts no worker before, ends those that it has
    started, and ends if it fails.
    """

    request: Number
    plugin: Text  #: identifies the plugin, by its content
    name: Text
    blobs: Blobs  #: its pickle
    is_required: Flag = False


@message(201, to=SUPERVISORS)
class TearDownOnSupervisor(Message):
    """Tear a plugin of a supervisor down and forget it; `PluginDone` answers."""

    request: Number
    plugin: Text


@message(202, to=SUPERVISORS)
class RenewWorkers(Message):
    """Replace the processes of all workers; `PluginDone` answers when the old ones have ended."""

    request: Number


@message(203, to=CLIENTS + SUPERVISORS)
class PluginsKept(Message):
    """Send the ids of all plugins to a client that is back: its others ended while it was away.

    A `PluginGone` on a connection that ended may not have been read. A supervisor that is back gets
    the ids of those of supervisors, and tears its others down.
    """

    plugins: Texts
