"""delegation.py: clients in the tasks of workers: what they may do, for whom, and until when."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.actions import CloseConnection
from weft.scheduler.core.members.task_passes import pass_of

from ...builders import Board, assigned, graph, sent_keys

KEY = b"of the proofs"


@pytest.fixture
def board() -> Board:
    return Board(epoch_key=KEY, away_s=5.0)


def register(board: Board, worker_id: str, *, task_pass: str | None = None, client_id: str = "in"):
    """Let a client in the tasks of a worker register; return its peer."""
    peer = board.connect(Role.TASK_CLIENT)
    board.send(
        peer,
        m.RegisterClient(
            client_id=client_id,
            name=client_id,
            session=1,
            last_epoch=0,
            facts={},
            worker_id=worker_id,
            task_pass=pass_of(KEY, worker_id) if task_pass is None else task_pass,
        ),
    )
    return peer


@pytest.fixture
def inside(board):
    """A worker that runs the task "parent" of a client, and the client in its tasks."""
    client, worker = board.client(), board.worker()
    board.send(client, graph("parent"))
    return register(board, "id of w"), worker, client


def test_a_task_that_runs_may_submit(board, inside):
    peer, worker, _ = inside
    out = board.send(peer, graph("child", attempt=board.attempt("parent")))
    assert list(assigned(out, worker)) == ["child"]
    assert board.task("child").group.client == board.task("parent").group.client


def test_the_calls_of_a_task_stand_right_behind_it(board, inside):
    peer, worker, client = inside
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    board.send(client, graph(" ".join(f"other{i}" for i in range(40)), workers=["nowhere", "w"]))
    board.send(client, graph("later", priority=-1))
    board.send(peer, graph("child", attempt=board.attempt("parent")))
    assert board.task("child").priority <= board.task("parent").priority
    assert board.task("child").priority < board.task("other0").priority


def test_a_grandchild_may_submit_as_well(board, inside):
    peer, worker, _ = inside
    board.send(peer, graph("child", attempt=board.attempt("parent")))
    out = board.send(peer, graph("grandchild", attempt=board.attempt("child")))
    assert list(assigned(out, worker)) == ["grandchild"]


def test_a_task_that_runs_may_submit_before_its_own_client_is_back(board):
    """The scheduler was started again, and does not know the task yet."""
    board.state.first_attempt = board.state.next_attempt = 100
    board.come_back(last_epoch=5, running={"parent": 3})
    assert "parent" not in board.state.tasks
    peer = register(board, "id of w")
    board.send(peer, graph("child", attempt=3))
    assert board.states("child") == ["queued"]


def test_a_function_of_a_refused_call_may_be_left_out_in_the_next_message(board, inside):
    peer, worker, _ = inside
    refused = graph("a", function="new", attempt=77)
    allowed = graph("b", function="new", blob=None, attempt=board.attempt("parent"))
    out = board.send(peer, refused, allowed)
    is_refused(board, out, peer, "a")
    assert list(assigned(out, worker)) == ["b"]


def is_refused(board, out, peer, *keys):
    erred = [one for one in out.get(peer, []) if type(one) is m.KeysErred]
    assert [key for one in erred for key in one.keys] == list(keys)
    assert {failure[0] for one in erred for failure in one.failures} == {"not-permitted"}
    assert not any(key in board.state.tasks for key in keys)


def test_an_actor_may_submit_as_long_as_it_lives(board, inside):
    peer, worker, client = inside
    making = graph("actor", "plain")
    making.functions = [m.ACTOR_FUNCTION] * len(making.functions)
    board.send(client, making)
    board.finish(worker, "parent")
    board.finish(worker, "actor", blob=None)
    attempt = board.attempt("actor")
    out = board.send(peer, graph("child", attempt=attempt, actor="actor"))
    assert "child" in assigned(out, worker)
    assert board.task("child").group.client == board.task("actor").group.client
    other = register(board, f"id of {board.state.workers[board.worker('v')].name}", client_id="2")
    is_refused(board, board.send(other, graph("a", attempt=attempt, actor="actor")), other, "a")
    is_refused(board, board.send(peer, graph("b", attempt=attempt)), peer, "b")
    wrong = graph("c", attempt=attempt + 100, actor="actor")
    is_refused(board, board.send(peer, wrong), peer, "c")
    board.send(client, m.ReleaseKeys(keys=["actor"]))
    late = graph("d", attempt=attempt, actor="actor")
    is_refused(board, board.send(peer, late), peer, "d")


def test_the_result_of_a_common_task_submits_nothing(board, inside):
    peer, worker, _ = inside
    attempt = board.attempt("parent")
    board.finish(worker, "parent")
    out = board.send(peer, graph("child", attempt=attempt, actor="parent"))
    is_refused(board, out, peer, "child")


def test_a_worker_without_a_running_task_submits_nothing(board):
    board.client(), board.worker()
    peer = register(board, "id of w")
    is_refused(board, board.send(peer, graph("child")), peer, "child")
    is_refused(board, board.send(peer, graph("other", attempt=7)), peer, "other")
    assert board.state.counters.denied == 2


def test_a_submission_for_the_task_of_another_worker_is_refused(board, inside):
    board.worker("other")
    peer = register(board, "id of other", client_id="two")
    where = board.state.workers[board.where("parent")]
    if where.worker_id == "id of other":
        peer = inside[0]
    out = board.send(peer, graph("child", attempt=board.attempt("parent")))
    is_refused(board, out, peer, "child")


def test_a_submission_after_the_end_of_the_task_is_refused(board, inside):
    peer, worker, _ = inside
    attempt = board.attempt("parent")
    board.finish(worker, "parent")
    is_refused(board, board.send(peer, graph("child", attempt=attempt)), peer, "child")


def test_a_submission_for_a_dropped_task_is_refused(board, inside):
    peer, _, client = inside
    attempt = board.attempt("parent")
    board.send(client, m.ReleaseKeys(keys=["parent"]))
    is_refused(board, board.send(peer, graph("child", attempt=attempt)), peer, "child")


def test_of_one_message_only_the_rows_of_other_attempts_are_refused(board, inside):
    peer, worker, _ = inside
    message = graph("good", "bad", "fine")
    message.options = [{"attempt": board.attempt("parent")}, {"attempt": 9}]
    message.option_of = [0, 1, 0]
    out = board.send(peer, message)
    assert list(assigned(out, worker)) == ["good", "fine"]
    is_refused(board, out, peer, "bad")


def test_a_wrong_pass_is_refused(board):
    board.worker()
    for wrong in ("", "00", pass_of(KEY, "id of other"), pass_of(b"other", "id of w")):
        peer = register(board, "id of w", task_pass=wrong)
        assert peer not in board.state.roles
    assert "its pass is wrong" in board.refused()[-1]


def test_a_client_of_a_worker_that_is_not_there_is_refused(board):
    peer = register(board, "id of w")
    assert peer not in board.state.roles
    (closing,) = (one for one in board.actions if isinstance(one, CloseConnection))
    assert "a worker that is not registered now" in closing.reason
    assert not closing.is_error  # its worker is leaving, or is on its way
    board.close(board.worker("w"))  # it is expected back
    peer = register(board, "id of w")
    assert peer not in board.state.roles


def test_a_client_in_a_task_cannot_take_the_place_of_another_client(board, inside):
    board.worker("other")
    peer = register(board, "id of w", client_id="alice")
    assert peer not in board.state.roles
    assert "its id is that of another client" in board.refused()[-1]
    peer = register(board, "id of other", client_id="in")
    assert peer not in board.state.roles
    peer = board.client("in")
    assert peer not in board.state.roles
    assert inside[0] in board.state.roles


def test_a_worker_is_sent_its_pass_and_a_client_none(board):
    client = board.connect(Role.CLIENT)
    registration = m.RegisterClient(client_id="c", name="c", session=1, last_epoch=0, facts={})
    out = board.send(client, registration)
    assert [one.task_pass for one in out.get(client, []) if type(one) is m.Welcome] == [""]


@pytest.mark.parametrize("message", [m.ShutdownCluster(reason=""), m.GetMetrics(request=1)])
def test_a_client_in_a_task_may_send_no_other_messages(board, inside, message):
    peer, *_ = inside
    out = board.send(peer, message)
    is_denied = any(type(one) is m.Denied for one in out.get(peer, []))
    assert is_denied or peer not in board.state.roles


def test_a_forced_cancellation_takes_the_token_of_a_client(board, inside):
    peer, _, _ = inside
    board.send(peer, m.WantKeys(keys=["parent"]))
    out = board.send(peer, m.CancelKeys(keys=["parent"], force=True, reason=""))
    (denied,) = (one for one in out.get(peer, []) if type(one) is m.Denied)
    assert denied.needed == Level.CLIENT.label
    assert board.states("parent") == ["processing"]


def test_the_client_ends_with_its_worker(board, inside):
    peer, worker, _ = inside
    board.worker("other")
    board.send(peer, graph("child", attempt=board.attempt("parent")))
    board.send(worker, m.Bye(reason=""))
    assert peer not in board.state.roles
    assert "child" not in board.state.tasks
    assert "in" not in board.state.clients


def test_the_client_stays_while_the_connection_of_its_worker_is_broken(board, inside):
    peer, worker, _ = inside
    attempt = board.attempt("parent")
    board.send(peer, graph("child", attempt=attempt, workers=["nowhere"]))
    board.close(worker)
    assert "child" in board.state.tasks
    back = board.come_back(running={"parent": attempt})
    out = board.send(peer, graph("second", attempt=attempt))
    assert list(assigned(out, back)) == ["second"]
    board.tick(60.0)
    assert sent_keys(out, peer, m.KeysErred) == []
