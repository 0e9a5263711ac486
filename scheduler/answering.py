"""Answers questions about the scheduler's own process: log, versions, limits. A part of the shell.

Nothing here takes long: what reads files runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final

from ..protocol.errors import LocalProtocolError
from ..protocol.host.condition import process_condition
from ..protocol.host.log_ring import page_of_latest
from ..protocol.host.versions import versions_for
from ..protocol.net.connection import Connection
from ..protocol.wire.message import Message
from ..protocol.wire.messages import Answer, Ask, AskFailed, Operated
from ..protocol.wire.messages.coordination import TOO_LARGE
from ..protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER

#: {question that reads files: its answer}
_READING: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "versions": versions_for,
    "process": lambda arguments: process_condition(),
}


def answer_of_process(question: Ask, send: Callable[[Message], None]) -> None:
    """Answer a question with `send`, which is called in this loop, now or later."""
    if question.name in _READING:
        loop = asyncio.get_running_loop()
        name = f"weft-{question.name}"
        threading.Thread(target=_read, args=(question, loop, send), name=name, daemon=True).start()
        return
    try:
        info, next_page = page_of_latest(question.arguments, question.page)
    except ValueError as error:
        text = f"question {question.name!r}: {error}"
        send(AskFailed(request=question.request, kind=BAD_ARGUMENT, text=text))
    else:
        send(Answer(request=question.request, info=info, next_page=next_page))


def _read(question: Ask, loop: asyncio.AbstractEventLoop, send: Callable[[Message], None]) -> None:
    answer: Message
    try:
        answer = Answer(request=question.request, info=_READING[question.name](question.arguments))
    except ValueError as error:
        text = f"question {question.name!r}: {error}"
        answer = AskFailed(request=question.request, kind=BAD_ARGUMENT, text=text)
    with contextlib.suppress(RuntimeError):  # the loop is closed: the scheduler has ended
        loop.call_soon_threadsafe(send, answer)


def send_or_fail(connection: Connection, messages: list[Message]) -> None:
    """Send messages; an answer that cannot be encoded fails its question, not the connection."""
    try:
        connection.send(messages)
    except LocalProtocolError:  # none was sent
        if not any(type(message) in (Answer, Operated) for message in messages):
            raise
        for message in messages:
            try:
                connection.send([message])
            except LocalProtocolError as error:
                text = f"the answer cannot be sent: {error.text}"[:1000]
                if type(message) is Answer:
                    failed = AskFailed(request=message.request, kind=NO_ANSWER, text=text)
                    connection.send([failed])
                elif type(message) is Operated:
                    refused = Operated(request=message.request, problem=TOO_LARGE, text=text)
                    connection.send([refused])
                else:
                    raise
