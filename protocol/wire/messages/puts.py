"""Messages about values that clients put: large arguments, which no function makes.

The scheduler assigns such a task to a worker like any other. The worker waits for the value, and
the client is asked to put it there: to the worker's data port, or through the scheduler if the
client cannot reach that.
"""

from __future__ import annotations

from typing import Final

from ..message import Blobs, Flag, Ints, Keys, Message, Number, Text, Texts, message
from ..roles import CLIENTS, PEERS, WORKERS

#: The function of tasks whose value a client puts; its blob is empty, and their arguments too.
PUT_FUNCTION: Final = b"weft: put a data"
#: The same of indexes of parts, whose values the scheduler makes: see `part_index`.
INDEX_FUNCTION: Final = b"weft: part index"


@message(
    44,
    to=CLIENTS,
    columns=("keys", "attempts", "holder_of"),
    tables=(("holders",),),
    indexes=("holder_of",),
)
class PutWanted(Message):
    """Ask a client to put the values of keys at `holders[holder_of[i]]`, which awaits them."""

    keys: Keys
    attempts: Ints
    holder_of: Ints
    holders: Texts  #: addresses


@message(25, by=CLIENTS, columns=("keys", "attempts"))
class PutFailed(Message):
    """Report values that the client does not have, or cannot send."""

    keys: Keys
    attempts: Ints
    reason: Text


@message(113, by=CLIENTS + PEERS, to=WORKERS, columns=("keys", "attempts", "values"))
class Put(Message):
    """Put the values of attempts: to a data port, which answers `PutDone`, or to the scheduler.

    The scheduler passes it on to the worker. `request` is 0 then, and there is no answer.
    """

    request: Number
    keys: Keys
    attempts: Ints
    values: Blobs


@message(117, to=PEERS)
class PutDone(Message):
    """Answer a `Put` at a data port: the worker has the values, or has no use for them.

    Also answers `PutFiles`. If not `is_taken`, the worker could not read the files.
    """

    request: Number
    is_taken: Flag = True


@message(146, by=PEERS, columns=("keys", "attempts", "files"))
class PutFiles(Message):
    """Do `Put` with values in files of the client's host, which `host` stands for."""

    request: Number
    keys: Keys
    attempts: Ints
    files: Blobs  #: see `host_blobs`
    host: Text
