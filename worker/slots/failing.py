"""Reports of tasks that raised, or that could not be unpickled."""

from __future__ import annotations

import itertools
import logging
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Final

from ...protocol.errors import InternalError, Reschedule, UnpicklableResult
from ...protocol.host.blocking import closed_here
from ...protocol.values.exceptions import name_packed, pack_exception
from ...protocol.values.serialize import function_name, loads_arguments
from ...protocol.wire.failure import Failure, interrupted, reschedule
from ..core.events import WorkerEvent
from ..core.features.memory import ValueLost
from ..core.features.traces import TracedFunction
from ..core.tasks import WorkerTask
from ..data.parts_lost import PartsGone
from ..data.spill_files import GoneValue
from ..data.store import Store
from .coroutines import called
from .interrupting import IN_PLACE_OF, Interrupts, TaskInterrupted

logger: Final = logging.getLogger("weft.worker")

#: Of a task that asks to be run elsewhere.
_MAX_REASON_CHARS: Final = 1000


def failure_in_slot(
    error: BaseException,
    task: WorkerTask,
    worker: str,
    load: CodeType,
    interrupts: Interrupts,
    handle: Callable[[WorkerEvent], object],
) -> Failure:
    """Return the report of a task that has ended by an error, whoever has raised it.

    Args:
        error: what was raised, with its traceback.
        task: the task.
        worker: the name of this worker.
        load: the code that unpickles functions.
        interrupts: what was asked to be interrupted.
        handle: takes an event to the core.
    """
    logger.debug("task %s raised (attempt id %d)", task.key, task.attempt)
    if isinstance(error, TaskInterrupted):
        if interrupts.was_mistaken(task):
            error = Reschedule(IN_PLACE_OF)
        elif interrupts.was_asked(task.attempt):
            return interrupted(task.key)
    elif isinstance(error, GoneValue):
        with closed_here():
            handle(ValueLost(error.attempt))
    elif isinstance(error, PartsGone):
        with closed_here():
            for report in error.reports:
                handle(report)
        error = Reschedule(str(error))
    return failure_of(error, task, worker, load)


def failure_of(error: BaseException, task: WorkerTask, worker: str, load: CodeType) -> Failure:
    """Return the report of a task that has raised.

    Args:
        error: what it raised, with its traceback.
        task: the task.
        worker: the name of this worker.
        load: the code that unpickles functions.
    """
    if isinstance(error, Reschedule):
        return reschedule(task.key, str(error.reason)[:_MAX_REASON_CHARS])
    packed = pack_exception(error, task.key, worker)
    what = _what_could_not_be_read(error, task, load)
    if what:
        note = f"weft: {what} could not be unpickled on worker {worker}"
        note += "; the task has not started"
        if isinstance(error, ModuleNotFoundError):
            note += (
                f". Install {error.name} there, send it there with client.upload_file, start the "
                "worker with PYTHONPATH set to its folder, or call "
                "cloudpickle.register_pickle_by_value with it before its first use"
            )
        packed = name_packed(packed, task.key, note)
    return ["exception", task.key, *packed]


def unsendable(error: Exception, key: str, worker: str) -> Failure:
    """Return what is reported of a task whose report cannot be sent."""
    text = f"the report of task {key!r} cannot be sent to the scheduler: {error}"
    logger.error("%s", text, extra={"code": "message-unsendable"})
    return ["exception", key, *pack_exception(InternalError(text), key, worker)]


def _what_could_not_be_read(error: BaseException, task: WorkerTask, load: CodeType) -> str:
    """Return what was being unpickled when `error` was raised; "" if the task raised it."""
    if isinstance(error, (InternalError, UnpicklableResult)):
        return ""  # its text states the cause
    # The frames below the slot's own show it; noting each task's progress would cost time.
    trace = traceback.walk_tb(error.__traceback__)
    codes = [frame.f_code for frame, _ in itertools.islice(trace, 1, 5)]
    if load in codes:
        return f"the function of task {task.key}"
    of = f"of task {task.key}, a call of {_called_name(task)},"
    if loads_arguments.__code__ in codes[:2]:
        return f"an argument {of}"
    if Store.load_plain.__code__ in codes:
        return f"an argument {of} which is the result of another task,"
    return ""


def _called_name(task: WorkerTask) -> str:
    function = task.function
    call = function.of.call if isinstance(function, TracedFunction) else function.call
    if call is None:  # another thread has had functions unpickled again
        return "a function"
    return function_name(called(call))
