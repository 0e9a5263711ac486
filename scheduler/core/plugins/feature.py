"""The feature: code that clients hang into workers and supervisors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ..feature import Departure, Feature, LateQuestion, Question
from . import plugins
from .invariants import PLUGIN_INVARIANTS
from .questions import ask_plugins
from .records import Plugins

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, SupervisorHandle, WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    has_left = departure.reason is not None or ws.is_leaving
    plugins.on_gone(state, ws, departure.report, has_left=has_left)


def _on_supervisor_gone(state: SchedulerState, supervisor: SupervisorHandle) -> None:
    plugins.on_gone(state, supervisor)


def _on_client_connected(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    if last_epoch == state.epoch:
        plugins.on_client_back(state, client)


FEATURE: Final = Feature(
    name="plugins",
    records=(Plugins,),
    handlers={m.PluginDone: plugins.on_done},
    questions={"plugins": Question(ask_plugins, Level.CLIENT)},
    # Plugins are code for workers, as tasks are.
    orders={
        "register_plugin": LateQuestion(plugins.on_register, Level.CLIENT),
        "register_supervisor_plugin": LateQuestion(
            plugins.on_register_for_supervisors, Level.CLIENT
        ),
        "unregister_plugin": LateQuestion(plugins.on_unregister, Level.CLIENT),
    },
    invariants=PLUGIN_INVARIANTS,
    worker_connected=(plugins.greet,),
    admitting=(plugins.admit_later,),
    worker_gone=(_on_worker_gone,),
    supervisor_connected=(plugins.greet_supervisor,),
    supervisor_gone=(_on_supervisor_gone,),
    client_connected=(_on_client_connected,),
    unsupported=(plugins.on_unsupported,),
)
