"""The table of handlers: which function takes which message.

Which roles may send a message is declared with it. One that the role of its sender may not send is
answered by `permissions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ...protocol.wire import messages as m
from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message, sent_by
from . import coordination as held
from .assignment import assignment
from .data import missing, puts, relays
from .insight import passing, task_stream
from .insight.metrics import on_get_metrics
from .insight.questions import on_ask
from .members import delegation, liveness, membership
from .output import output
from .output import wishes as output_wishes
from .plugins import plugins
from .recovery import inventories, phases
from .releases import on_unsupported
from .reports import blocked, completion, overdue
from .requests import retrying, submission, wants, withdrawing

Handler: TypeAlias = "Callable[..., None]"

#: {message: its handler}, whichever role has sent it
HANDLERS: Final[dict[type[Message], Handler]] = {
    m.SubmitTasks: submission.on_submit,
    m.WantKeys: wants.on_want,
    m.ReleaseKeys: wants.on_release,
    m.ReleaseOthers: wants.on_release_others,
    m.CancelKeys: submission.on_cancel,
    m.WithdrawKeys: withdrawing.on_withdraw,
    m.RetryKeys: retrying.on_retry,
    m.FetchKeys: relays.on_client_fetch,
    m.ReportMissing: missing.on_report_missing,
    m.ShutdownCluster: membership.on_shutdown,
    **puts.HANDLERS,
    **held.HANDLERS,
    m.Resubmitted: phases.on_resubmitted,
    m.WantOutput: output_wishes.on_want_output,
    m.AttemptsFinished: completion.on_finished,
    m.AttemptsErred: completion.on_erred,
    m.AttemptsEnded: completion.on_ended,
    m.AttemptsOverdue: overdue.on_overdue,
    m.AttemptsBlocked: blocked.on_blocked,
    m.AttemptsResumed: blocked.on_resumed,
    m.ActorsBlocked: blocked.on_actors_blocked,
    m.ActorsResumed: blocked.on_actors_resumed,
    m.AttemptsReturned: assignment.on_returned,
    m.AttemptsWithdrawn: withdrawing.on_withdrawn,
    m.InventoryHeld: inventories.on_held,
    m.InventoryUnfinished: inventories.on_unfinished,
    m.InventoryFailed: inventories.on_failed,
    m.InventoryFunctions: inventories.on_functions,
    m.InventoryEnd: inventories.on_end,
    m.ReplicasAdded: missing.on_replicas_added,
    m.KeysMissing: missing.on_keys_missing,
    m.KeysData: relays.on_worker_data,
    m.WorkerLeaving: membership.on_worker_leaving,
    m.WorkerStatus: liveness.on_worker_status,
    m.TaskOutput: output.on_task_output,
    m.LogRecords: output.on_log_records,
    m.AttemptTimes: task_stream.on_attempt_times,
    m.WorkersAlive: liveness.on_workers_alive,
    m.WorkerExited: membership.on_worker_exited,
    m.WorkerHeldUp: overdue.on_held_up,
    m.PluginDone: plugins.on_done,
    m.Ask: on_ask,
    m.Answer: passing.on_answer,
    m.AskFailed: passing.on_answer,
    m.GetMetrics: on_get_metrics,
    m.Heartbeat: liveness.on_heartbeat,
    m.Unsupported: on_unsupported,
}

#: The handlers of messages that mean another thing by the role of their sender.
_OF_ROLES: Final[dict[Role, dict[type[Message], Handler]]] = {
    Role.CLIENT: {m.Bye: membership.on_client_bye},
    Role.TASK_CLIENT: {
        m.SubmitTasks: delegation.on_submit,
        m.CancelKeys: delegation.on_cancel,
        m.Bye: membership.on_client_bye,
    },
    Role.WORKER: {m.Bye: membership.on_worker_bye},
    Role.SUPERVISOR: {m.Bye: membership.on_supervisor_bye},
    Role.VIEWER: {},
}


def handlers_by_role() -> dict[Role, dict[type[Message], Handler]]:
    """Return the handlers of the messages that each role may send, a new table for each state."""
    return {
        role: {kind: own.get(kind) or HANDLERS[kind] for kind in sent_by(role)}
        for role, own in _OF_ROLES.items()
    }
