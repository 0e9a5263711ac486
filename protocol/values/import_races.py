"""Reads a pickle again after threads that imported at once have failed each other.

Python locks a module while a thread imports it. Two threads that begin in different modules of a
package, which import each other, would wait for one another for ever. So in one of them Python
raises an error (`_DeadlockError`) in the middle of the import, and the other one may then miss what
the first has taken out of `sys.modules` again. The slots of a new worker are such threads when they
read the first arguments, and dask.dataframe is such a package. What fails in this way is read again
by one thread at a time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

#: Before each further attempt: the thread that goes on has to come to its end.
_PAUSES_S: Final = (0.02, 0.1, 0.3, 1.0)
#: So many for an error that each attempt of a single thread may give as well.
_N_DOUBTFUL: Final = 2
_alone = threading.RLock()


def is_import_race(error: BaseException) -> bool:
    """Return whether an error may come from imports of several threads."""
    return _is_certain(error) or (
        isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError)
    )


def _is_certain(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ == "_DeadlockError":
            return True
        if isinstance(seen, KeyError) and _is_of_import(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _is_of_import(error: KeyError) -> bool:
    """Return whether a module that was imported just now is not among the modules any more."""
    names = error.args[:1]
    code = None
    trace = error.__traceback__
    while trace is not None:
        code, trace = trace.tb_frame.f_code, trace.tb_next
    is_here = code is not None and code.co_filename.startswith(("<frozen importlib", _HERE))
    return is_here and all(isinstance(name, str) for name in names)


#: Of the functions that unpickle: the interpreter's own code has no frame.
_HERE: Final = os.path.dirname(__file__) + os.sep


def read_alone(read: Callable[[], Any]) -> Any:
    """Return what `read()` returns, which has failed in a race of imports."""
    with _alone:
        for number, pause_s in enumerate(_PAUSES_S, start=1):
            time.sleep(pause_s)
            try:
                return read()
            except Exception as error:
                if not is_import_race(error):
                    raise
                if number >= _N_DOUBTFUL and not _is_certain(error):
                    raise
        return read()
