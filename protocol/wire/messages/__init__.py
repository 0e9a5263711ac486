"""Every message of weft, by direction. Messages about tasks are columns: one list per field.

Rules for all of them:

- After `handle` has put a message into an out-box, its lists must not change: within one process
  the message itself is handed over, without a copy.
- Tasks are named by **key** between client and scheduler, and by **attempt** (a number that no
  scheduler of the cluster uses twice) between scheduler and worker; so a stale report cannot be
  mistaken for a current one.
- Results, arguments, functions and exceptions are opaque `Blob`s to the scheduler.

Type checkers see through the imports below: a message is named once, where it is declared.
"""

from __future__ import annotations

from .actors import *
from .coordination import *
from .from_clients import *
from .from_supervisors import *
from .from_workers import *
from .inventories import *
from .output import *
from .plugins import *
from .puts import *
from .questions import *
from .retrying import *
from .sessions import *
from .times import *
from .to_clients import *
from .to_workers import *
from .viewers import *

#: The spec hash of a row whose key is weft's own, among rows that have one.
NO_HASH = bytes(16)
