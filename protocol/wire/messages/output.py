"""The lines that tasks print and log, from workers to the clients that have submitted them.

And the records of loggers that clients follow, whatever writes them on the workers.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from ..message import Blobs, Info, Ints, Message, Number, Text, Texts, message
from ..roles import CLIENTS, WORKERS, Role

#: Values of `TaskOutput.levels` that are no level of logging.
DROPPED_LINES: Final = 0  #: the text is the number of lines that were left out
STDOUT: Final = 1
STDERR: Final = 2
#: The name is that of the category.
WARNED: Final = 3
#: Records of logging have at least this one.
LEAST_LEVEL: Final = 5
#: A number in `TaskOutput.clients`: the row is for each client of the cluster.
EVERYONE: Final = 0


#: Loggers that one client follows, and characters of their names, and of those of records.
MAX_LOGGERS: Final = 100
MAX_LOGGER_CHARS: Final = 200


@message(27, by=(Role.CLIENT,), to=WORKERS)
class WantOutput(Message):
    """Want the lines that tasks print, and their records of logging from `level` on.

    A client sends it for its own tasks; 0 = it wants nothing. The scheduler sends workers the
    lowest level that any client wants, and the numbers of these clients, as in `AssignTasks`.

    `loggers` are followed: a client wants their records, and those of the loggers below them,
    from all workers. The scheduler sends workers those of all clients, each with the lowest level.
    They are a map, because a message of columns may be read in parts, and each would be a wish.
    """

    clients: Ints
    level: Number
    loggers: Info = field(default_factory=dict)  #: {name, "" = the root: the least level, > 0}


@message(79, by=WORKERS, to=CLIENTS, columns=("clients", "keys", "levels", "names", "texts"))
class TaskOutput(Message):
    """Report lines of tasks: to the scheduler, and by that to the clients.

    A client is sent those of its own tasks, if it wants them, and those for EVERYONE.

    `names` are those of loggers, "" for what was printed. A row of level DROPPED_LINES
    is about the rows of the same client.
    """

    clients: Ints  #: for which the tasks run
    keys: Texts  #: of the tasks
    levels: Ints
    names: Texts
    texts: Texts
    worker: Text = ""  #: its name, for display; set by the scheduler; "" = lines of any worker


@message(205, by=WORKERS, to=CLIENTS, columns=("names", "levels", "dropped", "records"))
class LogRecords(Message):
    """Report records of loggers that clients follow: to the scheduler, and by that to the clients.

    A row with a number in `dropped` is no record: so many of this logger were left out.
    """

    names: Texts  #: of loggers; "" = the root, or for a notice several
    levels: Ints  #: of the records; of a notice the highest
    dropped: Ints
    records: Blobs  #: the attributes of each, as packed plain data; None for a notice
    worker: Text = ""  #: its name; set by the scheduler; "" = the scheduler has left them out


@message(216, by=WORKERS, columns=("attempts", "stdout", "stderr", "cut"))
class AttemptsPrinted(Message):
    """Report what attempts have printed whose output is kept, just before they end."""

    attempts: Ints
    stdout: Texts  #: the last of it; see `protocol/values/printed.py`
    stderr: Texts
    cut: Ints  #: 1 = it has printed more
