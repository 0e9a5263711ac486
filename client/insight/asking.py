"""Questions of a client to its cluster, page by page.

`scheduler/core/insight/questions.py` has the questions to the scheduler. Those to workers and
supervisors (`worker/answering.py`, `worker/family/supervisor_link.py`) are passed on by the
scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...protocol.errors import ClientClosed, CommClosed, NoAnswer, QuestionFailed, WeftError
from ...protocol.wire.answers import Pages, answer_in
from ...protocol.wire.messages import Answer
from ...protocol.wire.payload import Blob
from ..core.features.questions import AskScheduler
from ..shell.both_ways import wait, waiter_here
from ..shell.engine import Engine
from ..shell.watchers import AsyncWaiter, Waiter

T = TypeVar("T")

#: A scheduler that has not answered a page after this is taken for hanging.
TIMEOUT_S: Final = 60.0
#: Keys asked about at once; the scheduler's limit.
N_KEYS: Final = 1000
#: Processes that are asked at the same time.
_N_AT_ONCE: Final = 50


async def ask(
    engine: Engine,
    name: str,
    arguments: dict[str, Any] | None = None,
    timeout: float | None = TIMEOUT_S,
    *,
    to: str = "",
    process: str = "",
) -> AsyncIterator[dict[str, Any]]:
    """Yield the pages of an answer, in any event loop, or in a thread that blocks.

    What a page holds may change before the next one is asked for. After a lost connection the
    question goes on, also with another scheduler.

    Args:
        engine: the client's.
        name: of the question.
        arguments: of the question, plain data.
        timeout: seconds for each page.
        to: the id of the worker or supervisor that is asked; "" = the scheduler.
        process: its name, for errors.

    Raises:
        NoAnswer: no page came in time, or the process is gone.
        QuestionFailed: it does not know the question, an argument is not valid, or its answer has
            no end.
        NotPermitted: the client's token does not permit this question.
        ClientClosed, CommClosed: the client ended meanwhile.
    """
    pages = Pages(process)
    is_left = True
    while is_left:
        waiter = waiter_here()
        question = AskScheduler(waiter, name, arguments or {}, pages.page, to)
        is_done = await wait(engine, waiter, question, timeout)
        answer = checked(engine, question, is_done, timeout, process)
        yield answer.info
        is_left = pages.turn(answer)


async def pages_of(
    engine: Engine, name: str, arguments: dict[str, Any], timeout: float | None
) -> list[dict[str, Any]]:
    """Return all pages of the scheduler's answer."""
    return [page async for page in ask(engine, name, arguments, timeout)]


async def ask_once(
    engine: Engine,
    name: str,
    arguments: dict[str, Any],
    blobs: Sequence[Blob],
    *,
    to: str,
    process: str,
) -> Answer:
    """Return the answer of a worker to a question that must not be asked twice, however late.

    Raises:
        WeftError: see `ask`.
    """
    waiter = AsyncWaiter(1, wants_data=False)
    question = AskScheduler(waiter, name, arguments, "", to, [*blobs], is_repeated=False)
    is_done = await engine.wait_async(waiter, question, None)
    return checked(engine, question, is_done, None, process)


async def ask_about(engine: Engine, name: str, keys: Sequence[str]) -> AsyncIterator[Any]:
    """Yield the pages of answers about any number of keys."""
    for i in range(0, len(keys), N_KEYS):
        async for info in ask(engine, name, {"keys": list(keys[i : i + N_KEYS])}):
            yield info


async def ask_each(
    processes: Iterable[T], question: Callable[[T], Awaitable[Any]]
) -> dict[T, Any | WeftError]:
    """Ask many processes at the same time; return the answer, or the error, of each.

    Raises:
        NotPermitted, ClientClosed, CommClosed: none of them can be asked.
    """
    turns = asyncio.Semaphore(_N_AT_ONCE)

    async def ask_one(process: T) -> Any:
        async with turns:
            try:
                return await question(process)
            except QuestionFailed as error:
                return error

    processes = list(processes)
    tasks = [asyncio.ensure_future(ask_one(process)) for process in processes]
    try:
        answers = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return dict(zip(processes, answers, strict=True))


def checked(
    engine: Engine,
    question: AskScheduler,
    is_done: bool,
    timeout: float | None,
    process: str = "",
) -> Answer:
    """Return the answer to one page.

    Raises:
        WeftError: see `ask`.
    """
    waiter = question.watcher
    assert isinstance(waiter, Waiter)
    answer = answer_in(waiter.answer, question.name, process)
    if answer is not None:
        return answer
    if not is_done:
        text = f"it did not answer {question.name!r} within {timeout:g} s"
        raise NoAnswer(text, process or "the scheduler")
    raise error_of_end(engine)


def error_of_end(engine: Engine) -> WeftError:
    """Return why a client got no answer and never will."""
    end = engine.core.end
    if end is not None and end[0] == "connection-lost":
        return CommClosed(end[2])
    return ClientClosed("the client was closed before the scheduler answered")
