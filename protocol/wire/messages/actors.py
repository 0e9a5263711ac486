"""Messages about actors: calls go from each holder straight to the data port of the actor's worker.

An actor is made by a task of `ACTOR_FUNCTION`. The scheduler knows such a task by its function: its
result is never made a second time, because what the object has learned would be missing.
"""

from __future__ import annotations

from typing import Final

from ..message import Blobs, Failures, Ints, Message, Number, Text, Texts, message

#: The function of tasks that make an actor. The class is the first of their arguments.
ACTOR_FUNCTION: Final = b"weft: make actor"
#: The pickle of that function, by its name: clients do not import the package of workers.
ACTOR_BLOB: Final = b"cweft.worker.actors\nmake_actor\n."


@message(150, columns=("requests", "names", "arguments"))
class ActorCalls(Message):
    """Call methods of one actor, in this order; without arguments, read an attribute.

    A holder numbers its connections. What comes over an earlier one than the last is not done: the
    holder has given it up, and has perhaps sent later calls already.
    """

    actor: Text  #: what only holders of the actor know
    holder: Text
    line: Number
    requests: Ints
    names: Texts
    arguments: Blobs


@message(151, columns=("requests", "results"))
class ActorResults(Message):
    """Return what calls of actors returned."""

    requests: Ints
    results: Blobs


@message(152, columns=("requests", "failures"))
class ActorFailures(Message):
    """Return what calls of actors raised, or why they were not done."""

    requests: Ints
    failures: Failures
