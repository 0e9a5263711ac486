"""Clients of a scheduler's core that call coordination objects."""

from __future__ import annotations

import itertools
from typing import Any

from tests.scheduler.builders import Board
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h


class Caller:
    """A client that calls coordination objects; each call is one more request."""

    def __init__(self, board: Board, name: str, **options: Any) -> None:
        self.board = board
        self.name = name
        self.peer = board.client(name, **options)
        self._numbers = itertools.count(1)

    def call(
        self, kind: str, operation: str, name: str = "x", /, *, request: int = -1, **arguments: Any
    ) -> Any:
        """Call, and return the answer; None = there is none yet."""
        parts = {k: arguments.pop(k) for k in ("values", "keys", "acknowledged") if k in arguments}
        self.request = next(self._numbers) if request < 0 else request
        message = m.Operate(
            request=self.request,
            operation=operation,
            kind=kind,
            name=name,
            arguments=arguments,
            **parts,
        )
        self.board.send(self.peer, message)
        return self.answers().get(self.request)

    def answers(self) -> dict[int, Any]:
        """Return what the last event has answered: info, values, or a problem, by request."""
        return {
            x.request: x.problem
            or x.values
            or {k: v for k, v in x.info.items() if k not in ("number", h.SUPERSEDED)}
            for x in self._operated()
            if x.request
        }

    @property
    def text(self) -> str:
        """What the last problem says of itself, by the last event."""
        return next((x.text for x in self._operated() if x.problem), "")

    def numbers(self) -> list[int]:
        """Return the numbers of what this client has set, by the last event."""
        return [x.info["number"] for x in self._operated() if "number" in x.info]

    def superseded(self) -> list[int]:
        """Return the numbers of its settings that do not hold any more, by the last event."""
        return [n for x in self._operated() for n in x.info.get(h.SUPERSEDED, ())]

    def _operated(self) -> list[m.Operated]:
        return self.board.out.of(self.peer, m.Operated)

    def acquire(self, lease: str = "1", owner: str = "t", kind: str = h.LOCK, **more: Any) -> Any:
        return self.call(kind, "acquire", lease=lease, owner=owner, **more)

    def release(self, lease: str = "1", kind: str = h.LOCK, **more: Any) -> Any:
        return self.call(kind, "release", lease=lease, **more)

    def put(self, value: bytes, *keys: str, **more: Any) -> Any:
        return self.call(h.QUEUE, "put", values=[value], keys=[*keys], **more)

    def get(self, **more: Any) -> Any:
        return self.call(h.QUEUE, "get", **more)

    def drain(self, **more: Any) -> Any:
        return self.call(h.QUEUE, "drain", **more)

    def withdraw(self, request: int) -> Any:
        number = next(self._numbers)
        arguments = {"request": request}
        self.board.send(
            self.peer, m.Operate(request=number, operation=h.WITHDRAW, arguments=arguments)
        )
        return self.answers().get(number)
