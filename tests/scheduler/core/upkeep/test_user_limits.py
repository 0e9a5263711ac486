"""user_limits.py: what a user may have here, and what is refused beyond it."""

from __future__ import annotations

from tests.scheduler.builders import Board, failures, function_id, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.upkeep.user_limits import ROW_NBYTES, user_limits_of

ARGS_NBYTES = len("args of x0")


def limit(board: Board, *, tasks: int = 0, nbytes: int = 0) -> None:
    limits = user_limits_of(board.state)
    limits.max_rows, limits.max_nbytes = tasks, nbytes


def test_tasks_beyond_the_limit_are_refused_until_others_are_released(board):
    limit(board, tasks=2)
    alice = board.client()
    board.send(alice, graph("x0 x1 x2"))  # it comes below the limit
    assert failures(board.out, alice) == {}

    board.send(alice, graph("x3 x4", blob=None))
    failure = ["user-limit", "x3", "", "user-tasks", 2, 3, 3 * ARGS_NBYTES]
    assert failures(board.out, alice) == {"x3": failure, "x4": failure}
    assert board.states("x2", "x3", "x4") == ["no_worker", "-", "-"]
    assert "tasks of client alice are refused: it has 3 tasks" in str(board.actions)

    board.send(alice, graph("x5", blob=None))
    assert failures(board.out, alice) == {"x5": [*failure[:1], "x5", *failure[2:]]}
    assert not board.actions  # it is logged once
    assert user_limits_of(board.state).n_refused == 3

    board.send(alice, m.ReleaseKeys(keys=["x0", "x1"]))
    board.send(alice, graph("x6", blob=None))
    assert failures(board.out, alice) == {}
    assert user_limits_of(board.state).reached == {}


def test_memory_counts_arguments_and_records(board):
    limit(board, nbytes=2 * (ROW_NBYTES + ARGS_NBYTES))
    alice = board.client()
    board.send(alice, graph("x0"))
    board.send(alice, graph("x1", blob=None))
    assert failures(board.out, alice) == {}
    board.send(alice, graph("x2", blob=None))
    assert failures(board.out, alice)["x2"][3:] == [
        "user-memory", 2 * (ROW_NBYTES + ARGS_NBYTES), 2, 2 * ARGS_NBYTES,
    ]  # fmt: skip


def test_the_limit_is_that_of_all_clients_of_a_user_and_of_each_without(board):
    limit(board, tasks=1)
    first, second = board.client("a", user="ann"), board.client("b", user="ann")
    board.send(first, graph("x0"))
    board.send(second, graph("x1"))
    assert failures(board.out, second)["x1"][2] == "ann"
    for name in ("c", "d"):
        peer = board.client(name)
        board.send(peer, graph(f"of-{name}"))
        assert failures(board.out, peer) == {}


def test_a_user_may_have_limits_of_its_own(board):
    limit(board, tasks=1)
    user_limits_of(board.state).of_users = {"ann": {"tasks": 2}, "bob": {"tasks": 0, "memory": 1}}
    ann, bob, carol = (board.client(name, user=name) for name in ("ann", "bob", "carol"))
    for peer, setting in (
        (ann, "user-limits.ann.tasks"), (bob, "user-limits.bob.memory"), (carol, "user-tasks")
    ):  # fmt: skip
        refusals = []
        for i in range(3):
            board.send(peer, graph(f"{peer}-{i}"))
            refusals += failures(board.out, peer).values()
        assert {failure[3] for failure in refusals} == {setting}
        assert len(refusals) == (1 if peer == ann else 2)
    assert [user.name for user in user_limits_of(board.state).reached] == ["ann", "bob", "carol"]


def test_keys_that_are_known_are_taken_beyond_the_limit(board):
    limit(board, tasks=1)
    alice, bob = board.client(), board.client("bob")
    board.send(alice, graph("x0", named=True))
    board.send(bob, graph("y0"))
    board.send(bob, graph("x0", named=True))
    assert failures(board.out, bob) == {}
    board.send(alice, graph("x0", named=True))  # as after its connection was lost
    assert failures(board.out, alice) == {}
    board.drop_rest()


