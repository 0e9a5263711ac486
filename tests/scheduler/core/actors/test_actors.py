"""actors.py: tasks whose results are made once."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.actors.waits import waits_at
from weft.scheduler.core.coordination.cycles import actor_node
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.recovery.records import recovery_of

from ...builders import Board, assigned, dropped, graph, inventory, sent_keys


def actors(text: str, **options: object) -> m.SubmitTasks:
    """Tasks as `graph` makes them, all of which make actors."""
    message = graph(text, **options)
    message.functions = [m.ACTOR_FUNCTION] * len(message.functions)
    return message


def test_an_actor_whose_worker_is_lost_fails_and_is_not_made_again(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, actors("a"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    two = board.worker("two")
    out = board.close(one)
    (erred,) = [message for message in out[client] if isinstance(message, m.KeysErred)]
    assert erred.keys == ["a"]
    assert erred.failures[0][0] == "actor-lost"
    assert "is lost with its worker one" in erred.failures[0][2]
    assert assigned(out, two) == {}
    assert board.states("a") == ["erred"]


@pytest.mark.parametrize("wish", ["replicate", "rebalance"])
def test_an_actor_that_only_a_holder_has_come_for_has_no_copies_and_stays(wish):
    board = Board(expected=Members(("id of w", "id of v"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=1)
    board.send(client, m.WantKeys(keys=["a", "b"], attempts=[1, 0]), m.Resubmitted())
    board.come_back("w", kept={"a": 1, "b": 2}, last_epoch=1)
    board.come_back("v", last_epoch=1)
    board.tick(0.6)
    assert board.states("a", "b") == ["memory", "memory"]
    board.drop_rest()
    out = board.send(client, m.Ask(name=wish, request=1, arguments={"keys": ["a"]}))
    assert out == {client: [m.Answer(request=1, info={"keys": ["a"], "n_copies": [1]})]}


def test_an_actor_that_is_being_made_is_made_elsewhere(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    where = board.where("a")
    out = board.close(where)
    assert list(assigned(out, two if where == one else one)) == ["a"]


def test_a_copy_of_a_handle_is_no_replica(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    home = board.where("a")
    other = two if home == one else one
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    attempt = board.attempt("a")
    out = board.send(other, m.ReplicasAdded(attempts=[attempt], keys=["a"]))
    assert dropped(out, other) == [attempt]
    assert [ws.peer for ws in board.task("a").replicas] == [home]
    assert sent_keys(board.close(home), client, m.KeysErred) == ["a"]
    assert board.states("a") == ["erred"]


def test_a_copy_of_a_handle_at_a_worker_that_comes_back_is_no_replica(board):
    """Its connection ended before it read that it is to drop the copy."""
    client = board.client()
    names = {board.worker(name): name for name in ("one", "two")}
    board.send(client, actors("a"))
    home = board.where("a")
    (other,) = names.keys() - {home}
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    attempt = board.attempt("a")
    board.send(other, m.ReplicasAdded(attempts=[attempt], keys=["a"]))
    board.close(other)
    other = board.come_back(names[other], kept={"a": attempt})
    assert dropped(board.out, other) == [attempt]
    assert [ws.peer for ws in board.task("a").replicas] == [home]
    assert board.rest() == ["Reconciled"]


def test_a_copy_that_counts_after_a_restart_is_dropped_with_the_worker_of_the_actor(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    home = board.where("a")
    other = two if home == one else one
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    task, ws = board.task("a"), board.state.workers[other]
    attempt = task.attempt
    task.replicas = (*task.replicas, ws)
    ws.has_what[task] = None
    ws.nbytes += task.nbytes
    out = board.close(home)
    assert dropped(out, other) == [attempt]
    assert sent_keys(out, client, m.KeysErred) == ["a"]


def test_tasks_that_wait_for_a_lost_actor_fail_with_it(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, actors("a"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    board.send(client, graph(":a -> b"))
    out = board.close(one)
    assert sorted(sent_keys(out, client, m.KeysErred)) == ["a", "b"]


def test_a_lost_actor_that_is_submitted_again_is_a_new_one(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    home = board.where("a")
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    board.close(home)
    board.send(client, m.ReleaseKeys(keys=["a"]))
    out = board.send(client, actors("a"))
    assert list(assigned(out, two if home == one else one)) == ["a"]


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_client_that_was_away_does_not_get_the_actor_that_another_has_made_anew(
    board, is_finished
):
    alice, bob = board.client("alice"), board.client("bob")
    one = board.worker("one")
    board.send(alice, actors("a"))
    board.send(bob, actors("a"))
    attempt = board.attempt("a")
    out = board.finish(one, "a", blob=None, nbytes=1 << 20)
    (known,) = [message for message in out[alice] if isinstance(message, m.KeysInMemory)]
    assert known.attempts == [attempt]
    board.close(alice)
    board.close(one)
    two = board.worker("two")
    board.send(bob, m.ReleaseKeys(keys=["a"]), actors("a"))
    if is_finished:
        board.finish(two, "a", blob=None, nbytes=1 << 20)
    alice = board.client("alice")
    out = board.send(alice, m.WantKeys(keys=["a"], spec_hashes=[], attempts=[attempt]))
    assert out[alice] == [m.KeysUnknown(keys=["a"])]
    assert [client.client_id for client in board.task("a").wanted_by] == ["bob"]
    assert board.rest() == ["KeysInMemory"]  # to bob, of the first one


def test_an_actor_that_is_kept_as_an_input_is_not_made_for_a_client_that_had_one(board):
    alice, bob = board.client("alice"), board.client("bob")
    one = board.worker("one")
    board.send(alice, actors("a"), graph(":a -> b"))
    attempt = board.attempt("a")
    board.send(bob, m.WantKeys(keys=["b"], spec_hashes=[]))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    board.finish(one, "b", blob=None, nbytes=1 << 20)
    board.send(alice, m.ReleaseKeys(keys=["a", "b"]))
    assert board.states("a", "b") == ["released", "memory"]
    out = board.send(alice, m.WantKeys(keys=["a"], spec_hashes=[], attempts=[attempt]))
    assert out[alice] == [m.KeysUnknown(keys=["a"])]
    assert board.states("a") == ["released"]


def test_a_client_that_comes_back_to_its_actor_wants_it(board):
    alice, one = board.client("alice"), board.worker("one")
    board.send(alice, actors("a"))
    attempt = board.attempt("a")
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    board.close(alice)
    alice = board.client("alice")
    out = board.send(alice, m.WantKeys(keys=["a"], spec_hashes=[], attempts=[attempt]))
    (known,) = out[alice]
    assert (known.keys, known.attempts) == (["a"], [attempt])


def test_results_that_are_lost_with_an_actor_may_become_unneeded_by_that(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, actors("a"))
    board.send(client, graph("c"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    board.finish(one, "c", blob=None, nbytes=1 << 20)
    board.send(client, graph(":a :c -> b", workers=["nowhere"]), m.ReleaseKeys(keys=["c"]))
    out = board.close(one)
    assert sorted(sent_keys(out, client, m.KeysErred)) == ["a", "b"]


@pytest.mark.parametrize("is_back", [True, False])
@pytest.mark.parametrize("is_delivered", [True, False])
def test_an_actor_of_an_earlier_scheduler_lives_if_its_worker_comes_back(is_back, is_delivered):
    board = Board(expected=Members(("id of w",), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=1)
    made = actors("a", made=True, delivered=is_delivered)
    board.send(client, made, graph(":a -> b"), m.Resubmitted())
    if is_back:
        worker = board.come_back(last_epoch=1, kept={"a": 1})
    else:
        worker = board.worker("new")
    out = board.tick(2.0 if is_back else 90.0)
    assert not board.state.awaits_peers
    if is_back:
        assert board.states("a", "b") == ["memory", "processing"]
    else:
        assert assigned(out, worker) == {}
        assert sorted(sent_keys(out, client, m.KeysErred)) == ["a", "b"]
        (failure,) = {
            tuple(f) for x in out[client] if isinstance(x, m.KeysErred) for f in x.failures
        }
        assert failure[:2] == ("actor-lost", "a")
        assert "has not come back" in failure[2]


def test_a_worker_that_has_never_made_an_actor_is_not_taken_for_the_home_of_one():
    """It came back first, with a copy of the handle."""
    board = Board(expected=Members(("id of home", "id of reader"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    reader = board.come_back("reader", last_epoch=1, kept={"a": 1})
    home = board.worker("home", last_epoch=1)
    rows = inventory(kept={"a": 1})
    board.send(home, *rows[:-1], m.InventoryFunctions(functions=[m.ACTOR_FUNCTION]), rows[-1])
    alice = board.client("alice", last_epoch=1)
    board.send(alice, actors("a", made=True, delivered=True), m.Resubmitted())
    board.tick(2.0)
    out = board.close(reader)
    assert dropped(out, home) == []
    assert board.states("a") == ["memory"]
    assert sent_keys(board.close(home), alice, m.KeysErred) == ["a"]
    board.drop_rest()


#: The thread of the actor `a` waits.
WAIT = m.ActorsBlocked(
    names=["a"], attempts=[1], keys=[["b"]], actors=[[]], calls=[[]], begun=[[]], open=[[]]
)


def test_the_wait_of_an_actor_counts_that_is_reported_before_its_client_is_back():
    board = Board(expected=Members(("id of home", "id of reader"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    board.come_back("reader", last_epoch=1, kept={"a": 1})
    home = board.come_back("home", last_epoch=1, kept={"a": 1})
    board.send(home, WAIT)
    alice = board.client("alice", last_epoch=1)
    board.send(alice, actors("a", made=True, delivered=True), m.Resubmitted())
    node = actor_node(board.state, board.task("a"))
    assert node is not None
    assert node.ws.peer == home
    board.drop_rest()


def test_a_worker_that_shows_that_an_actor_lives_there_is_its_home_though_a_copy_came_first():
    """Which of two workers that are back has the handle only as a copy is not known before."""
    board = Board(expected=Members(("id of home", "id of reader"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    reader = board.come_back("reader", last_epoch=1, kept={"a": 1})
    home = board.come_back("home", last_epoch=1, kept={"a": 1})
    alice = board.client("alice", last_epoch=1)
    board.send(alice, actors("a", made=True, delivered=True), m.Resubmitted())
    board.tick(2.0)
    assert [ws.peer for ws in board.task("a").replicas] == [reader, home]
    board.send(home, WAIT)
    assert [*waits_at(board.state, board.state.workers[home])] == [1]
    out = board.close(reader)
    assert dropped(out, home) == []
    assert board.states("a") == ["memory"]
    assert sent_keys(board.close(home), alice, m.KeysErred) == ["a"]
    board.drop_rest()


def test_an_actor_that_a_client_brings_after_the_recovery_is_lost_at_once(board):
    worker, client = board.worker(), board.client()
    out = board.send(client, actors("a", made=True, delivered=True))
    assert sent_keys(out, client, m.KeysErred) == ["a"]
    assert assigned(board.send(client, graph(":a -> b")), worker) == {}
    assert board.states("a", "b") == ["erred", "erred"]
    assert board.rest() == ["KeysErred"]


def recovering_with_an_actor() -> tuple[Board, int]:
    """Return a new scheduler to which the worker of the actor `a` is back; alice, who owns it, not.

    A client of tasks has wanted the actor and let go of it.
    """
    board = Board(expected=Members(("id of w",), ("alice", "tasks")))
    board.state.first_attempt = board.state.next_attempt = 100
    worker = board.come_back(last_epoch=1, kept={"a": 1})
    tasks = board.client("tasks", last_epoch=1)
    board.send(tasks, m.WantKeys(keys=["a"], spec_hashes=[]), m.Resubmitted())
    out = board.send(tasks, m.ReleaseKeys(keys=["a"]))
    assert dropped(out, worker) == []
    return board, worker


def test_an_actor_that_others_let_go_of_before_its_owner_is_back_is_kept_for_that():
    board, worker = recovering_with_an_actor()
    alice = board.client("alice", last_epoch=1)
    board.send(alice, actors("a", made=True, delivered=True), m.Resubmitted())
    assert board.states("a") == ["memory"]
    out = board.send(alice, m.ReleaseKeys(keys=["a"]))
    assert dropped(out, worker) == [1]
    assert not board.state.tasks


def recovering_with_its_owner(*clients: str) -> tuple[Board, int, int]:
    """Return a new scheduler to which the worker of the actor `a` and alice, who owns it, are back.

    Bob, who has its handle as well, is not. These clients are on record.
    """
    board = Board(expected=Members(("id of w",), clients))
    board.state.first_attempt = board.state.next_attempt = 100
    worker = board.come_back(last_epoch=1, kept={"a": 1, "x": 2})
    alice = board.client("alice", last_epoch=1)
    board.send(alice, actors("a", made=True, delivered=True), graph("x"), m.Resubmitted())
    assert board.states("a", "x") == ["memory", "memory"]
    return board, worker, alice


def test_an_actor_that_its_owner_lets_go_of_is_kept_for_holders_that_are_not_back_yet():
    board, worker, alice = recovering_with_its_owner("alice", "bob")
    assert dropped(board.send(alice, m.ReleaseKeys(keys=["a", "x"])), worker) == [2]
    bob = board.client("bob", last_epoch=1)
    board.send(bob, m.WantKeys(keys=["a"], spec_hashes=[]), m.Resubmitted())
    assert board.states("a") == ["memory"]
    assert dropped(board.send(bob, m.ReleaseKeys(keys=["a"])), worker) == [1]
    assert not board.state.tasks


def test_an_actor_is_kept_for_a_holder_that_joined_too_late_to_be_on_record():
    """Others may have joined as late: alice comes back, and is not on record herself."""
    board, worker, alice = recovering_with_its_owner()
    assert dropped(board.send(alice, m.ReleaseKeys(keys=["a", "x"])), worker) == [2]
    bob = board.client("bob", last_epoch=1)
    board.send(bob, m.WantKeys(keys=["a"], spec_hashes=[]), m.Resubmitted())
    assert board.states("a") == ["memory"]


def test_an_actor_is_kept_for_others_whose_owner_let_go_of_it_before_its_worker_is_back():
    """The owner keeps what has read it."""
    board = Board(expected=Members(("id of w",), ("alice", "bob")))
    board.state.first_attempt = board.state.next_attempt = 100
    alice = board.client("alice", last_epoch=1)
    board.send(alice, actors("a", delivered=True), graph(":a -> x", delivered=True))
    board.send(alice, m.ReleaseKeys(keys=["a"]), m.Resubmitted())
    assert board.states("a") == ["released"]
    worker = board.come_back(last_epoch=1, kept={"a": 1})
    bob = board.client("bob", last_epoch=1)
    board.send(bob, m.WantKeys(keys=["a"], spec_hashes=[]), m.Resubmitted())
    assert board.states("a") == ["memory"]
    assert dropped(board.send(bob, m.ReleaseKeys(keys=["a"])), worker) == [1]


def test_an_actor_that_no_other_holder_comes_for_is_dropped_after_the_recovery():
    board, worker, alice = recovering_with_its_owner("alice", "bob")
    board.send(alice, m.ReleaseKeys(keys=["a", "x"]))
    drops = []
    for _ in range(100):
        board.send(worker, m.Heartbeat())
        board.send(alice, m.Heartbeat())
        drops += dropped(board.tick(2.0), worker)
    assert drops == [1]
    assert not board.state.tasks
    assert not recovery_of(board.state).kept
    assert board.rest() == ["Recovered"]


def test_an_actor_whose_owner_does_not_come_back_is_dropped_in_the_end():
    board, worker = recovering_with_an_actor()
    n_while_recovering, drops = 0, []
    for _ in range(100):  # the worker shows that it lives
        board.send(worker, m.Heartbeat())
        drops += dropped(board.tick(2.0), worker)
        n_while_recovering += board.state.awaits_owners and len(drops)
    assert (n_while_recovering, drops) == (0, [1])
    assert not board.state.tasks
    assert board.rest() == ["Recovered"]


def test_an_actor_that_is_lost_while_it_is_kept_for_its_owner_is_forgotten():
    board, worker = recovering_with_an_actor()
    board.close(worker)
    board.tick(90.0)
    assert not board.state.tasks
    board.tick(90.0)
    assert not recovery_of(board.state).kept


def test_an_actor_of_a_category_is_refused(board):
    client = board.client()
    board.worker()
    category = {"name": "fits", "mode": "fixed", "max_nbytes": 0}
    out = board.send(client, actors("a", category=category), graph("b", function="f"))
    (failed,) = out.of(client, m.KeysErred)
    assert failed.keys == ["a"]
    assert failed.failures[0] == ["not-understood", "a", "an actor's category="]
    assert board.states("b") == ["processing"]
    board.drop_rest()
