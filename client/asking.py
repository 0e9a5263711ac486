"""Questions of a client to the scheduler, page by page; each of them is in scheduler/README.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from ..protocol.errors import (
    ClientClosed,
    CommClosed,
    NoAnswer,
    NotPermitted,
    QuestionFailed,
    UnsupportedRequest,
    WeftError,
)
from ..protocol.wire.messages import Answer, AskFailed, Denied, Unsupported
from .core.events import AskScheduler
from .shell.engine import Engine
from .shell.watchers import AsyncWaiter, ThreadWaiter

#: A scheduler that has not answered a page after this is taken for hanging.
TIMEOUT_S: Final = 60.0
#: Keys asked about at once; the scheduler's limit.
N_KEYS: Final = 1000


async def ask(
    engine: Engine,
    name: str,
    arguments: dict[str, Any] | None = None,
    timeout: float | None = TIMEOUT_S,
) -> AsyncIterator[dict[str, Any]]:
    """Yield the pages of the scheduler's answer, in any event loop.

    What a page holds may change before the next one is asked for. After a lost connection the
    question goes on, also with another scheduler.

    Args:
        engine: the client's.
        name: of the question.
        arguments: of the question, plain data.
        timeout: seconds for each page.

    Raises:
        NoAnswer: no page came in time.
        QuestionFailed: the scheduler does not know the question, or an argument is not valid.
        NotPermitted: the client's token does not permit this question.
        ClientClosed, CommClosed: the client ended meanwhile.
    """
    page = ""
    while True:
        waiter = AsyncWaiter(1, wants_data=False)
        question = AskScheduler(waiter, name, arguments or {}, page)
        is_done = await engine.wait_async(waiter, question, timeout)
        answer = checked(engine, name, waiter.answer, is_done, timeout)
        yield answer.info
        page = answer.next_page
        if not page:
            return


def ask_blocking(
    engine: Engine,
    name: str,
    arguments: dict[str, Any] | None = None,
    timeout: float | None = TIMEOUT_S,
) -> Iterator[dict[str, Any]]:
    """Yield the pages as `ask` does, in a thread that may block."""
    page = ""
    while True:
        waiter = ThreadWaiter(1, wants_data=False)
        question = AskScheduler(waiter, name, arguments or {}, page)
        is_done = engine.wait(waiter, question, timeout)
        answer = checked(engine, name, waiter.answer, is_done, timeout)
        yield answer.info
        page = answer.next_page
        if not page:
            return


async def ask_about(engine: Engine, name: str, keys: Sequence[str]) -> AsyncIterator[Any]:
    """Yield the pages of answers about any number of keys."""
    for i in range(0, len(keys), N_KEYS):
        async for info in ask(engine, name, {"keys": list(keys[i : i + N_KEYS])}):
            yield info


def checked(engine: Engine, name: str, answer: Any, is_done: bool, timeout: float | None) -> Answer:
    """Return the answer to one page.

    Raises:
        WeftError: see `ask`.
    """
    if isinstance(answer, Answer):
        return answer
    if isinstance(answer, AskFailed):
        raise QuestionFailed(answer.text)
    if isinstance(answer, Unsupported):
        raise UnsupportedRequest(f"the question {name!r}", "the scheduler")
    if isinstance(answer, Denied):
        raise NotPermitted(f"the question {name!r} to the scheduler", answer.needed, answer.level)
    if not is_done:
        raise NoAnswer(f"the scheduler did not answer {name!r} within {timeout:g} s")
    raise error_of_end(engine)


def error_of_end(engine: Engine) -> WeftError:
    """Return why a client got no answer and never will."""
    end = engine.core.end
    if end is not None and end[0] == "connection-lost":
        return CommClosed(end[2])
    return ClientClosed("the client was closed before the scheduler answered")
