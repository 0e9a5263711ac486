"""The table of handlers: which function takes which message, by the role of its sender.

A message that is not in the table of its sender's role is answered by `permissions`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.wire import messages as m
from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message
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


def handlers_by_role() -> dict[Role, dict[type[Message], Callable[..., None]]]:
    """Return the table, a new one for each state: {role: {message: handler}}."""
    return {
        Role.CLIENT: {
            m.SubmitTasks: submission.on_submit,
            m.WantKeys: wants.on_want,
            m.ReleaseKeys: wants.on_release,
            m.ReleaseOthers: wants.on_release_others,
            m.CancelKeys: submission.on_cancel,
            m.WithdrawKeys: withdrawing.on_withdraw,
            m.RetryKeys: retrying.on_retry,
            m.FetchKeys: relays.on_client_fetch,
            m.ReportMissing: missing.on_report_missing,
            m.Ask: on_ask,
            m.ShutdownCluster: membership.on_shutdown,
            **puts.HANDLERS,
            **held.HANDLERS,
            m.Heartbeat: liveness.on_heartbeat,
            m.Resubmitted: phases.on_resubmitted,
            m.WantOutput: output_wishes.on_want_output,
            m.Bye: membership.on_client_bye,
            m.Unsupported: on_unsupported,
        },
        Role.WORKER: {
            m.AttemptsFinished: completion.on_finished,
            m.InventoryHeld: inventories.on_held,
            m.InventoryUnfinished: inventories.on_unfinished,
            m.InventoryFailed: inventories.on_failed,
            m.InventoryFunctions: inventories.on_functions,
            m.InventoryEnd: inventories.on_end,
            m.AttemptsErred: completion.on_erred,
            m.AttemptsEnded: completion.on_ended,
            m.AttemptsOverdue: overdue.on_overdue,
            m.AttemptsBlocked: blocked.on_blocked,
            m.AttemptsResumed: blocked.on_resumed,
            m.ActorsBlocked: blocked.on_actors_blocked,
            m.ActorsResumed: blocked.on_actors_resumed,
            m.AttemptsReturned: assignment.on_returned,
            m.AttemptsWithdrawn: withdrawing.on_withdrawn,
            m.ReplicasAdded: missing.on_replicas_added,
            m.KeysMissing: missing.on_keys_missing,
            m.KeysData: relays.on_worker_data,
            m.Answer: passing.on_answer,
            m.AskFailed: passing.on_answer,
            m.WorkerLeaving: membership.on_worker_leaving,
            m.WorkerStatus: liveness.on_worker_status,
            m.TaskOutput: output.on_task_output,
            m.LogRecords: output.on_log_records,
            m.AttemptTimes: task_stream.on_attempt_times,
            m.PluginDone: plugins.on_done,
            m.Heartbeat: liveness.on_heartbeat,
            m.Bye: membership.on_worker_bye,
            m.Unsupported: on_unsupported,
        },
        Role.TASK_CLIENT: {**delegation.HANDLERS},
        Role.SUPERVISOR: {
            m.WorkersAlive: liveness.on_workers_alive,
            m.Answer: passing.on_answer,
            m.AskFailed: passing.on_answer,
            m.WorkerExited: membership.on_worker_exited,
            m.PluginDone: plugins.on_done,
            m.WorkerHeldUp: overdue.on_held_up,
            m.Heartbeat: liveness.on_heartbeat,
            m.Bye: membership.on_supervisor_bye,
            m.Unsupported: on_unsupported,
        },
        Role.VIEWER: {
            m.GetMetrics: on_get_metrics,
            m.Ask: on_ask,
            m.Heartbeat: liveness.on_heartbeat,
            m.Unsupported: on_unsupported,
        },
    }
