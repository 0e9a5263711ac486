"""Messages about actors: calls go from each holder straight to the data port of the actor's worker.

The scheduler is sent only which actors wait, if that lasts.

An actor is made by a task of `ACTOR_FUNCTION`. Scheduler and worker know such a task by its
function: its result is never made a second time, because what the object has learned would be
missing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field
from typing import Final

from ..message import (
    Blobs,
    Failures,
    Ints,
    KeyLists,
    Keys,
    Message,
    Number,
    Text,
    Texts,
    message,
)
from ..roles import PEERS, WORKERS

#: The function of tasks that make an actor; workers have it, and its id stands for its pickle. The
#: class is the first of their arguments.
ACTOR_FUNCTION: Final = b"weft: make actor"


def call_text(holder: str, connection: int, request: int) -> str:
    """Return the text that names a call: its holder, the number of its connection, its request."""
    return f"{holder}/{connection}/{request}"


def call_of(text: str) -> tuple[str, int, int] | None:
    """Return what `call_text` was given; None for another text."""
    parts = text.split("/")
    if len(parts) != 3 or not all(n.isascii() and n.isdecimal() and len(n) < 20 for n in parts[1:]):
        return None
    return parts[0], int(parts[1]), int(parts[2])


def is_unanswered(
    call: str, begun: Mapping[str, Sequence[int]], unanswered: Container[str]
) -> bool:
    """Return whether an actor has yet to answer a call.

    Args:
        call: its text; of another text it is not known, so False.
        begun: {holder: the last of its calls that has begun, as [connection, request]}.
        unanswered: the texts of the calls that have begun and were not answered.
    """
    named = call_of(call)
    if named is None:
        return False
    holder, *numbers = named
    last = begun.get(holder)
    return last is None or numbers > [*last] or call in unanswered


@message(150, by=PEERS, columns=("requests", "names", "arguments"))
class ActorCalls(Message):
    """Call methods of one actor, in this order; without arguments, read an attribute.

    A holder numbers its connections. What comes over an earlier one than the last is not done: the
    holder has given it up, and has perhaps sent later calls already.
    """

    actor: Text  #: what only holders of the actor know
    holder: Text
    connection: Number
    requests: Ints
    names: Texts
    arguments: Blobs


@message(151, to=PEERS, columns=("requests", "results"), optional_columns=("keys",))
class ActorResults(Message):
    """Return what calls of actors returned, and the keys of the futures and actors in that.

    The worker wants these keys until it is sent `ActorResultsTaken`.
    """

    requests: Ints
    results: Blobs
    keys: KeyLists = field(default_factory=list)


@message(152, to=PEERS, columns=("requests", "failures"))
class ActorFailures(Message):
    """Return what calls of actors raised, or why they were not done."""

    requests: Ints
    failures: Failures


@message(197, by=PEERS)
class ActorResultsTaken(Message):
    """Report that the scheduler has read that the holder wants the keys in these results."""

    requests: Ints


# -- of a worker to the scheduler -----------------------------------------------------------------
@message(195, by=WORKERS, columns=("names", "attempts", "keys", "actors", "calls", "begun", "open"))
class ActorsBlocked(Message):
    """Report actors whose threads wait, and have waited for a while: no other call of them goes on.

    `keys`, `actors` and `calls` have what each waits for, as in `AttemptsBlocked`. `begun` names
    the last call of each holder that has begun, and `open` the calls that have begun and have not
    been answered: all other calls up to these have been answered.
    """

    names: Keys  #: the keys of the actors
    attempts: Ints  #: that have made them
    keys: KeyLists
    actors: KeyLists
    calls: KeyLists
    begun: KeyLists
    open: KeyLists


@message(196, by=WORKERS, columns=("attempts",))
class ActorsResumed(Message):
    """Report actors of which it was reported that they wait, and that go on."""

    attempts: Ints
