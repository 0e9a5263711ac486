"""Requests for results of attempts that have not ended: they wait here until the core answers.

All small results that end together go to a reader in one writing. Others take the way of any
request (`serving`). A request waits for `LONGEST_S` at most, so the connection of a reader is
never silent for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol.net.connection import Connection
from ...protocol.wire.message import Message
from ...protocol.wire.messages import GetData, GetPromised, KeysData
from ..core.features.promises import PromiseAsked, PromiseExpired

if TYPE_CHECKING:
    from ..slots.executor import TaskExecutor

#: A request waits no longer, seconds: the scheduler places the task again that waits for it.
LONGEST_S: Final = 10.0
#: A larger result is not packed on the loop.
_SMALL_BYTES: Final = 64 << 10


@dataclass(slots=True, eq=False)
class _Waiting:
    connection: Connection
    message: GetPromised
    timer: asyncio.TimerHandle


class PromisedServing:
    """The requests that wait for the ends of attempts. For the loop's thread only."""

    def __init__(
        self, executor: TaskExecutor, serve: Callable[[Connection, GetData], None]
    ) -> None:
        """Answer with what `executor` has; `serve` sends what is not small."""
        self._executor = executor
        self._serve = serve
        #: {number: a request} of those that were not answered
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0

    def ask(self, connection: Connection, message: GetPromised) -> None:
        """Answer a request now or later."""
        self._last += 1
        timer = asyncio.get_running_loop().call_later(LONGEST_S, self._expire, self._last)
        self._waiting[self._last] = _Waiting(connection, message, timer)
        self._executor.handle(PromiseAsked(self._last, message.attempt))

    def answer(self, asked: list[int]) -> None:
        """Answer these requests: their attempts have ended, with a result or without."""
        messages: dict[Connection, list[Message]] = {}
        for number in asked:
            waiting = self._waiting.pop(number, None)
            if waiting is None:
                continue
            waiting.timer.cancel()
            answer = self._result_of(waiting)
            if answer is not None:
                messages.setdefault(waiting.connection, []).append(answer)
        for connection, answers in messages.items():
            connection.send(answers)

    def closed(self, connection: Connection) -> None:
        """Forget the requests of a reader that is gone."""
        for number, waiting in list(self._waiting.items()):
            if waiting.connection is connection:
                self._forget(number)

    def close(self) -> None:
        """Answer nothing any more."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()

    def _expire(self, number: int) -> None:
        waiting = self._forget(number)
        message = waiting.message
        waiting.connection.send([_missing(message)])

    def _forget(self, number: int) -> _Waiting:
        waiting = self._waiting.pop(number)
        waiting.timer.cancel()
        self._executor.handle(PromiseExpired(number, waiting.message.attempt))
        return waiting

    def _result_of(self, waiting: _Waiting) -> Message | None:
        """Return the answer; None if it is on its way."""
        message, connection = waiting.message, waiting.connection
        for key, attempt, nbytes in self._executor.lookup([message.key]):
            if attempt != message.attempt:
                continue
            if nbytes <= _SMALL_BYTES and connection.writable:
                blob = self._executor.store.pack_plain(attempt, key)
                if blob is not None:
                    return KeysData(request=message.request, keys=[key], results=[blob], missing=[])
            self._serve(connection, GetData(request=message.request, keys=[key]))
            return None
        return _missing(message)


def _missing(message: GetPromised) -> KeysData:
    return KeysData(request=message.request, keys=[], results=[], missing=[message.key])
