"""Tasks of categories get memory before they are assigned, and more when they use more."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.protocol.wire.columns import MAX_SIZE
from weft.protocol.wire.options import FIXED, MAX_THROUGHPUT
from weft.scheduler.core.categories import allotting, records
from weft.scheduler.core.categories.allotting import MAX_GIVEN
from weft.scheduler.core.categories.feature import FEATURE
from weft.scheduler.core.categories.records import categories_of
from weft.scheduler.core.insight.explaining import why
from weft.scheduler.core.interruption.interrupting import END_PROCESS_AFTER_S
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ...builders import Board, assignment, dropped, graph, sent_keys
from .builders import MB, exceed, fits, given, learn, measured, worker


def test_the_first_tasks_have_a_worker_of_their_own(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    out = board.send(client, fits("x", "y", "z"))
    assert assignment(out, a).allotted_nbytes == [1024 * MB]
    assert assignment(out, b).allotted_nbytes == [1024 * MB]
    assert {board.where("x"), board.where("y")} == {a, b}
    assert board.states("z") == ["queued"]
    board.finish(a, *(key for key in "xy" if board.where(key) == a))
    assert board.states("z") == ["processing"]


def test_later_ones_share_a_worker_by_what_was_used(board):
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=200)
    out = board.send(client, fits("p", "q", "r", "s"))
    assert assignment(out, a).allotted_nbytes == [200 * MB] * 4
    assert board.states(*"pqrs") == ["processing"] * 4


def test_tasks_that_were_submitted_before_get_what_is_learned_later(board):
    client, a = board.client(), worker(board, "a")
    keys = [f"t{i}" for i in range(MAX_GIVEN + 20)]
    board.send(client, fits(*keys))
    assert board.states(keys[0], keys[1], keys[-1]) == ["processing", "queued", "waiting"]
    for key in keys[:5]:
        measured(board, a, key, mb=100)
    assert [given(board, key) for key in keys[5:9]] == [100.0] * 4
    assert board.states(*keys[5:9]) == ["processing"] * 4
    text, *_ = why(board.state, board.task(keys[-1]))
    assert "for its category 'fits' to give it memory" in text
    board.drop_rest()


def test_a_task_that_uses_more_is_run_again_with_the_largest_when_it_has_ended(board):
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=100)
    board.send(client, fits("x"))
    attempt = board.attempt("x")
    assert given(board, "x") == 100.0
    out = exceed(board, a, "x", mb=150)
    assert dropped(out, a) == [attempt]
    assert out.of(a, m.InterruptAttempts)[0].attempts == [attempt]
    assert board.states("x") == ["no_worker"]
    board.send(a, m.AttemptsEnded(attempts=[attempt], ends=[m.INTERRUPTED]))
    out = board.tick()
    assert assignment(out, a).allotted_nbytes == [1024 * MB]
    # It counts as no failure of the user's.
    assert assignment(out, a).n_raised == []
    out = board.finish(a, "x")
    assert sent_keys(out, client, m.ResultsReady) == ["x"]


def test_a_task_is_run_again_also_if_its_process_does_not_end(board):
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=100)
    board.send(client, fits("x"))
    exceed(board, a, "x", mb=150)
    board.tick(END_PROCESS_AFTER_S + 2.0)
    assert given(board, "x") == 1024.0
    assert board.states("x") == ["queued"]
    board.drop_rest()


def test_beyond_the_largest_it_fails_with_a_kind_of_its_own(board):
    client, a = board.client(), worker(board, "a")
    board.send(client, fits("x -> y", max_mb=300))
    assert given(board, "x") == 300.0
    out = exceed(board, a, "x", mb=400)
    (message,) = out.of(client, m.KeysErred)
    limit, used = 300 * MB, 400 * MB
    assert message.failures == [["allotment-exceeded", "x", "fits", limit, used, "a", 1]]
    assert sorted(message.keys) == ["x", "y"]
    board.drop_rest()


def test_a_fixed_category_learns_nothing(board):
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=100)
    board.send(client, fits("x", mode=FIXED, max_mb=500))
    assert given(board, "x") == 500.0
    out = exceed(board, a, "x", mb=501)
    assert out.of(client, m.KeysErred)[0].failures[0][0] == "allotment-exceeded"
    board.drop_rest()


def test_the_maximum_is_at_most_the_largest_worker(board):
    client, a = board.client(), worker(board, "a", mb=256)
    board.send(client, fits("x", max_mb=8192))
    assert given(board, "x") == 256.0
    out = exceed(board, a, "x", mb=257)
    # The limit is not that of the category.
    assert out.of(client, m.KeysErred)[0].failures[0][-1] == 0
    board.drop_rest()


def test_shared_measurements_teach_nothing(board):
    client, a = board.client(), worker(board, "a")
    for i in range(9):
        board.send(client, fits(f"x{i}"))
        measured(board, a, f"x{i}", mb=100, kind=m.SHARED)
    assert categories_of(board.state).by_name["fits"].peaks["memory"].n_measured == 0
    board.drop_rest()


def test_a_larger_worker_gives_more_to_what_waits(board):
    client, a = board.client(), worker(board, "a", mb=256)
    board.send(client, fits("x", "y"))
    assert (given(board, "x"), given(board, "y")) == (256.0, 256.0)
    b = worker(board, "b", mb=512)
    board.tick()
    assert (given(board, "x"), given(board, "y")) == (256.0, 512.0)
    assert (board.where("x"), board.where("y")) == (a, b)
    board.drop_rest()


def test_tasks_wait_for_a_first_worker_and_get_its_memory(board):
    client = board.client()
    board.send(client, fits("x"), fits("y", max_mb=100, function="dec"))
    assert board.states("x", "y") == ["no_worker", "no_worker"]
    a = worker(board, "a", mb=512)
    board.tick()
    assert board.states("x", "y") == ["processing", "processing"]
    assert (given(board, "x"), given(board, "y")) == (100.0, 100.0)  # the latest maximum
    assert board.where("x") == a
    board.drop_rest()


def test_nothing_is_reserved_where_workers_offer_no_memory(board):
    client, a = board.client(), board.worker("a", 2)
    out = board.send(client, fits("x", "y"))
    assert assignment(out, a).allotted_nbytes == [MAX_SIZE] * 2
    assert given(board, "x") == 0.0


def test_a_restricted_task_gets_the_memory_of_the_workers_that_may_run_it(board):
    client, a = board.client(), worker(board, "a", mb=256)
    worker(board, "b", mb=512)
    board.send(client, fits("x", workers=["a"]))
    assert given(board, "x") == 256.0
    assert board.where("x") == a


def test_inputs_and_other_amounts_are_waited_for_as_ever(board):
    client, a = board.client(), worker(board, "a")
    board.send(client, graph("i", function="other"), fits(":i -> x", resources={"cores": 2}))
    assert board.states("x") == ["waiting"]
    board.finish(a, "i")
    assert dict(board.task("x").group.task_class.resources) == {"cores": 2.0, "memory": 2.0**30}
    assert board.states("x") == ["processing"]


def test_a_task_whose_worker_is_lost_is_given_to_another(board):
    client, a = board.client(), worker(board, "a")
    b = worker(board, "b")
    board.send(client, fits("x"))
    peer = board.where("x")
    assert peer is not None
    board.close(peer)
    board.tick(board.state.settings.away_s + 1)
    assert board.where("x") == ({a, b} - {peer}).pop()
    board.drop_rest()


def test_conditions_come_before_memory(board):
    client, a = board.client(), worker(board, "a")
    board.send(client, graph("i", function="other"), fits("x", conditions=[["done", "i"]]))
    assert board.states("x") == ["waiting"]
    board.finish(a, "i")
    assert board.states("x") == ["processing"]
    assert given(board, "x") == 1024.0


def test_a_cancelled_task_is_given_nothing(board):
    client = board.client()
    worker(board, "a")
    keys = [f"t{i}" for i in range(MAX_GIVEN + 3)]
    board.send(client, fits(*keys))
    board.send(client, m.CancelKeys(keys=keys, force=True, reason="", running=False))
    assert "t9" not in board.state.tasks
    board.drop_rest()


def test_reports_of_what_is_not_known_are_stale(board):
    client, a = board.client(), worker(board, "a")
    board.send(client, graph("x"))
    n = board.state.counters.reports_stale
    exceed(board, a, "x", mb=1)
    board.send(a, m.AttemptsExceeded(attempts=[999], used_nbytes=[1]))
    zeros = {name: [0] for name in m.AttemptsMeasured.columns}
    board.send(a, m.AttemptsMeasured(**{**zeros, "attempts": [999]}))
    assert board.state.counters.reports_stale == n + 3
    board.drop_rest()


def test_the_latest_mode_and_maximum_count(board):
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=100)
    keys = ["p", "q"]
    board.send(client, fits(*keys, mode=FIXED, max_mb=800))
    assert board.states(*keys) == ["processing", "queued"]
    board.send(client, fits("r", mode=MAX_THROUGHPUT, max_mb=400))
    assert [given(board, key) for key in "pqr"] == [800.0, 100.0, 100.0]
    board.drop_rest()


def test_few_categories_are_remembered(board, monkeypatch):
    monkeypatch.setattr(records, "MAX_CATEGORIES", 5)
    client, a = board.client(), worker(board, "a")
    for i in range(9):
        category = {"name": f"c{i}", "mode": FIXED, "max_nbytes": MB}
        board.send(client, graph(f"x{i}", category=category))
        board.finish(a, f"x{i}")
    assert len(categories_of(board.state).by_name) == 5
    board.drop_rest()


def test_all_of_many_tasks_are_given_memory_in_the_end(board, monkeypatch):
    monkeypatch.setattr(allotting, "MAX_GIVEN", 3)
    client, a = board.client(), worker(board, "a", nthreads=2)
    keys = [f"t{i}" for i in range(12)]
    board.send(client, fits(*keys))
    left = dict.fromkeys(keys)
    for _ in keys:
        key = next(key for key in left if board.states(key) == ["processing"])
        del left[key]
        measured(board, a, key, mb=100)
        board.tick(0.01)
        category = categories_of(board.state).by_name["fits"]
        queued = [key for key in left if board.states(key) == ["queued"]]
        assert len(queued) <= len(category.given) <= 3
    assert board.states(*keys) == ["memory"] * 12
    assert not category.waiting
    board.drop_rest()


def test_a_task_that_is_needed_again_gets_what_workers_have_now(board):
    client = board.client()
    board.send(client, fits("x", max_mb=4096))
    assert given(board, "x") == 4096.0
    board.send(client, fits(":x -> y", max_mb=4096))
    board.send(client, m.ReleaseKeys(keys=["x", "y"]))
    board.send(client, fits("x", max_mb=4096), fits(":x -> y", max_mb=4096))
    worker(board, "a", mb=512)
    board.tick()
    assert given(board, "x") == 512.0
    assert board.states("x") == ["processing"]
    board.drop_rest()


def test_a_lost_result_is_computed_with_what_is_left_of_the_workers(board):
    client, a = board.client(), worker(board, "a", mb=512)
    large = worker(board, "large", mb=2048)
    board.send(client, fits("x"))
    assert board.where("x") == large
    board.finish(large, "x", blob=None)
    board.close(large)
    board.tick(board.state.settings.away_s + 1)
    assert given(board, "x") == 512.0
    assert board.where("x") == a
    board.drop_rest()


def test_a_task_that_pauses_pauses_on_with_what_is_left_of_the_workers(board):
    client, a = board.client(), worker(board, "a", mb=512)
    large = worker(board, "large", mb=2048)
    board.send(client, fits("x", retries=1, pauses=[20.0, 1.0, 20.0, 0.0]))
    assert board.where("x") == large
    board.raise_(large, "x")
    board.close(large)
    board.tick(board.state.settings.away_s + 1)
    assert board.states("x") == ["no_worker"]
    assert given(board, "x") == 512.0
    board.tick(20.0)
    assert board.where("x") == a
    board.drop_rest()


def test_tasks_that_were_run_again_are_forgotten_with_the_others(board, monkeypatch):
    monkeypatch.setattr(records, "FEW", 2)
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=100)
    category = categories_of(board.state).by_name["fits"]
    category.sweep_at = 2
    for i in range(20):
        key = f"x{i}"
        board.send(client, fits(key))
        attempt = board.attempt(key)
        exceed(board, a, key, mb=150)
        board.send(a, m.AttemptsEnded(attempts=[attempt], ends=[m.INTERRUPTED]))
        board.tick()
        assert given(board, key) == 1024.0
        board.finish(a, key)
        board.send(client, m.ReleaseKeys(keys=[key]))
        assert len(category.repeated) <= 4
    assert category.n_repeated == 20
    board.drop_rest()


def test_memory_that_is_chosen_anew_lets_no_more_tasks_of_a_user_run(board):
    user_limits_of(board.state).max_running = 2
    ann, a = board.client(user="ann"), worker(board, "a", nthreads=8)
    keys = [f"t{i}" for i in range(20)]
    board.send(ann, fits(*keys))
    for n_ended in range(1, 7):  # after the fifth, all get less
        ended = next(key for key in keys if board.states(key) == ["processing"])
        measured(board, a, ended, mb=100)
        board.tick(0.05)
        states = board.states(*keys)
        assert [states.count("memory"), 20 - states.count("no_worker")] == [n_ended, n_ended + 2]
    assert states.count("processing") == 2
    worker(board, "larger", nthreads=8, mb=4096)  # all tasks are looked at
    board.tick(0.05)
    states = board.states(*keys)
    assert states.count("queued") + states.count("processing") == 2
    board.drop_rest()


def order(board: Board, peer: int, name: str, queue: str) -> None:
    """Let a client pause or resume a queue."""
    board.send(peer, m.Ask(request=1, name=name, arguments={"name": queue}, page=""))


def test_tasks_that_are_held_back_do_not_count_as_queued(board, monkeypatch):
    monkeypatch.setattr(allotting, "MAX_GIVEN", 3)
    user_limits_of(board.state).of_users = {"ann": {"running": 2}}
    client, ann, a = board.client(), board.client("ann", user="ann"), worker(board, "a")
    order(board, client, "pause_queue", "nightly")
    board.send(client, fits("n0", "n1", "n2", "n3", job_queue="nightly"))
    board.send(client, fits("e0", "e1", "e2", "e3", workers=["elsewhere"]))
    board.send(ann, fits("u0", "u1", "u2", "u3", "u4", "u5"))
    board.send(client, fits("x"))
    assert board.states("n3", "e3", "u5", "x") == [*["no_worker"] * 3, "queued"]
    board.finish(a, "u0")
    board.finish(a, "x")
    assert board.states("u1", "x") == ["processing", "memory"]
    board.drop_rest()


def test_held_back_tasks_get_the_memory_that_is_chosen_by_then(board):
    user_limits_of(board.state).of_users = {"ann": {"running": 1}}
    client, ann, a = board.client(), board.client("ann", user="ann"), worker(board, "a")
    order(board, client, "pause_queue", "nightly")
    board.send(client, fits("n0", "n1", job_queue="nightly"))
    board.send(ann, fits("u0", "u1"))
    board.finish(a, "u0")
    assert given(board, "n0") == 1024.0
    board.send(ann, fits("u2"))
    learn(board, client, a, mb=100)  # u1 is at the worker
    order(board, client, "resume_queue", "nightly")
    assert (given(board, "n0"), given(board, "n1")) == (100.0, 100.0)
    measured(board, a, "u1", mb=100)
    assert given(board, "u2") == 100.0
    assert board.states("n0", "n1", "u2") == ["processing"] * 3
    board.drop_rest()


def test_tasks_no_worker_can_run_ask_for_the_latest_maximum(board):
    client = board.client()
    board.send(client, fits("x", max_mb=4096))
    assert given(board, "x") == 4096.0
    board.send(client, fits("y", max_mb=512))
    assert board.states("x", "y") == ["no_worker"] * 2
    assert (given(board, "x"), given(board, "y")) == (512.0, 512.0)
    board.drop_rest()


# -- what is shown ---------------------------------------------------------------------------------
def used(board, peer, key, *, cpu_us, mb=1, kind=m.OWN_PROCESS, failed=()):
    zeros = {name: [0] for name in m.AttemptsMeasured.columns}
    numbers = {"wall_us": [2_000_000], "cpu_us": [cpu_us], "peaks_nbytes": [mb * MB]}
    facts = {"attempts": [board.attempt(key)], "kinds": [kind], "failed": [*failed]}
    board.send(peer, m.AttemptsMeasured(**{**zeros, **numbers, **facts}))


def shown(board, name):
    (metric,) = [one for one in FEATURE.metrics if one.name == f"category_{name}"]
    return metric.read(board.state)


def test_metrics_have_the_time_and_memory_that_attempts_with_results_have_used(board):
    client, a = board.client(), worker(board, "a")
    board.send(client, fits("x", "y", "z"))
    used(board, a, "x", cpu_us=3_000_000, mb=5)
    board.finish(a, "x")
    used(board, a, "y", cpu_us=500_000, mb=900, kind=m.SHARED)
    board.finish(a, "y")
    used(board, a, "z", cpu_us=9_000_000, mb=900, failed=[1])
    assert shown(board, "cpu_seconds_total") == {"fits": 3.5}
    assert shown(board, "wall_seconds_total") == {"fits": 4.0}
    assert shown(board, "memory_peak_bytes") == {"fits": 5 * MB}
    board.drop_rest()
