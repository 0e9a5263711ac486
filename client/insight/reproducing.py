"""`reproduce`: runs the call of a task in this process, with its inputs, to look at its failure."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...protocol.errors import QuestionFailed
from ...protocol.values.serialize import loads, loads_arguments
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.messages import ACTOR_FUNCTION, Answer
from ..modes import waits
from ..results.gathering import Gathering
from ..shell.current import future_of
from ..shell.engine import Engine
from .asking import ask_once
from .inspecting import keys_of

if TYPE_CHECKING:
    from ..client import Client

#: True: the debugger of Python; a function: is called with the traceback.
Debugger: TypeAlias = "bool | Callable[[TracebackType | None], object]"


class FetchedCall(NamedTuple):
    """The call of a task, with the values of its inputs."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@waits
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
    if not isinstance(debugger, bool) and not callable(debugger):
        raise TypeError(
            "debugger= is True, or a function of a traceback such as pdb.post_mortem, not "
            f"{type(debugger).__name__}"
        )
    engine = client._running()
    if engine.is_asynchronous:
        return _reproduce_async(engine, task, debugger)
    return run_here(client._run(fetch_call(engine, task)), debugger)


@waits
def recreate_error_locally(client: Client[Any], future: Any) -> Any:
    """Do what `reproduce` does; dask's name of it."""
    return client.reproduce(future)


async def _reproduce_async(engine: Engine, task: Any, debugger: Debugger) -> Any:
    call = await fetch_call(engine, task)
    return await asyncio.to_thread(run_here, call, debugger)


async def fetch_call(engine: Engine, task: Any) -> FetchedCall:
    """Fetch the function, the arguments and the inputs of a task.

    Raises:
        TypeError: there is not one future or key.
        QuestionFailed: the scheduler has no such call.
    """
    keys = keys_of(engine, task, "reproduce")
    if len(keys) != 1:
        raise TypeError(f"reproduce takes one future or key, not {len(keys)}")
    answer = await _ask_call(engine, keys[0])
    with reading("the scheduler"):
        names = part_of(answer.info, "inputs", list)
        function_blob, args_blob = answer.blobs
    if function_blob is None or args_blob is None:
        raise QuestionFailed(f"task {keys[0]!r} has no call that could be run")
    futures = [future_of(engine, key) for key in names]
    values = await Gathering(engine, futures, "raise").awaited() if futures else []
    args, kwargs = loads_arguments(args_blob, values)
    function = _make if function_blob == ACTOR_FUNCTION else loads(function_blob)
    return FetchedCall(function, args, kwargs)


def _make(cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make the object of an actor here."""
    return cls(*args, **kwargs)


async def _ask_call(engine: Engine, key: str) -> Answer:
    """Ask for the call of a task, or of the input by which it failed here, without being sent."""
    try:
        return await ask_once(engine, "call", {"keys": [key]}, [], to="", process="")
    except QuestionFailed:
        state = engine.table.states.get(key)
        culprit = None if state is None or state.failure is None else str(state.failure[1])
        if culprit is None or culprit == key:
            raise
        return await ask_once(engine, "call", {"keys": [culprit]}, [], to="", process="")


def run_here(call: FetchedCall, debugger: Debugger) -> Any:
    """Run a call in this thread; an exception is raised as it is, after the debugger has ended."""
    try:
        result = call.function(*call.args, **call.kwargs)
        if inspect.iscoroutine(result):
            result = _run_to_its_end(result)
        return result
    except Exception as error:
        if debugger is not False:
            traceback = error.__traceback__
            # The frame of the function, not this one.
            _enter(debugger, traceback if traceback is None else traceback.tb_next or traceback)
        raise


def _run_to_its_end(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop of its own, also in a thread that runs one, as notebooks do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1, "weft-reproduce") as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _enter(debugger: Debugger, traceback: TracebackType | None) -> None:
    if callable(debugger):
        debugger(traceback)
        return
    import pdb

    with contextlib.suppress(SystemExit):  # q in the debugger
        pdb.post_mortem(traceback)
