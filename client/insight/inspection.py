"""The methods of `Client` that show its cluster, and `run`: names and shapes are those of dask."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from ...protocol.durations import seconds_or_none
from ...protocol.errors import NotSupported
from ..modes import waits
from ..shell.short_tracebacks import short_tracebacks
from . import cluster_info

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ..client import Client


# --- The cluster ----------------------------------------------------------------------------------


@waits
def wait_for_workers(
    client: Client[Any], n_workers: int = 1, timeout: Duration | None = None
) -> None:
    """Wait until the cluster has at least `n_workers`.

    Raises:
        WorkerStartTimeout: the cluster had fewer after `timeout`.
    """
    timeout_s = seconds_or_none(timeout, "timeout")
    with short_tracebacks:
        return cluster_info.wait_for_workers(client._running(), n_workers, timeout_s)


# --- Tasks and results ----------------------------------------------------------------------------


def reproduce(client: Client[Any], task: Any, debugger: Any = False) -> Any:
    """Run the call of a task here, with its inputs, as if it were called in this program.

    It is for a task that failed, whose exception is raised here from its own frames. If it
    failed because an input failed, the call of that input is run. The function runs in the
    calling thread, in an asynchronous client in one of its own; inputs that are not there any
    more are computed again on the cluster. Code that needs the worker finds none.

    Args:
        task: a future, or a key.
        debugger: True = enter pdb where the exception was raised; or a function of a traceback
            that does so, such as `ipdb.post_mortem`.

    Returns:
        The result, if no exception is raised here.

    Raises:
        Exception: that of the task, as raised here.
        QuestionFailed: the scheduler has no such call any more.
        NotPermitted: the client's token is of a lower role than client.
    """
    from .reproducing import reproduce

    return reproduce(client, task, debugger)


def recreate_error_locally(client: Client[Any], future: Any) -> Any:
    """Do what `reproduce` does; dask's name of it."""
    return client.reproduce(future)


#: dask's name for tasks that have not failed.
recreate_task_locally = recreate_error_locally


# --- Where the time went --------------------------------------------------------------------------


def get_task_stream(
    client: Client[Any],
    start: Duration | None = None,
    stop: Duration | None = None,
    count: int | None = None,
    plot: bool | str = False,
    filename: str | os.PathLike[str] = "task-stream.html",
    bokeh_resources: None = None,
) -> Any:
    """Return the times of attempts that ended since the first call, the latest 100 000.

    The first call has times recorded for an hour, and returns what is there: mostly nothing.
    Each further one renews that. `weft.get_task_stream` is a context manager.

    Args:
        start: leave out what ended before: seconds since 1970 by the
            scheduler's clock, or a time before its now as "60s".
        stop: leave out what began later, likewise.
        count: how many, the latest; None = all.
        plot: True = return a picture as well, which notebooks show; "save" = also write it.
        filename: of that file, an HTML page that needs no other file.
        bokeh_resources: accepted for compatibility with dask; only None is allowed.

    Returns:
        A list of dicts in order of `stop`: `key`, `function`, `span`, `worker` (address),
        `name` (of the worker), `thread`, `attempt`, `status` ("OK" or "error"), `type`,
        `nbytes`, `waited` (seconds) and `startstops`: `[{"action", "start", "stop"}, ...]`,
        seconds since 1970, where the action is "compute" or "transfer". With `plot` the list
        and the picture.

    Raises:
        ValueError: an argument is out of range.
        NotPermitted: the client's token is of a lower role than client.
    """
    from .task_stream import read_task_stream

    if bokeh_resources is not None:
        raise NotSupported("bokeh_resources=: leave it out, the page needs no other file")
    return read_task_stream(client, start, stop, count, plot, filename)


@waits
def dump_cluster_state(
    client: Client[Any],
    /,
    filename: str | os.PathLike[str] = "weft-cluster-dump",
    write_from_scheduler: bool | None = None,
    exclude: Collection[str] = (),
    format: str = "msgpack",
    **storage_options: Any,
) -> str:
    """Write what the cluster tells about itself to a file of this machine, for later.

    It has the scheduler, its workers and clients, the versions of packages, the scheduler's
    events, up to 100 000 tasks with their stories (those at workers, of this client, and
    results), and the logs. Secrets, arguments and results are not in it.

    Args:
        filename: `.msgpack.gz` or `.yaml` is added.
        write_from_scheduler: accepted for compatibility with dask; not True.
        exclude: names of sections, or of fields, that are left out.
        format: "msgpack": a gzip file of rows `[section, value]`, which `msgpack.Unpacker`
            reads one by one; or "yaml": each section is a list.
        storage_options: there are none.

    Returns:
        The path of the file.

    Raises:
        NotSupported: the scheduler, or a storage elsewhere, is to be written to.
        OSError: the file cannot be written.
        NotPermitted: the client's token is of a lower role than client.
    """
    from .dumping import dump_cluster_state

    return dump_cluster_state(
        client, filename, write_from_scheduler, exclude, format, storage_options
    )


