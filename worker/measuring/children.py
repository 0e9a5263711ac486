"""Sends the user's functions and classes to the processes that a task starts by `multiprocessing`.

`multiprocessing` pickles functions and classes as names, which its processes look up in their
`__main__`. The user's functions have no name in a worker: its `__main__` is weft's, the tasks of
many clients run beside each other, and each of them may have a function `f`. With names there, one
client could get the function of another. So objects that cannot be imported are pickled by value
here, too.
"""

from __future__ import annotations

import pickle
import types
from typing import Any

from ...protocol.values.pickling import cloudpickle_dumps, is_importable


def send_user_code_by_value() -> None:
    """Have `multiprocessing` pickle by value, in this process and in those that it forks.

    For worker processes. Call it once, before workers are forked: importing `multiprocessing` takes
    some milliseconds.
    """
    from multiprocessing.reduction import ForkingPickler

    if "reducer_override" not in vars(ForkingPickler):
        setattr(ForkingPickler, "reducer_override", _reduce)  # noqa: B010 - it declares none


def _reduce(_pickler: pickle.Pickler, obj: Any) -> Any:
    """Return the reduction of `obj`; NotImplemented leaves it to pickle."""
    if isinstance(obj, (types.FunctionType, type)) and not is_importable(obj):
        if isinstance(obj, type) and obj.__module__ == "builtins":
            return NotImplemented  # NoneType and the like, which pickle knows
        return pickle.loads, (cloudpickle_dumps(obj),)
    return NotImplemented
