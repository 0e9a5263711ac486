"""Messages that open, keep and end a session: registrations, the welcome, heartbeats."""

from __future__ import annotations

from ..message import Amounts, Facts, Flag, Message, Number, Text, Unknown, message
from ..roles import ALL, CLIENTS, REGISTERED, SUPERVISORS, VIEWERS, WORKERS


@message(1, by=CLIENTS, opens=True)
class RegisterClient(Message):
    """Ask for a client's session. `session` counts its connections; `last_epoch` is 0 at first."""

    client_id: Text
    name: Text
    session: Number
    last_epoch: Number
    facts: Facts
    epoch_proof: Text = ""  #: of the welcome of `last_epoch`
    #: the worker in whose tasks the client is, and the `task_pass` that this worker was sent
    worker_id: Text = ""
    task_pass: Text = ""


@message(2, by=WORKERS, opens=True)
class RegisterWorker(Message):
    """Ask for a worker's session. Peers and clients fetch data from it at `address`."""

    worker_id: Text
    name: Text
    session: Number
    last_epoch: Number
    address: Text
    nthreads: Number
    memory_limit: Number  #: bytes; 0 = none
    resources: Amounts
    supervisor_id: Text  #: '' = this worker has no supervisor
    facts: Facts
    epoch_proof: Text = ""  #: of the welcome of `last_epoch`
    is_unused: Flag = False  #: it was assigned no task yet, and holds nothing


@message(3, by=SUPERVISORS, opens=True)
class RegisterSupervisor(Message):
    """Open a supervisor's connection, which reports the workers that it watches."""

    supervisor_id: Text
    session: Number
    last_epoch: Number
    facts: Facts
    epoch_proof: Text = ""  #: of the welcome of `last_epoch`


@message(4, to=REGISTERED)
class Welcome(Message):
    """Accept a registration. From now on every frame carries `epoch` and `session`."""

    epoch: Number
    session: Number
    heartbeat_ms: Number  #: send heartbeats this often, until an answer has another time
    facts: Facts
    epoch_proof: Text = ""  #: shows another scheduler of the cluster that there was this epoch
    task_pass: Text = ""  #: of a worker: shows that a client is one in its tasks


@message(5, to=REGISTERED)
class Refused(Message):
    """Refuse an authenticated peer (versions, a higher epoch) and close the connection.

    `is_final`: the same process would be refused again.
    """

    reason: Text
    is_final: Flag = False


@message(10, to=CLIENTS + VIEWERS)
class Denied(Message):
    """Answer a message that the sender's token does not permit; nothing else is affected."""

    request: Number  #: of the message, 0 if it has none
    needed: Text  #: the role of token that permits it, as `weft token --role` takes it
    level: Text  #: that of the sender's token


@message(6, by=REGISTERED, to=REGISTERED + VIEWERS)
class Bye(Message):
    """End a session for good: the receiver keeps nothing for a return of the sender."""

    reason: Text


@message(7, by=REGISTERED + VIEWERS, to=REGISTERED + VIEWERS)
class Heartbeat(Message):
    """Show that the sender is alive. The scheduler answers each one, with the time of the next."""

    next_ms: Number = 0  #: of an answer: send the next one after this time; 0 = as before


@message(8, by=ALL, to=ALL)
class Unsupported(Message):
    """Answer a message whose code the receiver does not know; the connection stays open.

    If the message was a request, the sender's request fails.
    """

    unknown_code: Number
    request: Number  #: the first field of that message if it is a whole number, else 0


def unsupported(unknown: Unknown) -> Unsupported:
    """Return the answer to a message of an unknown code."""
    return Unsupported(unknown_code=unknown.unknown_code, request=unknown.request)