# --- Logs -----------------------------------------------------------------------------------------


# --- Workers that leave -------------------------------------------------------------------------


@waits
def retire_workers(
    client: Client[Any],
    /,
    workers: str | Iterable[str] | None = None,
    close_workers: bool = True,
    *,
    names: str | Iterable[str] | None = None,
    n: int | None = None,
    keep: int | None = None,
    timeout: Duration | None = None,
    **others: NoReturn,
) -> dict[str, dict[str, Any]]:
    """Let workers finish what they run and leave; return when they are gone.

    Their unstarted tasks run elsewhere. A result of which a worker has the only copy, and that
    is still needed, is computed again. Of several workers those go first whose end costs least:
    that run nothing and solely hold nothing. One with the only copy of something that cannot be
    computed again is kept. A worker of a `LocalCluster` is not replaced.

    Args:
        workers: their addresses, names or hosts; None = `n` of all.
        close_workers: accepted for compatibility with dask; only True is allowed.
        names: the same as `workers`.
        n: how many of them leave; None = all that are named.
        keep: how many workers stay, in place of `n`.
        timeout: seconds, "30s", ...; the workers leave all the same, later.
        others: there are no others.

    Returns:
        `{address: {"name", "end", "reason", "n_recomputed"}}`: the end is "left", "lost" (it
        died before), or "kept" for the reason.

    Raises:
        UnknownWorker: no connected worker has this name.
        TimeoutError: tasks still run after `timeout`.
        NotPermitted: the client's token is of a lower role than client.
    """
    from ..cluster.retiring import check_arguments, retire_of_client

    wanted = check_arguments(workers, names, n, keep, close_workers, others)
    timeout_s = seconds_or_none(timeout, "timeout")
    client._running()
    return client._run(retire_of_client(client, wanted, n, keep, timeout_s))


@waits
def scale(
    client: Client[Any],
    /,
    n: int,
    *,
    wait: bool = False,
    timeout: Duration | None = None,
    **others: NoReturn,
) -> dict[str, Any]:
    """Have `n` workers in the whole cluster, as `weft scale n` does.

    The connected `weft worker` processes start more, each on its machine, those with the fewest
    first. Workers that are too many finish what they run, and leave, as by `retire_workers`.
    With a `LocalCluster` it is its `scale`. The number is absolute: a call that is repeated
    changes nothing.

    Args:
        n: the number of workers.
        wait: return when they are there, and those that leave are gone.
        timeout: of the wait: seconds, "30s", ...; the cluster is scaled all the same.
        others: there are no others.

    Returns:
        `{address: {"name", "end", "reason", "n_recomputed"}}` of the workers that leave.

    Raises:
        NotPermitted: the client's token is not that of an admin.
        QuestionFailed: no `weft worker` is connected that could start more, or one cannot.
        TimeoutError: `wait` took longer than `timeout`.
        NotSupported: Kubernetes starts the workers: use the `scale` of the cluster.
    """
    from ..cluster import scaling

    n = scaling.check_arguments(n, others)
    timeout_s = seconds_or_none(timeout, "timeout")
    client._running()
    return client._run(scaling.scale_client(client, n, wait, timeout_s))


# --- Calls outside of scheduling ------------------------------------------------------------------


@waits
def run(
    client: Client[Any],
    /,
    function: Callable[..., Any],
    *args: Any,
    workers: str | Iterable[str] | None = None,
    wait: bool = True,
    nanny: bool = False,
    on_error: str = "raise",
    **kwargs: Any,
) -> dict[str, Any]:
    """Call a function on workers, at once, in a thread beside their tasks.

    It is for looking and for setting up, not for work: it is not placed, not counted and not
    run again. A coroutine function runs on an event loop of its own in that thread.
    `weft.get_worker()` works in it.

    Args:
        function: the function to call; a parameter `dask_worker` gets the worker, if it is not
            among the arguments.
        args: its positional arguments; futures are not replaced by their results.
        workers: names, hosts or addresses; None = all.
        wait: for the results; False returns None for each as soon as the call has begun.
        nanny: accepted for compatibility with dask; only False is allowed.
        on_error: "raise" the first error when all workers have answered; "return" errors in
            the places of results; "ignore": leave failed workers out.
        kwargs: its keyword arguments.

    Returns:
        `{address: result}`.

    Raises:
        UnknownWorker: no connected worker has this name.
        NoAnswer: a worker died, or lost its connection, before it answered.
        NotPermitted: the client's token is of a lower role than client.
    """
    from ...protocol.values.serialize import function_name
    from ..cluster.running import prepare, run

    blob = prepare(function, args, kwargs, nanny, on_error)
    name = function_name(function)
    return client._run(run(client._running(), blob, name, workers, wait, on_error))


def run_on_scheduler(client: Client[Any], *_args: Any, **_kwargs: Any) -> NoReturn:
    """Refuse: the scheduler runs no functions of users.

    Raises:
        NotSupported: always; the text says what to use.
    """
    from ..cluster.running import refuse_on_scheduler

    raise refuse_on_scheduler()
