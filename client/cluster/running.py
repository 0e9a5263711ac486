"""`Client.run`: a function that is called on workers, outside of scheduling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from ...protocol.errors import NoAnswer, NotSupported, QuestionFailed
from ...protocol.values.exceptions import add_note, unpack_exception
from ...protocol.values.serialize import dumps, function_name, loads
from ...protocol.wire.failure import MAX_RELAYED_BYTES
from ...protocol.wire.payload import blob_nbytes
from ...protocol.wording import sized
from ..future import Future
from ..insight.asking import ask_each, ask_once
from ..insight.inspecting import find_workers
from ..modes import waits
from ..shell.engine import Engine

if TYPE_CHECKING:
    from ..client import Client

_ON_ERROR = ("raise", "return", "ignore")


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
        ``{address: result}``.

    Raises:
        UnknownWorker: no connected worker has this name.
        NoAnswer: a worker died, or lost its connection, before it answered.
        NotPermitted: the client's token is of a lower role than client.

    Example:
        >>> import os
        >>> pids = client.run(os.getpid)                # {address: pid}
        >>> len(pids)
        2
    """
    blob = _prepare(function, args, kwargs, nanny, on_error)
    call = _run(client._running(), blob, function_name(function), workers, wait, on_error)
    return client._run(call)


def _prepare(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    nanny: bool,
    on_error: str,
) -> Any:
    """Return the pickle of a call, in the caller's thread.

    Raises:
        TypeError, ValueError, NotSupported: an argument of `run` is not valid.
        SerializationError: the function or an argument cannot be pickled.
        QuestionFailed: the call is too large to be passed on by the scheduler.
    """
    if not callable(function):
        raise TypeError(f"run needs a function, not {type(function).__name__}")
    if on_error not in _ON_ERROR:
        raise ValueError(f'on_error= is "raise", "return" or "ignore", not {on_error!r}')
    if nanny:
        raise NotSupported(
            "supervisors run no functions of users: they watch the workers and must answer at "
            "once. A weft.SupervisorPlugin runs once on each machine; without nanny= the function "
            "runs on the workers"
        )
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, Future):
            raise TypeError(
                f"run passes its arguments as they are, and {argument.key!r} is a future: pass "
                "future.result(), or use submit"
            )
    name = function_name(function)
    blob = dumps((function, args, kwargs), f"the call of {name}")
    nbytes = blob_nbytes(blob)
    if nbytes > MAX_RELAYED_BYTES:
        raise QuestionFailed(
            f"run of {name} has {sized(nbytes)} of arguments and data that the function "
            f"reads, more than the limit of {sized(MAX_RELAYED_BYTES)}: the scheduler passes "
            "them on to each worker. Let the function read the data where it runs, or use submit"
        )
    return blob


async def _run(
    engine: Engine,
    blob: Any,
    name: str,
    workers: str | Iterable[str] | None,
    wait: bool,
    on_error: str,
) -> dict[str, Any]:
    """Call the function on workers."""
    found = await find_workers(engine, workers)

    async def run_one(address: str) -> Any:
        worker = found[address]
        process = f"worker {worker['name']}"
        arguments = {"name": name, "wait": wait}
        answer = await ask_once(engine, "run", arguments, [blob], to=worker["id"], process=process)
        failure = answer.info.get("failure")
        if failure is not None:
            return _Raised(unpack_exception(failure))
        if not answer.blobs or answer.blobs[0] is None:
            return None
        try:
            return loads(answer.blobs[0])
        except Exception as error:
            add_note(error, f"weft: the answer of {process} to client.run could not be read here")
            return _Raised(error)

    answers = await ask_each(found, run_one)
    errors = {
        address: answer.error if isinstance(answer, _Raised) else answer
        for address, answer in answers.items()
        if isinstance(answer, (_Raised, QuestionFailed))
    }
    if errors and on_error == "raise":
        raise _first(errors, len(answers))
    if on_error == "ignore":
        return {a: answer for a, answer in answers.items() if a not in errors}
    return {**answers, **errors}


class _Raised:
    """The exception of a call, which is told apart from one that it has returned."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _first(errors: dict[str, BaseException], n_workers: int) -> BaseException:
    """Return the first error of the function itself, or else of a worker that did not answer."""
    own = [error for error in errors.values() if not isinstance(error, NoAnswer)]
    first = (own or list(errors.values()))[0]
    if n_workers > 1:
        add_note(
            first,
            f"weft: it failed on {len(errors)} of {n_workers} workers; run(..., on_error='return') "
            "returns the answer or the error of each",
        )
    return first


def run_on_scheduler(client: Client[Any], *_args: Any, **_kwargs: Any) -> NoReturn:
    """Refuse: the scheduler runs no functions of users.

    Raises:
        NotSupported: always; the text says what to use.
    """
    raise NotSupported(
        "the scheduler runs no functions of users: it never unpickles, so that a client can "
        "neither stop nor change it. client.run(function) runs on the workers; "
        "client.scheduler_info(), client.story(key) and `weft info` show the scheduler's state"
    )
