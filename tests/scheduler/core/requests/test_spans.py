"""Tags of spans: kept with the tasks of a submission, and handed on to what these submit."""

from __future__ import annotations

from tests.scheduler.builders import Board, graph
from weft.protocol.wire import messages as m
from weft.protocol.wire.columns import MAX_SPAN_TAGS
from weft.protocol.wire.roles import Role
from weft.scheduler.core.members.task_passes import pass_of

KEY = b"of the proofs"


def inside(board):
    """Let a client in the tasks of worker "w" register; return its peer."""
    peer = board.connect(Role.TASK_CLIENT)
    board.send(
        peer,
        m.RegisterClient(
            client_id="in",
            name="in",
            session=1,
            last_epoch=0,
            facts={},
            worker_id="id of w",
            task_pass=pass_of(KEY, "id of w"),
        ),
    )
    return peer


def test_tasks_have_the_tags_of_their_submission_and_of_the_task_that_submits_them():
    board = Board(epoch_key=KEY)
    board.worker("w", nthreads=4)
    alice, within = board.client("alice"), inside(board)
    board.send(alice, graph("outer", span=["nightly", "load"]))
    attempt = board.attempt("outer")
    board.send(within, graph("same", attempt=attempt))
    board.send(within, graph("inner", attempt=attempt, span=["part"]))
    board.send(alice, graph("plain"))
    spans = {key: board.task(key).group.options.span for key in ("outer", "same", "inner", "plain")}
    assert spans == {
        "outer": ["nightly", "load"],
        "same": ["nightly", "load"],
        "inner": ["nightly", "load", "part"],
        "plain": (),
    }
    (described,) = _ask(board, alice, "tasks", keys=["inner"])["tasks"]
    assert described["span"] == ["nightly", "load", "part"]
    shown = _ask(board, alice, "attempts", keys=["outer", "plain", "inner"])["options"]
    assert shown == {
        "outer": {"span": ["nightly", "load"]},
        "inner": {"span": ["nightly", "load", "part"]},
    }


def test_no_task_has_more_tags_than_one_may_submit():
    board = Board(epoch_key=KEY)
    board.worker("w", nthreads=4)
    alice, within = board.client("alice"), inside(board)
    tags = [str(i) for i in range(MAX_SPAN_TAGS)]
    board.send(alice, graph("outer", span=tags))
    board.send(within, graph("inner", attempt=board.attempt("outer"), span=["more"]))
    assert board.task("inner").group.options.span == tags


def test_a_task_that_runs_elsewhere_keeps_its_tags(board):
    worker = board.worker("w")
    board.send(board.client("alice"), graph("t", span=["nightly"]))
    board.send(
        worker,
        m.AttemptsErred(
            attempts=[board.attempt("t")],
            durations_us=[10],
            failures=[["reschedule", "t", "no disk"]],
        ),
    )
    assert board.task("t").group.options.span == ["nightly"]
    assert board.task("t").group.task_class.avoided


def _ask(board, peer, name, **arguments):
    board.send(peer, m.Ask(request=9, name=name, arguments=arguments))
    return board.out[peer][-1].info
