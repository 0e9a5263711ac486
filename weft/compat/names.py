"""The one table of names of dask.distributed that `install` changes, and what each becomes.

A module, a name, and the object of weft that is used where a weft client is current. Each name is
changed in the modules in which libraries look it up, and in modules that have imported it already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: A function or a class whose calls go to weft; a class of which weft's objects count as instances;
#: a base class of weft's exception; a name that weft refuses.
Kind = Literal["function", "class", "instances", "exception", "refused"]


@dataclass(frozen=True)
class Name:
    """A name of dask.distributed.

    Attributes:
        kind: what becomes of it.
        name: the name.
        modules: where it is changed. For functions also the module that defines them, so that
            they are pickled by their names.
        weft: `module below weft:attribute`, or for what is refused the advice.
    """

    kind: Kind
    name: str
    modules: tuple[str, ...]
    weft: str


_TOP: Final = ("distributed",)
_CLIENT: Final = ("distributed", "distributed.client")
_WORKER: Final = ("distributed", "distributed.worker")

NAMES: Final = (
    # Which client, and its futures.
    Name("class", "Client", _CLIENT, "client:Client"),
    Name("function", "default_client", _CLIENT, "client:default_client"),
    Name("function", "get_client", _WORKER, "client:get_client"),
    Name("instances", "Future", _TOP, "client:Future"),
    Name("instances", "ClientExecutor", ("distributed.cfexecutor",), "client:Executor"),
    # Functions of futures.
    Name("class", "as_completed", _CLIENT, "client:as_completed"),
    Name("function", "fire_and_forget", _CLIENT, "client.background:fire_and_forget"),
    Name("function", "futures_of", _CLIENT, "client:futures_of"),
    Name("function", "progress", _TOP, "client:progress"),
    Name("function", "wait", _CLIENT, "compat.future_names:wait"),
    # In tasks.
    Name("function", "get_worker", _WORKER, "compat.worker_names:get_worker"),
    Name("function", "local_client", _TOP, "client:worker_client"),
    Name("function", "print", _WORKER, "client.printing:print"),
    Name("function", "rejoin", _TOP, "worker.slots.seats:rejoin"),
    Name("function", "secede", _WORKER, "worker.slots.seats:secede"),
    Name("function", "warn", _WORKER, "client.printing:warn"),
    Name("function", "worker_client", _TOP, "client:worker_client"),
    # What programs share, and look at.
    Name("class", "Event", _TOP, "client.coordination.event:Event"),
    Name("class", "Lock", _TOP, "client.coordination.locks:Lock"),
    Name("class", "MultiLock", _TOP, "client.coordination.locks:MultiLock"),
    Name("class", "Queue", _TOP, "client.coordination.queue:Queue"),
    Name("class", "Semaphore", _TOP, "client.coordination.locks:Semaphore"),
    Name("class", "Variable", _TOP, "client.coordination.variable:Variable"),
    Name(
        "class",
        "performance_report",
        _CLIENT,
        "client.insight.performance_report:performance_report",
    ),
    Name("class", "get_task_stream", _TOP, "client.insight.task_stream:get_task_stream"),
    Name("function", "span", _TOP, "client.calls.spans:span"),
    # Exceptions: that of weft is caught by the name of dask's. `CancelledError` and `TimeoutError`
    # are Python's own in both.
    Name("exception", "KilledWorker", _TOP, "protocol.errors:WorkerDied"),
    Name(
        "exception",
        "FutureCancelledError",
        ("distributed.client",),
        "protocol.errors:TaskCancelled",
    ),
    Name("class", "Reschedule", _TOP, "protocol.errors:Reschedule"),
    # What weft has not.
    Name(
        "refused",
        "get_task_metadata",
        _CLIENT,
        "use weft.get_task_stream for states and times; "
        "return other facts from the task, or weft.get_client().log_event them",
    ),
)