def test_rows_that_an_earlier_scheduler_has_accepted_are_taken():
    board = Board(expected=Members(("id of w",), ("alice",)))
    limit(board, tasks=1)
    alice = board.client(last_epoch=3)
    board.send(alice, graph("x0"))
    board.send(alice, graph("x1", blob=None))
    assert failures(board.out, alice) == {}
    while board.state.awaits_owners:
        board.tick(1.0)
    board.drop_rest()
    board.send(alice, graph("x2", blob=None))
    assert [*failures(board.out, alice)] == ["x2"]


def test_a_task_submits_for_its_user(board):
    limit(board, tasks=2)
    ann, bob = board.client("a", user="ann"), board.client("b", user="bob")
    w = board.worker(nthreads=2)
    board.send(ann, graph("x0"))
    board.send(bob, graph("y0"))
    in_task = board.client("t", worker_id="id of w")
    for of, key in (("x0", "x1"), ("x0", "x2"), ("y0", "y1")):
        board.send(in_task, graph(key, attempt=board.attempt(of)))
        assert [*failures(board.out, in_task)] == (["x2"] if key == "x2" else [])
    board.drop_rest()
    assert board.state.users["ann"].n_rows == board.state.users["bob"].n_rows == 2
    assert w in board.state.workers


def test_the_functions_of_refused_tasks_are_kept_for_the_next_message():
    board = Board(max_idle_functions=64)
    limit(board, tasks=1)
    alice = board.client()
    board.send(alice, graph("x0"))
    board.send(alice, graph("y0", function="dec"))
    assert [*failures(board.out, alice)] == ["y0"]
    board.send(alice, m.ReleaseKeys(keys=["x0"]))
    board.send(alice, graph("y1", function="dec", blob=None))
    assert failures(board.out, alice) == {}
    assert board.states("y1") == ["no_worker"]


def test_users_that_reached_a_limit_and_are_gone_are_forgotten(board):
    limit(board, tasks=1)
    alice = board.client()
    board.send(alice, graph("x0"))
    board.send(alice, graph("x1", blob=None))
    assert [*failures(board.out, alice)] == ["x1"]
    assert len(user_limits_of(board.state).reached) == 1
    board.send(alice, m.Bye(reason="done"))
    assert user_limits_of(board.state).reached == {}


def test_the_function_of_refused_tasks_is_known_until_these_are_released():
    board = Board(max_idle_functions=0)
    limit(board, tasks=1)
    alice = board.client()
    board.send(alice, graph("x0", function="kept"), graph("x1 x2", function="kept", blob=None))
    assert [*failures(board.out, alice)] == ["x1", "x2"]
    # It has not read that yet, and counts on its tasks x1 and x2.
    board.send(alice, m.ReleaseKeys(keys=["x0", "x2"]))
    board.send(alice, graph("x3", function="kept", blob=None))
    assert board.refused() == []
    assert board.states("x3") == ["no_worker"]
    board.send(alice, m.ReleaseKeys(keys=["x3"]))
    assert [*board.state.functions] == [function_id("kept")]
    board.send(alice, m.CancelKeys(keys=["x1"], force=False, reason=""))
    assert not board.state.functions


def test_the_function_of_refused_tasks_goes_with_their_client():
    board = Board(max_idle_functions=0)
    limit(board, tasks=1)
    alice = board.client()
    board.send(alice, graph("x0"), graph("x1", function="other"))
    assert len(board.state.functions) == 2
    board.send(alice, m.Bye(reason=""))
    assert not board.state.functions


def test_the_function_of_a_task_under_a_taken_name_is_known_until_it_is_released():
    board = Board(max_idle_functions=0)
    alice, bob = board.client(), board.client("bob")
    board.send(alice, graph("x", named="one"))
    board.send(bob, graph("x", named="other"))
    assert failures(board.out, bob)["x"][0] == "key-conflict"
    board.send(alice, m.ReleaseKeys(keys=["x"]))
    board.send(bob, graph("y", blob=None))
    assert board.refused() == []
    board.send(bob, m.ReleaseKeys(keys=["x", "y"]))
    assert not board.state.functions
