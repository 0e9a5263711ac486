"""The table of the kernel's handlers: which function takes which message.

Features have tables of their own. Which roles may send a message is declared with it. One that the
role of its sender may not send is answered by `permissions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...protocol.seam import joined
from ...protocol.wire import messages as m
from ...protocol.wire.message import Message, sent_by
from ...protocol.wire.roles import Role
from .assignment import asking_back
from .feature import Feature, Handler
from .members import delegation, liveness, membership
from .reports import blocked, completion, missing
from .requests import retrying, submission, wanted_keys

#: {message: its handler}, whichever role has sent it, but for those of `_OF_ROLES`
_HANDLERS: Final[dict[type[Message], Handler]] = {
    m.SubmitTasks: submission.on_submit,
    m.WantKeys: wanted_keys.on_want,
    m.ReleaseKeys: wanted_keys.on_release,
    m.ReleaseOthers: wanted_keys.on_release_others,
    m.CancelKeys: submission.on_cancel,
    m.RetryKeys: retrying.on_retry,
    m.ReportMissing: missing.on_report_missing,
    m.ShutdownCluster: membership.on_shutdown,
    m.AttemptsFinished: completion.on_finished,
    m.AttemptsErred: completion.on_erred,
    m.AttemptsEnded: completion.on_ended,
    m.AttemptsBlocked: blocked.on_blocked,
    m.AttemptsResumed: blocked.on_resumed,
    m.AttemptsReturned: asking_back.on_returned,
    m.ReplicasAdded: missing.on_replicas_added,
    m.KeysMissing: missing.on_keys_missing,
    m.WorkerLeaving: membership.on_worker_leaving,
    m.WorkerStatus: liveness.on_worker_status,
    m.WorkersAlive: liveness.on_workers_alive,
    m.WorkerExited: membership.on_worker_exited,
    m.Heartbeat: liveness.on_heartbeat,
    m.Bye: membership.on_client_bye,
}
#: What the kernel declares itself.
_KERNEL: Final = Feature(name="the kernel", handlers=_HANDLERS)

#: The handlers of messages that mean another thing by the role of their sender.
_OF_ROLES: Final[dict[Role, dict[type[Message], Handler]]] = {
    Role.CLIENT: {},
    Role.TASK_CLIENT: {
        m.SubmitTasks: delegation.on_submit,
        m.CancelKeys: delegation.on_cancel,
    },
    Role.WORKER: {m.Bye: membership.on_worker_bye},
    Role.SUPERVISOR: {m.Bye: membership.on_supervisor_bye},
    Role.VIEWER: {},
}


def with_kernel(features: Sequence[Feature]) -> Feature:
    """Return what the kernel and features declare. No feature can have a message of the kernel."""
    return joined(_KERNEL, features)


def handlers_by_role(features: Feature) -> dict[Role, dict[type[Message], Handler]]:
    """Return the handlers of the messages that each role may send, a new table for each state."""
    return {
        role: {kind: own.get(kind) or features.handlers[kind] for kind in sent_by(role)}
        for role, own in _OF_ROLES.items()
    }
