"""The brake on memory: full workers, tasks that are set aside, results that give way."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, assigned, dropped, graph, sent_keys
from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.explaining import explain
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.memory import relief
from weft.scheduler.core.memory.feature import MEMORY_INVARIANTS
from weft.scheduler.core.memory.full import growth
from weft.scheduler.core.memory.records import expected_at, memory_of
from weft.scheduler.core.records.tasks import TaskClass

MB = 1_000_000
LIMIT = 400 * MB
LARGE = 20 * MB


def measure(board: Board, peer: int, nbytes: int) -> None:
    """Let a worker report the size of its process."""
    board.send(
        peer,
        m.WorkerStatus(
            state="running",
            nthreads=1,
            n_records=0,
            n_ready=0,
            managed_nbytes=0,
            resident_nbytes=nbytes,
            cpu_percent=0,
            numbers=[],
        ),
    )


def worker(board: Board, name: str = "w", resident: int = 60 * MB, **options) -> int:
    peer = board.worker(name, memory_limit=LIMIT, **options)
    measure(board, peer, resident)
    return peer


def hold(
    board: Board, client: int, peer: int, keys: str, function: str = "make", nbytes: int = LARGE
) -> None:
    """Let a worker make some results of 20 MB, one after the other."""
    board.send(client, graph(*keys.split(), function=function))
    for key in keys.split():
        board.finish(peer, key, nbytes=nbytes, us=20_000, blob=None)


def ballast(board: Board, client: int, peer: int) -> None:
    """Let a worker be nearly full, most of it results: it uses 330 MB."""
    hold(board, client, peer, "ballast", function="ballast", nbytes=200 * MB)
    measure(board, peer, 330 * MB)


def test_a_worker_gets_no_more_than_its_memory_holds_and_another_one_the_rest(board):
    alice = board.client()
    first = worker(board, "first")
    hold(board, alice, first, "a b c d")
    second = worker(board, "second", resident=300 * MB)
    board.send(alice, graph(*(f"x{i}" for i in range(40)), function="make"))
    # It has room for 320 - 300 MB, and the first one for 320 - 60 - 4 * 20 MB.
    n_second = sum(board.where(f"x{i}") == second for i in range(40))
    n_first = sum(board.where(f"x{i}") == first for i in range(40))
    assert n_second <= 2
    assert n_first <= 10


def test_a_full_worker_runs_what_adds_nothing_though_it_stands_behind_what_does(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a b c")
    ballast(board, alice, w)
    assert not assigned(board.send(alice, graph("x", "y", function="make")), w)
    out = board.send(alice, graph(":a -> r", function="reduce"))
    assert list(assigned(out, w)) == ["r"]
    assert board.states("x", "y", "r") == ["no_worker", "no_worker", "processing"]
    assert "would add about 19.1 MiB" in str(explain(board.state, board.task("x"))["steps"])


def test_tasks_that_were_set_aside_run_in_their_order_when_results_are_released(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a b c")
    ballast(board, alice, w)
    board.send(alice, graph("x", "y", function="make"))
    out = board.send(alice, m.ReleaseKeys(keys=["a", "b"]))
    assert list(assigned(out, w)) == ["x", "y"]
    assert not memory_of(board.state).aside
    assert board.rest() == ["DropAttempts"]


def test_a_worker_that_joins_gets_what_was_set_aside(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a")
    ballast(board, alice, w)
    board.send(alice, graph("x", function="make"))
    new = board.worker("new", memory_limit=LIMIT)
    assert board.where("x") == new


def test_a_reader_that_adds_goes_to_a_worker_with_room_not_to_the_full_holder(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a")
    board.send(alice, graph(":a -> b", function="inc"))
    board.finish(w, "b", nbytes=LARGE, blob=None)  # so `inc` is known to be as large
    ballast(board, alice, w)
    other = worker(board, "other")
    board.send(alice, graph(":a -> c", function="inc"))
    assert board.where("c") == other


def test_growth_counts_inputs_that_are_fetched_and_those_that_are_let_go(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a b")
    other = worker(board, "other")
    board.send(alice, graph(":a :b -> c", function="reduce"))
    task = board.task("c")
    by_peer = board.state.workers
    assert growth(task, by_peer[w]) == 0
    board.send(alice, m.ReleaseKeys(keys=["a"]))
    assert growth(task, by_peer[w]) == -LARGE
    assert growth(task, by_peer[other]) == LARGE  # a copy of b stays there, a is let go


def test_two_results_of_full_workers_are_reduced_to_one_where_they_fit_meanwhile(board):
    alice = board.client()
    first, second = worker(board, "first"), worker(board, "second", resident=390 * MB)
    hold(board, alice, first, "a c")
    measure(board, second, 60 * MB)
    board.send(alice, graph("b", function="make", workers=["second"]))
    board.finish(second, "b", nbytes=LARGE, us=20_000, blob=None)
    board.send(alice, graph(":a :c -> s", function="add"))
    board.finish(first, "s", nbytes=LARGE, us=20_000, blob=None)
    measure(board, first, 370 * MB)
    measure(board, second, 330 * MB)
    board.send(alice, graph(":a :b -> sum", function="add"), m.ReleaseKeys(keys=["a", "b"]))
    # Either is as large after it, and 40 MB more are too much for the first while it runs.
    assert board.where("sum") == second


def test_work_that_was_given_before_its_size_was_known_is_asked_back(board):
    alice = board.client()
    w = worker(board)
    keys = [f"x{i}" for i in range(12)]
    assert len(assigned(board.send(alice, graph(*keys, function="make")), w)) == 12
    out = board.finish(w, "x0", nbytes=100 * MB, us=50_000, blob=None)
    (asked,) = [x for x in out[w] if isinstance(x, m.ReturnAttempts)]
    assert asked.count == 10
    board.send(w, m.AttemptsReturned(attempts=[board.attempt(key) for key in keys[2:]]))
    assert board.where("x1") == w
    n_there = sum(board.where(key) == w for key in keys)
    assert n_there <= 3  # 60 + 100 MB are there, and each may add as much
    assert board.rest() == ["KeysInMemory"]


def test_a_worker_whose_tasks_are_known_to_be_smaller_by_now_has_room_in_the_same_pass(board):
    alice = board.client()
    # With a thread for x, y and z: else this would be a matter of the stock of the worker.
    w, other = worker(board, nthreads=3), worker(board, "other")
    here = {"function": "make", "workers": ["w"]}
    board.send(alice, graph("a", **here))
    board.finish(w, "a", nbytes=LARGE, us=1000, blob=None)
    measure(board, w, 263 * MB)
    board.send(alice, graph("x", "y", **here))  # they may add 40 of the 57 MB that are left
    board.send(alice, graph("b", function="make", workers=["other"]))
    board.finish(other, "b", nbytes=14 * MB, us=1000, blob=None)  # or rather 37
    board.send(alice, graph("z", **here), graph("small", function="small", workers=["w", "v"]))
    assert board.states("z", "small") == ["processing"] * 2


def test_threads_of_a_program_are_not_judged_by_the_size_of_their_common_process(board):
    alice = board.client()
    w = worker(board, resident=390 * MB, address="inproc://w")
    hold(board, alice, w, "a")
    assert board.where("a") is None
    board.send(alice, graph("x", function="make"))
    assert board.where("x") == w


def fill(board: Board) -> tuple[int, int, int]:
    """Return a neighbour with a small result, a greedy client and a full worker.

    Of the greedy client two results are there, and two tasks wait for memory.
    """
    bob, alice = board.client("bob"), board.client("alice")
    w = worker(board)
    board.send(bob, graph("small", function="small"))
    board.finish(w, "small")
    hold(board, alice, w, "ballast", function="ballast", nbytes=200 * MB)
    hold(board, alice, w, "a b")
    measure(board, w, 330 * MB)
    board.send(alice, graph("x", "y", function="make"))
    return bob, alice, w


def test_the_newest_results_fail_when_nothing_makes_room_and_the_rest_lives(board):
    bob, alice, _w = fill(board)
    out = board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("small", "a", "b", "x", "y") == ["memory"] * 3 + ["erred"] * 2
    kind, key, text = board.task("y").failure
    assert (kind, key) == ("memory-exceeded", "y")
    assert "w uses 315 MiB of 381 MiB" in text
    assert "3 results of this client take 229 MiB" in text
    assert "2 more tasks would add 38.1 MiB" in text
    assert "memory_limit=" in text
    (notice,) = [x for x in out[alice] if isinstance(x, m.KeysUnrunnable)]
    assert notice.keys == ["x", "y"]
    assert "filled to 80%" in notice.reason
    assert bob not in out
    assert board.state.counters.tasks_failed_memory == 2


def test_nothing_fails_while_a_task_of_the_same_client_runs_that_may_make_room(board):
    _, alice, w = fill(board)
    board.send(alice, graph(":a -> r", function="reduce"))
    assert board.where("r") == w
    board.tick(20.0)
    assert board.states("x", "y") == ["no_worker"] * 2
    board.finish(w, "r")
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("x", "y") == ["erred"] * 2


def test_a_task_of_a_neighbour_that_runs_for_long_saves_nothing(board):
    bob, _, w = fill(board)
    board.send(bob, graph("long", function="long"))
    assert board.where("long") == w
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("x", "y", "long") == ["erred", "erred", "processing"]


def test_a_client_that_holds_all_gives_way_to_the_work_of_another(board):
    bob, _, _ = fill(board)
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    board.send(bob, graph("z", function="make"))
    assert board.states("z") == ["no_worker"]
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("small", "a", "b", "z") == ["memory", "erred", "erred", "processing"]


def test_a_client_whose_actors_fill_a_worker_costs_the_others_no_end_of_their_wait(board):
    alice, bob = board.client("alice"), board.client("bob")
    w = worker(board)
    hold(board, alice, w, "a")
    actor = graph("actor")
    actor.functions = [m.ACTOR_FUNCTION]
    board.send(bob, actor)
    board.finish(w, "actor", nbytes=200 * MB, us=20_000, blob=None)
    measure(board, w, 330 * MB)
    board.send(alice, graph("x", function="make"))
    assert board.states("x") == ["no_worker"]
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("actor", "a", "x") == ["memory", "memory", "erred"]


def test_a_result_gives_way_to_what_tasks_wait_for_whose_own_results_would_not_fit(board):
    bob, alice = board.client("bob"), board.client("alice")
    w = worker(board, nthreads=2)
    hold(board, bob, w, "known")
    ballast(board, alice, w)
    board.send(bob, m.ReleaseKeys(keys=["known"]))
    measure(board, w, 230 * MB)
    board.send(bob, graph("p", "q", function="make"))
    board.send(w, m.AttemptsBlocked(attempts=[board.attempt("p"), board.attempt("q")]))
    measure(board, w, 290 * MB)
    board.send(bob, graph("c", function="make"))
    assert board.states("c") == ["no_worker"]
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("ballast", "c") == ["erred", "processing"]


def test_nothing_fails_while_a_worker_with_room_is_only_busy(board):
    _, alice, _ = fill(board)
    board.send(alice, graph("other", function="other", workers=["second"]))
    second = worker(board, "second")
    assert {board.where(key) for key in ("x", "y")} == {second}
    board.tick(20.0)
    assert board.states("x", "y") == ["processing"] * 2


def test_a_small_reader_that_prefers_a_full_worker_runs_at_the_full_holder_of_its_input(board):
    """Though it is queued again, as soon as the holder may run it, before the class is judged."""
    alice = board.client()
    ballast(board, alice, worker(board, "first"))
    second = worker(board, "second")
    hold(board, alice, second, "a")
    hold(board, alice, second, "b", function="large", nbytes=200 * MB)
    hold(board, alice, second, "small", function="small", nbytes=8)
    measure(board, second, 330 * MB)
    reader = graph(":a -> x", function="small", workers=["first"], allow_other_workers=True)
    board.send(alice, reader)
    assert board.states("x") == ["no_worker"]
    board.tick(relief.STALLED_S + 4 * relief.LOOK_S)
    assert board.where("x") == second
    board.finish(second, "x", nbytes=8, us=1_000, blob=None)
    assert board.states("a", "b", "ballast") == ["memory"] * 3
    board.drop_rest()


def test_health_names_tasks_that_wait_for_memory_until_they_end(board):
    fill(board)
    codes = [line["code"] for line in overview(board.state)["health"]]
    assert "memory-wait" in codes
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    codes = [line["code"] for line in overview(board.state)["health"]]
    assert "memory-wait" not in codes


def test_scattered_data_waits_for_room_and_then_fails(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a")
    ballast(board, alice, w)
    data = graph("d", scattered=True)
    data.functions, data.function_names = [m.PUT_FUNCTION], ["data"]
    out = board.send(alice, data)
    assert not assigned(out, w)
    out = board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert sent_keys(out, alice, m.KeysErred) == ["d"]
    assert board.task("d").failure[0] == "memory-exceeded"
    assert board.rest() == ["KeysUnrunnable"]


def test_copies_are_not_made_at_full_workers_before_they_have_room(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a")
    second = worker(board, "second", resident=330 * MB)
    ask = m.Ask(name="replicate", request=1, arguments={"keys": ["a"], "n": 2})
    out = board.send(alice, ask)
    assert not [x for x in out.get(second, []) if isinstance(x, m.HoldCopies)]
    measure(board, second, 100 * MB)
    out = board.tick()
    assert sent_keys(out, second, m.HoldCopies) == ["a"]
    assert board.rest() == ["Answer"]


def test_of_workers_killed_again_and_again_the_newer_half_of_the_results_fails(board):
    bob, alice = board.client("bob"), board.client("alice")
    supervisor = board.supervisor()
    board.worker("other")  # so that nothing else changes
    keys = [f"x{i}" for i in range(14)]
    for n in range(relief.N_KILLS):
        w = board.worker("w", memory_limit=LIMIT, supervisor_id="sup", worker_id=f"id {n}")
        if not n:
            board.send(bob, graph("small", function="small", workers=["w"]))
            board.send(alice, graph(*keys, function="make", workers=["w"]))
        for key in ["small", *keys]:
            board.finish(w, key, nbytes=8 if key == "small" else LARGE, blob=None)
        reason = "memory limit: 0.36 of 0.37 GiB, killed by the supervisor"
        exited = m.WorkerExited(worker_id=f"id {n}", reason=reason, running=[])
        board.send(supervisor, exited)
        board.close(w)
    assert board.states(*keys[7:]) == ["erred"] * 7
    assert "erred" not in board.states("small", *keys[:7])
    assert "3 processes of workers were killed" in board.task("x9").failure[2]
    board.tick(relief.KILLS_S + 1)
    assert not memory_of(board.state).kills


def test_kills_of_tasks_that_are_too_large_by_themselves_fail_no_results(board):
    alice = board.client()
    supervisor = board.supervisor()
    board.send(alice, graph("a", "b", function="make"))
    for n in range(relief.N_KILLS):
        w = board.worker("w", memory_limit=LIMIT, supervisor_id="sup", worker_id=f"id {n}")
        board.finish(w, "a", nbytes=LARGE, blob=None)
        reason = "memory limit: 0.39 of 0.37 GiB, killed by the supervisor"
        exited = m.WorkerExited(worker_id=f"id {n}", reason=reason, running=[board.attempt("b")])
        board.send(supervisor, exited)
        board.close(w)
    assert "erred" not in board.states("a", "b")


@pytest.mark.parametrize("reads", ["what it is made of", "other copies"])
def test_a_result_fails_that_does_not_fit_beside_copies(board, reads):
    alice, supervisor = board.client(), board.supervisor()
    keys = [f"in-{i}" for i in range(7)]
    holder = board.worker("holder")
    board.send(alice, graph(*keys, function="make", workers=["holder"]))
    for key in keys:
        board.finish(holder, key, nbytes=2 * LARGE, blob=None)
    inputs = f":{' :'.join(keys)} -> " if reads == "what it is made of" else ""
    board.send(alice, graph(f"{inputs}x", workers=["w"]))
    for n in range(relief.N_KILLS):
        w = board.worker("w", memory_limit=LIMIT, supervisor_id="sup", worker_id=f"id {n}")
        attempts = [board.attempt(key) for key in keys]
        board.send(w, m.ReplicasAdded(keys=keys, attempts=attempts))
        board.finish(w, "x", nbytes=2 * LARGE, blob=None)
        reason = "memory limit: 0.39 of 0.37 GiB, killed by the supervisor"
        board.send(supervisor, m.WorkerExited(worker_id=f"id {n}", reason=reason, running=[]))
        board.close(w)
    assert board.states("x", *keys) == ["erred", *["memory"] * 7]
    assert "3 processes of workers were killed" in board.task("x").failure[2]


def test_a_full_worker_that_is_lost_leaves_nothing_behind(board):
    _, _alice, w = fill(board)
    board.close(w)
    assert not board.state.full
    assert board.states("x", "y") == ["no_worker"] * 2
    board.tick(10.0)
    new = worker(board, "new")
    assert board.where("ballast") == new
    board.finish(new, "small", blob=None)
    assert not dropped(board.finish(new, "ballast", nbytes=LARGE, blob=None), new)
    assert board.where("a") == new
    board.drop_rest()


def test_a_full_worker_is_not_asked_again_and_again_for_what_it_cannot_give_back(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a")
    board.send(alice, graph("x", "y", function="parent"))
    board.send(w, m.AttemptsBlocked(attempts=[board.attempt("x"), board.attempt("y")]))
    board.send(alice, graph("z", "z2", function="parent"))
    measure(board, w, 370 * MB)
    n_asked = 0
    for _ in range(20):
        board.send(w, m.AttemptsReturned(attempts=[]))
        n_asked += sum(isinstance(x, m.ReturnAttempts) for x in board.out.get(w, []))
    assert n_asked <= 1


def test_a_worker_with_room_that_may_not_run_the_tasks_does_not_save_them(board):
    _, alice, _ = fill(board)
    worker(board, "second")
    board.send(alice, graph("z", function="make", workers=["w"]))
    assert board.where("x") is not None
    assert board.states("z") == ["no_worker"]
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    (failure,) = [board.task("z").failure]
    assert failure[0] == "memory-exceeded"
    assert "the memory of each worker that may run the task is filled" in failure[2]


def test_tasks_for_a_worker_with_room_do_not_starve_behind_many_for_a_full_one(board):
    alice = board.client()
    w = worker(board)
    hold(board, alice, w, "a")
    ballast(board, alice, w)
    second = worker(board, "second", resident=378 * MB)  # it has nothing to release
    board.send(alice, graph(*(f"k{i}" for i in range(300)), function="make", workers=["w"]))
    board.send(alice, graph("z", function="make", workers=["second"]))
    assert board.states("k299", "z") == ["no_worker"] * 2
    measure(board, second, 60 * MB)
    board.tick(3 * relief.LOOK_S)
    assert board.where("z") == second


def test_a_task_that_ceases_to_add_since_others_have_read_its_input_runs(board):
    alice = board.client()
    w = worker(board, nthreads=2)
    hold(board, alice, w, "a")
    board.send(alice, graph(":a -> b", function="inc"))
    board.finish(w, "b", nbytes=LARGE, blob=None)  # so `inc` is known to be large
    ballast(board, alice, w)
    board.send(alice, graph("z", function="load"))
    board.finish(w, "z", nbytes=LARGE, blob=None)
    board.send(alice, graph(":z -> n", function="count"), graph(":z -> i", function="inc"))
    board.send(alice, m.ReleaseKeys(keys=["z"]))
    assert board.states("n", "i") == ["processing", "no_worker"]
    board.finish(w, "n")
    board.tick(2 * relief.LOOK_S)
    assert board.where("i") == w


def test_nothing_fails_while_any_task_takes_memory_beside_the_results(board):
    bob, alice = board.client("bob"), board.client("alice")
    w = worker(board, nthreads=2)
    board.send(bob, graph("t", function="train"))
    board.finish(w, "t")
    hold(board, alice, w, "a")
    board.send(bob, graph("t2", function="train"))  # known to have small results
    measure(board, w, 370 * MB)
    board.send(alice, graph("x", function="make"))
    assert board.states("x") == ["no_worker"]
    board.tick(20.0)
    assert board.states("x", "a") == ["no_worker", "memory"]
    measure(board, w, 90 * MB)
    board.finish(w, "t2")
    assert board.where("x") == w


def test_an_idle_worker_that_is_not_full_of_results_gets_one_task_at_a_time(board):
    alice = board.client()
    w = worker(board, nthreads=2)
    hold(board, alice, w, "a")
    measure(board, w, 340 * MB)
    board.send(alice, graph("x", "y", function="make"))
    assert board.states("x", "y") == ["processing", "no_worker"]
    board.finish(w, "x", nbytes=LARGE, blob=None)
    board.send(alice, m.ReleaseKeys(keys=["x"]))
    board.tick(2 * relief.LOOK_S)
    assert board.where("y") == w


def test_results_that_are_not_the_cause_do_not_give_way(board):
    bob, alice = board.client("bob"), board.client("alice")
    w = worker(board)
    hold(board, bob, w, "mine", nbytes=2 * LARGE)
    hold(board, alice, w, "a")
    measure(board, w, 378 * MB)
    board.send(alice, graph("x", function="make"))
    board.tick(relief.STALLED_S + 2 * relief.LOOK_S)
    assert board.states("mine", "a", "x") == ["memory", "memory", "erred"]


def test_a_full_worker_gets_no_more_than_fits_together_while_it_runs(board):
    alice = board.client()
    w = worker(board, nthreads=6)
    keys = [f"a{i}" for i in range(7)]
    hold(board, alice, w, " ".join(keys), nbytes=2 * LARGE)
    board.send(alice, graph(":a0 -> b", function="same"))
    board.finish(w, "b", nbytes=2 * LARGE, blob=None)
    board.send(alice, m.ReleaseKeys(keys=["b"]))
    measure(board, w, 370 * MB)
    rows = [f":a{i} -> c{i}" for i in range(1, 7)]
    board.send(alice, graph(*rows, function="same"), m.ReleaseKeys(keys=keys))
    n_running = sum(board.where(f"c{i}") == w for i in range(1, 7))
    assert n_running == 1  # a0 is gone, so 330 + 40 MB, and 372 are the most


def test_a_task_that_is_too_large_costs_results_of_its_own_client_only(board):
    bob, alice = board.client("bob"), board.client("alice")
    supervisor = board.supervisor()
    keys = [f"x{i}" for i in range(14)]
    for n in range(relief.N_KILLS):
        w = board.worker("w", memory_limit=LIMIT, supervisor_id="sup", worker_id=f"id {n}")
        if not n:
            board.send(bob, graph(*keys, function="make"))
            board.send(alice, graph("bomb", function="bomb"))
        for key in keys:
            board.finish(w, key, nbytes=LARGE, blob=None)
        reason = "memory limit: 0.39 of 0.37 GiB, killed by the supervisor"
        running = [board.attempt("bomb")]
        board.send(supervisor, m.WorkerExited(worker_id=f"id {n}", reason=reason, running=running))
        board.close(w)
    assert "erred" not in board.states(*keys)


BREAKAGES = {
    "full lists the workers that are full": lambda s, w: s.full.clear(),
    "what is expected is of registered workers": lambda s, w: s.workers.pop(w.peer),
    "a full worker has a limit": lambda s, w: setattr(w, "memory_limit", 0),
    "a worker is watched if it has a limit and does not spill": lambda s, w: setattr(
        w, "watched_above", 1 << 62
    ),
    "nothing is expected of a worker that is gone": lambda s, w: (
        expected_at(s, w),
        s.workers_by_id.clear(),
    ),
    "what waits for memory is set aside": lambda s, w: memory_of(s).aside.add(s.tasks["a"]),
    "classes are listed while tasks of them wait for memory": lambda s, w: memory_of(
        s
    ).aside.by_class.update({TaskClass((), ("other",), False, ()): {}}),
    "what waits for memory is looked at": lambda s, w: setattr(memory_of(s), "look", None),
    "a class that is unbound is loose, and is looked at": lambda s, w: setattr(
        s.default_class, "is_unbound", True
    ),
    "memory is busy while a worker is full or a task is set aside": lambda s, w: s.busy.clear(),
    "paused lists the workers that are paused": lambda s, w: memory_of(s).paused.update({w: 0}),
    "a worker is paused while its last report says so": lambda s, w: setattr(w, "is_paused", True),
    "stocked lists the workers without a backlog": lambda s, w: setattr(w, "backlog_ns", 0),
    "a worker that is stocked has a task for each thread": lambda s, w: memory_of(s).stocked.update(
        {w: None}
    ),
    "memory is busy while a worker is stocked": lambda s, w: (
        memory_of(s).stocked.update({w: None}),
        s.busy.clear(),
    ),
}


@pytest.mark.parametrize("name", MEMORY_INVARIANTS)
def test_invariants_of_memory_are_noticed_when_they_are_broken(board, name):
    fill(board)
    (ws,) = board.state.workers.values()
    BREAKAGES[name](board.state, ws)
    with pytest.raises(InvalidState, match=name):
        validate(board.state)
