"""Plugins of workers, as clients register them and workers report them."""

from __future__ import annotations

from typing import Any

from weft.protocol.wire import messages as m

from ...builders import Board, Out

FAILURE = ["ValueError", "no", b"pickle"]


def register(board: Board, peer: int, name: str = "p", content: str = "1", **arguments: Any) -> Out:
    """Let a peer register a plugin."""
    given = {"name": name, "plugin": f"{name}-{content}", **arguments}
    question = m.Ask(request=9, name="register_plugin", arguments=given, blobs=[b"pickle"])
    return board.send(peer, question)


def unregister(board: Board, peer: int, name: str = "p") -> Out:
    question = m.Ask(request=8, name="unregister_plugin", arguments={"name": name})
    return board.send(peer, question)


def asked(out: Out, peer: int, kind: type[Any] = m.SetUpPlugin) -> list[Any]:
    """Return what a process is asked to set up."""
    return [message for message in out.get(peer, []) if type(message) is kind]


def done(board: Board, peer: int, *requests: Any, failure: Any = None) -> Out:
    """Let a process report what it was asked."""
    info = {} if failure is None else {"failure": failure}
    return board.send(peer, *(m.PluginDone(request=x.request, info=info) for x in requests))


def answers(out: Out, peer: int) -> list[Any]:
    kinds = (m.Answer, m.AskFailed, m.Denied)
    return [message for message in out.get(peer, []) if isinstance(message, kinds)]


def dies(
    board: Board, supervisor: int, worker: int, kind: str = "exit", running: tuple[int, ...] = ()
) -> Out:
    """Let the process of a worker end, as its supervisor reports it."""
    worker_id = board.state.workers[worker].worker_id
    report = m.WorkerExited(
        worker_id=worker_id, reason="exit code 4", running=[*running], kind=kind
    )
    board.send(supervisor, report)
    return board.close(worker)


def n_died(board: Board, client: int, supervisor: int, n: int) -> None:
    """Let new workers die one after the other while they set up a plugin."""
    for i in range(n):
        worker = board.worker(f"new{i}", supervisor_id="sup")
        assert asked(board.out, worker)
        dies(board, supervisor, worker)
