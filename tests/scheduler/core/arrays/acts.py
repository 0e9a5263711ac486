"""What tests of arrays do with a board: submit one, look at its rows, end some, and ask."""

from __future__ import annotations

from typing import Any

from weft.protocol.wire import messages as m
from weft.scheduler.core.arrays.records import NONE_BLOB, arrays_of

from ...builders import Board, graph
from .disk import Disk


def array(n: int = 6, key: str = "a", **options: Any) -> m.SubmitTasks:
    return graph(key, array=[[0, n, 1, 0]], detached=True, **options)


def live(board: Board, key: str = "a") -> list[int]:
    """Return the numbers of the rows that are tasks."""
    found = arrays_of(board.state).get(board.task(key))
    return [] if found is None else sorted(found.live)


def end(board: Board, disk: Disk, worker: int, *rows: int, key: str = "a") -> None:
    board.finish(worker, *(f"{key}/{row}" for row in rows), blob=NONE_BLOB)
    disk.commit(board)


def sent(board: Board, peer: int, kind: type[Any]) -> list[Any]:
    """Return all messages of a kind to a peer, of all events."""
    found = [message for out in board._outs for message in out.of(peer, kind)]
    board.drop_rest()
    return found


def ask(board: Board, disk: Disk, client: int, name: str, **arguments: Any) -> list[Any]:
    """Ask about rows of `a`; return the answers."""
    question = m.Ask(request=9, name=name, arguments={"key": "a", **arguments})
    answers: list[Any] = []
    out = board.send(client, question)
    answers += [*out.of(client, m.Answer), *out.of(client, m.AskFailed)]
    board.drop_rest()
    before = len(board._outs)
    disk.commit(board)
    for later in board._outs[before:]:
        answers += [*later.of(client, m.Answer), *later.of(client, m.AskFailed)]
    board.drop_rest()
    return answers
