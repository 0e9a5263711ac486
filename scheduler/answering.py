"""Answers questions about the scheduler's own process: its log, its versions. A part of the shell.

Nothing here takes long: `versions` reads files, so it runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from ..protocol.host.log_ring import page_of_latest
from ..protocol.host.versions import versions_for
from ..protocol.wire.message import Message
from ..protocol.wire.messages import Answer, Ask, AskFailed
from ..protocol.wire.messages.questions import BAD_ARGUMENT


def answer_of_process(question: Ask, send: Callable[[Message], None]) -> None:
    """Answer a question with `send`, which is called in this loop, now or later."""
    if question.name == "versions":
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=_read_versions, args=(question, loop, send), name="weft-versions", daemon=True
        )
        thread.start()
        return
    try:
        info, next_page = page_of_latest(question.arguments, question.page)
    except ValueError as error:
        text = f"question {question.name!r}: {error}"
        send(AskFailed(request=question.request, kind=BAD_ARGUMENT, text=text))
    else:
        send(Answer(request=question.request, info=info, next_page=next_page))


def _read_versions(
    question: Ask, loop: asyncio.AbstractEventLoop, send: Callable[[Message], None]
) -> None:
    answer: Message
    try:
        answer = Answer(request=question.request, info=versions_for(question.arguments))
    except ValueError as error:
        text = f"question {question.name!r}: {error}"
        answer = AskFailed(request=question.request, kind=BAD_ARGUMENT, text=text)
    with contextlib.suppress(RuntimeError):  # the loop is closed: the scheduler has ended
        loop.call_soon_threadsafe(send, answer)
