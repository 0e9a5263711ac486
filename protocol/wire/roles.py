"""The roles of the ends of a connection, and the level of token that each needs.

Each message names the roles that send it, and those that it is sent to (`message`).
"""

from __future__ import annotations

import enum
from typing import Final

from .levels import Level


class Role(enum.IntEnum):
    """The role of a process on a connection. The numbers, below 16, are on the wire.

    None is reused.
    """

    CLIENT = 1
    WORKER = 2
    #: The process that watches a worker.
    SUPERVISOR = 3
    #: Reads the state of the cluster, changes nothing.
    VIEWER = 4
    #: A worker or a client that connects to a worker's data port.
    PEER = 5
    #: The accepting end on the scheduler's port.
    SCHEDULER = 6
    #: The accepting end on a worker's data port.
    WORKER_DATA = 7
    #: A client in the tasks of a worker, which submits on behalf of the tasks that run there.
    TASK_CLIENT = 8


#: {role of a connecting end: the least level of its token}
ROLE_LEVELS: Final = {
    Role.CLIENT: Level.CLIENT,
    Role.WORKER: Level.WORKER,
    Role.SUPERVISOR: Level.WORKER,
    Role.VIEWER: Level.VIEW,
    Role.PEER: Level.WORKER,
    Role.TASK_CLIENT: Level.WORKER,
}

# What messages name: the roles of connecting ends. Those of peers go to a data port, or come from
# one, and all others to the scheduler, or from it.
CLIENTS: Final = (Role.CLIENT, Role.TASK_CLIENT)
WORKERS: Final = (Role.WORKER,)
SUPERVISORS: Final = (Role.SUPERVISOR,)
VIEWERS: Final = (Role.VIEWER,)
PEERS: Final = (Role.PEER,)
#: Roles of peers that have a session.
REGISTERED: Final = CLIENTS + WORKERS + SUPERVISORS
ALL: Final = REGISTERED + VIEWERS + PEERS
