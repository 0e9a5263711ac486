"""The lines that tasks print and log, from workers to the clients that have submitted them."""

from __future__ import annotations

from typing import Final

from ..message import Ints, Message, Number, Text, Texts, message

#: Values of `TaskOutput.levels` that are no level of logging.
DROPPED: Final = 0  #: the text is the number of lines that were left out
STDOUT: Final = 1
STDERR: Final = 2
#: The name is that of the category.
WARNED: Final = 3
#: Records of logging have at least this one.
LEAST_LEVEL: Final = 5
#: A number in `TaskOutput.clients`: the row is for each client of the cluster.
EVERYONE: Final = 0


@message(27)
class WantOutput(Message):
    """Want the lines that tasks print, and their records of logging from `level` on.

    A client sends it for its own tasks; 0 = it wants nothing. The scheduler sends workers the
    lowest level that any client wants, and the numbers of these clients, as in `AssignTasks`.
    """

    clients: Ints
    level: Number


@message(79, columns=("clients", "keys", "levels", "names", "texts"))
class TaskOutput(Message):
    """Report lines of tasks: to the scheduler, and by that to the clients.

    A client is sent those of its own tasks, if it wants them, and those for EVERYONE.

    `names` are those of loggers, "" for what was printed. A row of level DROPPED is about the rows
    of the same client.
    """

    clients: Ints  #: for which the tasks run
    keys: Texts  #: of the tasks
    levels: Ints
    names: Texts
    texts: Texts
    worker: Text = ""  #: its name, for display; set by the scheduler; "" = lines of any worker
