"""submission.py: submit, want, release, cancel."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.records.priority import MAX_RANK, base_priority, rank_of

from ...builders import (
    Board,
    assigned,
    assignment,
    dropped,
    finished,
    function_id,
    graph,
    sent_keys,
)


def test_tasks_without_inputs_are_assigned_in_order_with_their_function_once(board):
    client, worker = board.client(), board.worker()
    out = board.send(client, graph("a b c"))
    assert list(out) == [worker]
    (message,) = out[worker]
    assert message == m.AssignTasks(
        functions=[function_id("inc")],
        function_blobs=[b"pickle"],
        function_clients=[1],
        function_of=[0, 0, 0],
        keys=["a", "b", "c"],
        attempts=[1, 2, 3],
        priorities=[board.task(key).priority for key in "abc"],
        args=[b"args of a", b"args of b", b"args of c"],
        wanted=[1, 1, 1],
        dependencies=[],
        located_keys=[],
        located_attempts=[],
        located_nbytes=[],
        located_holders=[],
    )
    assert message.priorities == sorted(message.priorities)
    again = board.send(client, graph("d", blob=None))
    assert again[worker][0].function_blobs == [None]


def test_without_workers_tasks_wait_and_run_when_one_comes(board):
    client = board.client()
    assert board.send(client, graph("a", "a -> b")) == {}
    assert board.states("a", "b") == ["no_worker", "waiting"]
    worker = board.worker()
    assert board.states("a", "b") == ["processing", "processing"]
    assert board.where("a") == worker


def test_an_existing_key_is_shared_and_its_state_is_sent(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a b"))
    board.finish(worker, "a")
    out = board.send(bob, graph("a b"))
    assert out[bob] == [
        m.KeysInMemory(keys=["a"], nbytes=[8], holder_of=[0], holders=["tcp://w"]),
        m.KeysPending(keys=["b"]),
    ]
    assert worker not in out
    out = board.finish(worker, "b")
    assert out[alice] == out[bob] == [m.ResultsReady(keys=["b"], results=[b"result"])]


def test_a_key_twice_in_one_submission_is_one_task(board):
    client = board.client()
    message = graph("a")
    message.keys.append("a")
    message.args.append(b"args of a")
    message.function_of.append(0)
    out = board.send(client, message)
    assert sent_keys(out, client, m.KeysPending) == ["a"]
    assert len(board.state.tasks) == 1


def test_other_content_under_a_living_name_is_refused_and_changes_nothing(board):
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, graph("a", named="one"))
    out = board.send(bob, graph("a", named="two"))
    assert out[bob] == [m.KeysErred(keys=["a"], failure_of=[0], failures=[["key-conflict", "a"]])]
    assert [client.name for client in board.task("a").wanted_by] == ["alice"]
    assert list(board.state.functions) == [function_id("inc")]


def test_another_call_under_a_key_that_names_its_content_is_shared_and_counted(board):
    alice, bob = board.client("alice"), board.client("bob")
    key = "sum-" + "0123456789abcdef" * 2
    board.send(alice, graph(key, named="one"))
    out = board.send(bob, graph(key, f"{key} -> b", named="two"))
    assert sent_keys(out, bob, m.KeysErred) == []
    assert [client.name for client in board.task(key).wanted_by] == ["alice", "bob"]
    assert board.state.counters.recipes_differing == 1
    board.send(bob, graph(key, named="one"))
    assert board.state.counters.recipes_differing == 1
    assert board.rest() == ["KeysPending"]


def test_release_others_keeps_the_task_with_the_given_hash(board):
    client = board.client()
    board.send(client, graph("a b", named="one"))
    same, other = function_id("one"), function_id("two")
    assert board.send(client, m.ReleaseOthers(keys=["a", "x"], spec_hashes=[same, same])) == {}
    assert list(board.state.tasks) == ["a", "b"]
    board.send(client, m.ReleaseOthers(keys=["a"], spec_hashes=[other]))
    assert list(board.state.tasks) == ["b"]
    out = board.send(client, graph("a", named="two"))
    assert sent_keys(out, client, m.KeysErred) == []


def test_results_sent_in_an_earlier_session_are_kept_for_a_client_that_submits_them_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=b"lost on the way")
    assert board.task("a").delivered
    board.send(client, graph("a"))
    out = board.close(worker)
    assert sent_keys(out, client, m.KeysPending) == ["a"]


def test_a_wanted_key_does_not_match_another_task_of_the_same_name(board):
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, graph("a b", named="one"))
    board.send(alice, graph("c"))
    hashes = [function_id("one"), function_id("two"), m.NO_HASH]
    out = board.send(bob, m.WantKeys(keys=["a", "b", "c"], spec_hashes=hashes))
    assert sent_keys(out, bob, m.KeysUnknown) == ["b"]
    assert sent_keys(out, bob, m.KeysPending) == ["a", "c"]
    assert [client.name for client in board.task("b").wanted_by] == ["alice"]


def test_release_others_leaves_a_name_to_other_clients(board):
    alice, bob = board.client("alice"), board.client("bob")
    for client in (alice, bob):
        board.send(client, graph("a", named="one"))
    board.send(alice, m.ReleaseOthers(keys=["a"], spec_hashes=[function_id("two")]))
    assert [client.name for client in board.task("a").wanted_by] == ["bob"]


def test_a_submission_of_known_keys_only_leaves_no_class_behind_and_its_function_for_a_while(board):
    client = board.client()
    board.send(client, graph("a"))
    board.send(client, graph("a", function="other", resources={"gpu": 1.0}))
    assert list(board.state.functions) == [function_id("inc"), function_id("other")]
    assert list(board.state.classes) == [()]
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert board.state.functions == {}


def test_an_unknown_dependency_fails_the_task_and_its_dependents(board):
    client = board.client()
    out = board.send(client, graph(":x -> a", "a -> b"))
    assert sent_keys(out, client, m.KeysErred) == ["a", "b"]
    kind, key, text = board.task("b").failure
    assert (kind, key) == ("data-lost", "x")
    assert text.startswith("task 'a' needs it, and the scheduler does not have it")
    assert "submit its call again" in text


def test_a_task_that_lacked_a_dependency_runs_only_when_it_is_submitted_anew(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph(":x -> a", "a -> b"))
    out = board.send(client, graph(":a -> b"))  # the message has no dependencies for a
    assert sent_keys(out, client, m.KeysErred) == ["b", "b"]
    out = board.send(client, graph("x -> a", "a -> b"))
    assert list(assigned(out, worker)) == ["x", "a", "b"]
    assert [d.key for d in board.task("a").dependencies] == ["x"]
    assert board.rest() == ["KeysPending"]


def test_a_task_that_lacked_a_dependency_is_not_run_as_lineage_either(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph(":x -> a", "a -> b"))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert board.states("a", "b") == ["released", "erred"]
    board.send(client, graph(":a -> c"))
    assert board.states("a", "c") == ["released", "erred"]
    out = board.send(client, graph("x -> a", ":a -> b"))
    assert list(assigned(out, worker)) == ["x", "a", "b"]
    assert board.rest() == ["KeysPending"]


@pytest.mark.parametrize("is_released", [False, True])
def test_a_client_that_is_back_submits_what_another_one_submitted_without_its_input(
    board, is_released
):
    """It has a record of the input, which it submitted while its connection was lost."""
    alice, bob, worker = board.client("alice"), board.client("bob"), board.worker()
    board.send(bob, graph(":x -> a", "a -> b", "b -> c"))
    if is_released:
        board.send(bob, m.ReleaseKeys(keys=["a"]))
    out = board.send(alice, m.WantKeys(keys=["x", "a", "b"]))
    assert sent_keys(out, alice, m.KeysUnknown) == ["x", "a", "b"]
    assert sent_keys(out, alice, m.KeysErred) == []
    out = board.send(alice, graph("x -> a", "a -> b"))
    assert list(assigned(out, worker)) == ["x", "a", "b"]
    assert board.rest() == ["KeysPending"]


def test_a_client_that_wanted_such_a_task_before_is_not_left_with_it(board):
    client = board.client("alice")
    board.send(client, graph(":x -> a"))
    board.close(client)
    client = board.client("alice")
    out = board.send(client, m.WantKeys(keys=["a"]))
    assert sent_keys(out, client, m.KeysUnknown) == ["a"]
    assert board.state.tasks == {}


def test_a_cycle_by_late_links_is_refused(board):
    client = board.client()
    board.send(client, graph(":b -> a", named="n"))
    board.send(client, graph(":a -> b", named="n"))
    board.send(client, graph(":b -> a", named="n"))
    assert board.states("a", "b") == ["erred", "erred"]
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    assert board.state.tasks == {}


def test_a_failed_task_that_is_submitted_again_runs_again_with_its_failed_inputs(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b"))
    board.raise_(worker, "a")
    assert board.states("a", "b") == ["erred", "erred"]
    out = board.send(client, graph("a -> b"))
    assert list(assigned(out, worker)) == ["a", "b"]
    assert board.state.counters.n_erred == 0
    assert board.rest() == ["DropAttempts", "KeysPending"]


def test_a_call_that_is_submitted_again_runs_again_the_inputs_that_had_failed(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", "b -> c"))
    board.raise_(worker, "a")
    assert board.states("a", "b", "c") == ["erred"] * 3
    out = board.send(client, graph(":b -> c"))
    assert list(assigned(out, worker)) == ["a", "b", "c"]
    assert sent_keys(out, client, m.KeysErred) == []
    assert board.state.counters.n_erred == 0
    assert board.rest() == ["DropAttempts", "KeysPending"]


def test_a_new_task_behind_a_failed_one_that_is_submitted_again_with_it_runs(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.raise_(worker, "a")
    out = board.send(bob, graph("a -> b"))
    assert list(assigned(out, worker)) == ["a", "b"]
    assert sent_keys(out, bob, m.KeysErred) == []
    assert board.rest() == ["DropAttempts", "KeysPending"]


def test_a_new_task_behind_one_that_lacked_a_dependency_and_is_mended_runs(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph(":x -> a"))
    out = board.send(bob, graph("x -> a", "a -> b"))
    assert list(assigned(out, worker)) == ["x", "a", "b"]
    assert sent_keys(out, bob, m.KeysErred) == []
    assert board.rest() == ["KeysPending"]


def test_a_function_that_was_not_sent_ends_the_connection_of_its_client(board):
    client = board.client()
    board.send(client, graph("a", blob=None))
    assert board.refused() == ["SubmitTasks names a function that the scheduler does not have"]
    assert board.state.tasks == {}
    assert board.state.functions == {}


def test_a_task_without_arguments_ends_the_connection_of_its_client(board):
    client, other = board.client("alice"), board.client("bob")
    message = graph("a b")
    message.args[1] = None
    board.send(client, message)
    assert board.refused() == ["SubmitTasks has a task without arguments"]
    assert board.state.functions == {}
    board.send(other, graph("a"))
    assert board.states("a") == ["no_worker"]


def test_the_states_of_wanted_keys_and_the_unknown_ones_are_sent(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a b"))
    board.raise_(worker, "a")
    out = board.send(bob, m.WantKeys(keys=["a", "b", "c"]))
    assert out[bob] == [
        m.KeysErred(keys=["a"], failure_of=[0], failures=[["exception", "a", "ValueError"]]),
        m.KeysPending(keys=["b"]),
        m.KeysUnknown(keys=["c"]),
    ]


def test_release_of_the_last_future_drops_data_and_work(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a b"))
    board.finish(worker, "a")
    attempts = [board.attempt("a"), board.attempt("b")]
    out = board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    assert out[worker] == [
        m.DropAttempts(attempts=attempts),
        m.DropFunctions(functions=[function_id("inc")]),
    ]
    assert board.state.tasks == board.state.functions == {}


def test_a_function_stays_a_while_after_its_last_task():
    board = Board(max_idle_functions=1)
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    out = board.send(client, graph("b"))
    assert assignment(out, worker).function_blobs == [None]  # the worker still has it
    board.send(client, m.ReleaseKeys(keys=["b"]))
    board.send(client, graph("c", function="other"))
    out = board.send(client, m.ReleaseKeys(keys=["c"]))
    assert out[worker][-1] == m.DropFunctions(functions=[function_id("inc")])
    out = board.send(client, graph("d"))
    assert assignment(out, worker).function_blobs == [b"pickle"]


def test_release_keeps_the_inputs_of_a_living_task_and_their_lineage(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", "b -> c"))
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    assert board.states("a", "b", "c") == ["processing"] * 3
    board.finish(worker, "a")
    out = board.finish(worker, "b")
    assert board.states("a", "b", "c") == ["released", "memory", "processing"]
    assert dropped(out, worker) == [1]
    board.finish(worker, "c")
    assert board.states("a", "b", "c") == ["released", "released", "memory"]
    board.send(client, m.ReleaseKeys(keys=["c"]))
    assert board.state.tasks == {}


def test_release_of_another_clients_key_has_no_effect(board):
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, graph("a"))
    board.send(bob, m.ReleaseKeys(keys=["a", "nothing"]))
    assert board.states("a") == ["no_worker"]


def test_cancel_drops_the_work_and_fails_its_dependents(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", "b -> c"))
    out = board.send(client, m.CancelKeys(keys=["a"], force=False, reason="enough"))
    assert sent_keys(out, client, m.KeysCancelled) == ["a"]
    assert sent_keys(out, client, m.KeysErred) == ["b", "c"]
    assert board.task("c").failure == ["cancelled", "a", "enough"]
    assert sorted(dropped(out, worker)) == [1, 2, 3]
    assert board.state.workers[worker].processing == {}


def test_cancel_leaves_keys_that_others_want_unless_forced(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"))
    out = board.send(alice, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert bob not in out
    assert board.states("a") == ["processing"]
    out = board.send(bob, m.CancelKeys(keys=["a"], force=True, reason=""))
    assert sent_keys(out, bob, m.KeysCancelled) == ["a"]
    assert dropped(out, worker) == [1]
    assert board.rest() == ["DropFunctions"]


def test_a_forced_cancel_takes_no_finished_result_from_others(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"))
    board.finish(worker, "a")
    out = board.send(alice, m.CancelKeys(keys=["a"], force=True, reason=""))
    assert bob not in out
    assert board.states("a") == ["memory"]
    assert [client.name for client in board.task("a").wanted_by] == ["bob"]


def test_a_cancelled_key_runs_when_it_is_submitted_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason=""))
    out = board.send(client, graph("a"))
    assert assigned(out, worker) == {"a": 2}
    out = board.send(worker, finished([1], blob=b"of the old attempt"))
    assert board.state.counters.reports_stale == 1
    assert client not in out


# --- Options and ranks of rows --------------------------------------------------------------------


def options_of(message, *options, option_of=()):
    message.options = list(options)
    message.option_of = list(option_of)
    return message


def test_rows_of_one_message_have_their_own_options(board):
    client, worker = board.client(), board.worker("w", nthreads=4)
    message = options_of(
        graph("a", "b", "c", "a b c -> d", "e"),
        {},
        {"priority": 5, "retries": 2},
        {"workers": ["nobody"], "resources": {"GPU": 1}},
        option_of=[0, 1, 0, 1, 2],
    )
    out = board.send(client, message)
    groups = {key: board.task(key).group for key in "abcde"}
    assert [groups[key].options.retries for key in "abcde"] == [0, 2, 0, 2, 0]
    assert groups["a"] is groups["c"]
    assert groups["b"] is groups["d"]
    assert groups["e"].task_class.restrictions == "workers nobody; GPU: 1"
    assert board.states("a", "b", "c", "d", "e") == [
        "processing",
        "processing",
        "processing",
        "processing",  # assigned ahead
        "no_worker",
    ]
    assert assigned(out, worker).keys() == {"a", "b", "c", "d"}
    assert board.task("b").priority < board.task("a").priority < board.task("c").priority
    board.finish(worker, "a", "b", "c")
    board.finish(worker, "d")
    board.send(client, m.ReleaseKeys(keys=["a", "b", "c", "d", "e"]))
    assert board.state.tasks == {}
    assert list(board.state.classes.values()) == [board.state.default_class]


def test_a_message_without_options_has_the_default_ones(board):
    client = board.client()
    board.send(client, options_of(graph("a")))
    group = board.task("a").group
    assert (group.options.retries, group.task_class) == (0, board.state.default_class)


def test_a_class_of_which_all_rows_are_known_is_dropped(board):
    client = board.client()
    board.send(client, graph("a", "b"))
    again = options_of(graph("a", "b"), {"workers": ["x"]}, {"workers": ["y"]}, option_of=[0, 1])
    board.send(client, again)
    assert list(board.state.classes.values()) == [board.state.default_class]


def test_many_functions_and_options_make_only_the_groups_that_rows_have(board):
    client = board.client()
    message = graph(*(f"t{i}" for i in range(100)))
    message.functions = [function_id(str(i)) for i in range(100)]
    message.function_names = [f"f{i}" for i in range(100)]
    message.function_blobs = [b"pickle"] * 100
    message.function_of = list(range(100))
    board.send(
        client,
        options_of(message, *({"retries": i} for i in range(100)), option_of=range(100)),
    )
    groups = {id(task.group) for task in board.state.tasks.values()}
    assert len(groups) == 100
    assert [task.group.options.retries for task in board.state.tasks.values()] == list(range(100))


def test_rows_with_ranks_run_in_their_order(board):
    client = board.client()
    board.send(client, graph("a", "b", "c", "a -> d", ranks=[3, 1, 2, 0]))
    ranks = {key: rank_of(board.task(key).priority) for key in "abcd"}
    assert ranks == {"a": 3, "b": 1, "c": 2, "d": 0}
    # Their places do not count for those that have none.
    board.send(client, graph("e", "a -> f", "huge", blob=None))
    assert rank_of(board.task("e").priority) == 5
    assert rank_of(board.task("f").priority) == 3
    worker = board.worker()
    message = assignment(board.out, worker)
    assert [key for key in message.keys if key in "abc"] == ["b", "c", "a"]


def test_a_rank_beyond_the_largest_stays_in_its_generation(board):
    client = board.client()
    board.send(client, graph("a", ranks=[2**62]))
    assert board.task("a").priority == base_priority(0, board.state.ranks.generation) | MAX_RANK


# --- Delivered: the client has the result, or waits for others that were made of it ---------------


def delivered(spec):
    message = graph(spec)
    message.options = [{"delivered": True}]
    return message


def test_a_delivered_task_does_not_run_before_another_one_needs_it(board):
    client, worker = board.client(), board.worker()
    assert board.send(client, delivered("a")) == {}
    assert board.send(client, delivered(":a -> b")) == {}
    assert board.states("a", "b") == ["released", "released"]
    out = board.send(client, graph(":b -> c"))
    assert [key for key in "abc" if board.where(key) == worker] == ["a", "b", "c"]
    assert list(out) == [worker]


def test_a_delivered_task_is_forgotten_when_it_is_released_and_kept_as_lineage(board):
    client, worker = board.client(), board.worker()
    board.send(client, delivered("a"), graph("a -> b"))
    board.finish(worker, "a")
    board.finish(worker, "b")
    board.send(client, delivered("x"), m.ReleaseKeys(keys=["a", "x"]))
    assert "x" not in board.state.tasks
    assert board.states("a", "b") == ["released", "memory"]


def test_a_known_task_is_not_changed_by_a_delivered_row(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a b"))
    board.finish(worker, "a")
    out = board.send(bob, delivered("a b"))
    assert sent_keys(out, bob, m.KeysInMemory) == ["a"]
    assert sent_keys(out, bob, m.KeysPending) == ["b"]
    assert board.states("a", "b") == ["memory", "processing"]


def test_a_task_that_another_client_waits_for_runs_although_it_is_delivered_to_one(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, delivered("a"))
    board.send(bob, graph("a"))
    assert board.where("a") == worker


# -- a key whose task has another function --------------------------------------------------------
def call(key: str, *, known: bool = False) -> m.SubmitTasks:
    return graph(key, function="call", blob=None if known else b"pickle")


def test_a_function_is_kept_whose_row_found_a_constant_until_its_client_wants_nothing(board):
    """A client counts on it from then on, and sends its blob no more."""
    alice, bob, worker = board.client("alice"), board.client("bob"), board.worker()
    board.send(bob, graph("a", function="constant"))
    board.finish(worker, "a")
    board.send(alice, call("a"))
    board.send(alice, call("b", known=True))
    assert board.refused() == []
    assert board.where("b") == worker
    board.finish(worker, "b")
    board.send(alice, m.ReleaseKeys(keys=["b"]))
    assert function_id("call") in board.state.functions
    board.send(alice, m.ReleaseKeys(keys=["a"]))
    assert list(board.state.functions) == [function_id("constant")]


@pytest.mark.parametrize("end", ["cancelled", "bye"])
def test_a_kept_function_goes_with_the_last_want_of_its_client(board, end):
    alice, bob = board.client("alice"), board.client("bob")
    board.send(bob, graph("a", function="constant"))
    board.send(alice, call("a"))
    if end == "bye":
        board.send(alice, m.Bye(reason="done"))
    else:
        board.send(alice, m.CancelKeys(keys=["a"], force=False, reason="no"))
    assert function_id("call") not in board.state.functions


def test_a_task_that_failed_for_want_of_an_input_runs_the_call_that_is_submitted_anew(board):
    """Its arguments are those of the new function, and clients of the old one count on that."""
    alice, bob, worker = board.client("alice"), board.client("bob"), board.worker()
    board.send(alice, call("a"), graph("b", ":a -> c", function="constant"))
    unlinked = graph(":lost -> d", function="call", blob=None)
    board.send(alice, unlinked)
    assert board.task("d").state == "erred"
    board.send(bob, graph("d", function="constant"))
    assert board.task("d").group.function.function_id == function_id("constant")
    assert board.task("d").args == b"args of d"
    board.send(alice, m.ReleaseKeys(keys=["a", "b", "c"]))
    board.send(alice, call("e", known=True))
    assert board.refused() == []
    assert board.where("e") == worker
