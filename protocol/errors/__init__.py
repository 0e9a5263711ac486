"""Every exception that weft raises, in one tree under `WeftError`.

Rules of this package, each checked by `tests/protocol/errors/test_errors.py`:

- Constructor arguments are positional and are kept both as fields and as `args`, so that every
  class survives pickling and copying (exceptions with keyword-only arguments do not).
- The docstring says what happened and what the user can do about it; `str(error)` describes the
  case at hand.
- Nothing heavy is imported: the scheduler uses this package and must run without `pickle`.
  `concurrent.futures` takes 0.6 ms if `logging` is imported already, asyncio imports it anyway, and
  it does not import pickle.

Callers distinguish three families: `CommError` (the network; trying again may help),
`ProtocolError` (a peer sent something invalid; trying again does not help) and `TaskError` (a task
has no result). `InternalError` is a bug of weft.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .actors import *
from .base import WeftError as WeftError
from .commands import *
from .coordination import *
from .ending import *
from .graphs import *
from .questions import *
from .remedies import with_remedy
from .tasks import *

# --- Messages on a connection ---------------------------------------------------------------------


class ProtocolError(WeftError):
    """A message broke the rules of weft's protocol; the connection it came on is closed.

    Usually the other end is a different version of weft or not weft at all: check the address and
    the versions.

    Args:
        text: what was wrong with the message, in one line.
        peer: address of the other end, "" if unknown.
    """

    def __init__(self, text: str, peer: str = "") -> None:
        super().__init__(text, peer)
        self.text = text
        self.peer = peer

    def __str__(self) -> str:
        return f"{self.text} (peer {self.peer})" if self.peer else self.text


class LocalProtocolError(ProtocolError):
    """This process was about to send a message that the protocol forbids; nothing was sent.

    Most often the message exceeds a limit: send large data in pieces. Any other case is a bug of
    weft; please report it.
    """


class RemoteProtocolError(ProtocolError):
    """The other end sent a message that the protocol forbids; only its connection was closed.

    If the peer is a weft process, compare `weft --version` on both machines.
    """


class HandshakeError(RemoteProtocolError):
    """A connection ended before both ends had proved their identity.

    Check that the address belongs to a weft process of the same cluster. Subclasses name the known
    causes.
    """


class WrongToken(HandshakeError):
    """The two ends do not hold the same token.

    Use the connection file that this scheduler wrote, or set WEFT_TOKEN_FILE to a file with its
    token.
    """

    def __init__(
        self, text: str = "the peer does not hold this cluster's token", peer: str = ""
    ) -> None:
        super().__init__(text, peer)


class WrongVersion(HandshakeError):
    """The two ends have no protocol version in common.

    The text names the versions of each end. Install the same version of weft on both.
    """


class WrongCluster(HandshakeError):
    """The other end has the right token, but belongs to another cluster.

    The usual reason is an old connection file or a re-used port: read the connection file again.
    """


class WrongRole(HandshakeError):
    """The other end is not the kind of process that was expected at this address.

    For example, it is a worker instead of a scheduler. Clients and workers connect to the
    scheduler's address, the one in the connection file.
    """


class NotAdmitted(HandshakeError):
    """The scheduler refused this process, and would refuse it again.

    The text gives the reason, usually a minor version of Python other than the cluster's.
    """


class NotPermitted(WeftError):
    """The token of this process does not permit what it asked for; nothing was done.

    Use a connection file of the role that the text names; the owner of the cluster makes one with
    `weft token`. The connection is still good for all that its own role permits.

    Args:
        what: the thing that was asked for.
        needed: the least role of a token that permits it.
        has: the role of this process's token.
    """

    def __init__(self, what: str, needed: str, has: str) -> None:
        super().__init__(what, needed, has)
        self.what = what
        self.needed = needed
        self.has = has

    def __str__(self) -> str:
        return (
            f"{self.what} needs a token of role {self.needed}, and this one is of role {self.has}: "
            f"'weft token --role {self.needed} --output FILE', run by a user who has the "
            "scheduler's own connection file, writes a connection file with one"
        )


class StaleEpoch(RemoteProtocolError):
    """A message belongs to an earlier start of the scheduler and was refused.

    No action is needed: the sender reconnects, gets the current epoch and sends its state again.

    Args:
        expected: the epoch that is current here.
        got: the epoch of the message.
        peer: address of the sender, "" if unknown.
    """

    def __init__(self, expected: int | str, got: int | str, peer: str = "") -> None:
        super().__init__(f"message of epoch {got} refused: the current one is {expected}", peer)
        self.expected = expected
        self.got = got
        self.args = (expected, got, peer)


# --- The connection itself ------------------------------------------------------------------------


class CommError(WeftError):
    """A connection could not be made or was lost. Weft reconnects where that is safe.

    If the error persists, check the address, that the process there runs, and the network between
    (firewall, VPN, DNS).

    Args:
        text: what happened, in one line.
        address: address of the other end, "" if unknown.
    """

    def __init__(self, text: str, address: str = "") -> None:
        super().__init__(text, address)
        self.text = text
        self.address = address

    def __str__(self) -> str:
        return f"{self.text} ({self.address})" if self.address else self.text


class CommClosed(CommError):
    """The connection was closed by either end; data in transit may or may not have arrived.

    Clients and workers reconnect. If the error persists, look into the log of the process at the
    other end.
    """

    def __init__(self, text: str = "the connection is closed", address: str = "") -> None:
        super().__init__(text, address)


class ConnectTimeout(CommError, TimeoutError):
    """No answer came from this address in time.

    Check that the scheduler runs, that its port is open to this machine, and that the address is
    the one it printed.

    Args:
        text: what happened, in one line.
        address: the address that was tried, "" if unknown.
        timeout_s: how long it was tried, in seconds.
    """

    def __init__(self, text: str, address: str = "", timeout_s: float | None = None) -> None:
        super().__init__(text, address)
        self.timeout_s = timeout_s
        self.args = (text, address, timeout_s)

    def __str__(self) -> str:
        waited = f" after {self.timeout_s:g} s" if self.timeout_s is not None else ""
        return f"{super().__str__()}{waited}"


class ConnectRefused(CommError):
    """The machine answered that no process listens at this address.

    Start the scheduler, or look up its current address: the connection file may be from an earlier
    run.
    """


class StuckPeer(CommError):
    """The other end did not read its messages, so its connection was closed.

    The peer was stopped, hangs, or requests data faster than it reads. It reconnects and gets the
    current state; if this happens again, request less at a time.
    """


class ConfigError(WeftError):
    """An option, environment variable or connection file has a value that weft cannot use.

    The text names the setting, the value and the accepted values; nothing was started.

    Args:
        text: what is wrong, in one line.
        setting: name of the option, variable or file, "" if it is in the text.
    """

    def __init__(self, text: str, setting: str = "") -> None:
        super().__init__(text, setting)
        self.text = text
        self.setting = setting

    def __str__(self) -> str:
        return f"{self.setting}: {self.text}" if self.setting else self.text


class InvalidDuration(ConfigError, ValueError):
    """A time to wait, or another length of time, has a value that weft cannot use.

    Give a number of seconds, a text such as "30s" or "15 min", or a `datetime.timedelta`.
    """


class InvalidAmount(ConfigError, ValueError):
    """An amount that a task asks for is none: `cores=`, `memory=`, or one of `resources=`.

    Give 0 cores, or a number of them that is not too small; memory as bytes or as a text such as
    "8GB"; and finite numbers >= 0 for resources. Nothing was submitted.
    """


class InvalidSchedule(ConfigError, ValueError):
    """The times of a recurring job are wrong: its `cron=`, or what belongs to that.

    Nothing was submitted. Give five fields (minute, hour, day, month, weekday), or six with seconds
    first; a `timezone=` as in "Europe/Berlin"; an `until=` that is not over; and an `overlap=` and
    a `missed=` that there are.
    """


# --- Use of the client ----------------------------------------------------------------------------


class SerializationError(WeftError, TypeError):
    """A function or an argument cannot be pickled; nothing was submitted.

    The usual causes are locks, open files, sockets, generators and database connections. Pass a
    path or a connection string and create the object inside the task, or give its class a
    `__reduce__`.

    Args:
        where: the part that cannot be pickled, as in "argument args[1].conn of load".
        type_name: qualified name of the type that cannot be pickled.
        text: pickle's message.
    """

    def __init__(self, where: str, type_name: str, text: str) -> None:
        super().__init__(where, type_name, text)
        self.where = where
        self.type_name = type_name
        self.text = text

    def __str__(self) -> str:
        text = f"{self.where} cannot be pickled (type {self.type_name}): {self.text}"
        return with_remedy(text, self.type_name)


class ForeignFuture(WeftError, ValueError):
    """An argument of a call is a future that this client cannot use; the call was not submitted.

    Pass the result itself, `future.result()`, or submit both calls to one cluster.
    """


class ClientClosed(WeftError, ValueError):
    """The client of this call or future is closed, or there is none.

    It is a ValueError as well, as that of closed files is, and as dask raises one where there is no
    client.

    Make a new `Client`, or move the call before `close()` or into the `with` block. Results that
    had arrived can still be read from their futures.
    """

    def __init__(self, text: str = "the client is closed") -> None:
        super().__init__(text)
        self.text = text


class NotInTask(ClientClosed, RuntimeError):
    """The calling thread runs no task, and what was called is only for tasks.

    A worker's process has a client for its tasks, and for no other threads. Make the call in the
    task's own function; a thread that it starts may wait for futures, and be given any values.
    """


class WorkerStartTimeout(WeftError, TimeoutError):
    """Fewer workers than were asked for arrived in time.

    Look into the workers' logs. If they only start slowly, for instance on a batch system, raise
    `timeout` or wait for fewer.

    Args:
        wanted: the number of workers that was waited for.
        arrived: the number of workers at the end of the time.
        timeout_s: how long it was waited, in seconds.
        problems: what is known of those that are missing, one line each.
    """

    def __init__(
        self, wanted: int, arrived: int, timeout_s: float, problems: Sequence[str] = ()
    ) -> None:
        super().__init__(wanted, arrived, timeout_s, tuple(problems))
        self.wanted = wanted
        self.arrived = arrived
        self.timeout_s = timeout_s
        self.problems = tuple(problems)

    def __str__(self) -> str:
        text = f"{self.arrived} of {self.wanted} workers arrived in {self.timeout_s:g} s"
        return "\n  ".join([text, *self.problems])


# --- Bugs of weft ---------------------------------------------------------------------------------


class TakenOver(WeftError):
    """Another scheduler of the cluster has taken over, so this one has ended.

    Clients and workers go on with the other one. If it was not meant to run, stop it and start this
    one again.
    """


class InternalError(WeftError):
    """Weft's state contradicts itself. This is a bug of weft, not of your program.

    Please report it with the whole text, which contains the story of the task concerned.

    Args:
        text: the contradiction, in one line.
        story: what happened before, oldest first; printable objects, one per line.
    """

    def __init__(self, text: str, story: Iterable[object] = ()) -> None:
        story = tuple(story)
        super().__init__(text, story)
        self.text = text
        self.story = story

    def __str__(self) -> str:
        return "\n  ".join([self.text, *map(str, self.story)])


class InvalidTransition(InternalError):
    """A task was to move between two states that have no transition.

    This is a bug of weft; please report it with the whole text.

    Args:
        key: the task's key.
        start: the state it is in.
        finish: the state it was to move to.
        story: its transitions so far, oldest first.
    """

    def __init__(self, key: str, start: str, finish: str, story: Iterable[object] = ()) -> None:
        super().__init__(f"task {key!r} cannot go from {start} to {finish}", story)
        self.key = key
        self.start = start
        self.finish = finish
        self.args = (key, start, finish, self.story)


class InvalidState(InternalError):
    """An invariant of a state machine does not hold.

    This is a bug of weft; please report it with the whole text.

    Args:
        text: the invariant, and what was found instead.
        story: what happened before, oldest first.
    """


#: All of them: what `from weft.protocol.errors import *` gives, for the façade.
__all__ = sorted(
    name
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, WeftError)
)


def __dir__() -> list[str]:
    return __all__
