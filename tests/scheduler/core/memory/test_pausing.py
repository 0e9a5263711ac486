"""Workers that report that they are paused: they get nothing, and go on to serve."""

from __future__ import annotations

from tests.scheduler.builders import Board, Out, assigned, graph, sent_keys
from weft.protocol.reported import OF_WORKERS, SPILLED_BYTES, SPILLS, n_numbers
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.desired import desired_workers
from weft.scheduler.core.insight.explaining import explain
from weft.scheduler.core.insight.info import describe_worker
from weft.scheduler.core.insight.metrics import count_workers
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.memory import relief
from weft.scheduler.core.memory.records import memory_of

GIB = 1 << 30
LIMIT = 4 * GIB
MB = 1_000_000


def report(
    board: Board,
    peer: int,
    state: str = "paused",
    managed: float = 2.1,
    spilled: float = 0.9,
    writing: tuple[int, int] = (0, 0),
) -> None:
    """Let a worker report its state: it uses 81 % of 4 GiB."""
    numbers = [0] * n_numbers(OF_WORKERS)
    names = [metric.name for metric in OF_WORKERS for _ in range(metric.n)]
    numbers[names.index(SPILLED_BYTES)] = int(spilled * GIB)
    board.send(
        peer,
        m.WorkerStatus(
            state=state,
            nthreads=1,
            n_records=0,
            n_ready=0,
            managed_nbytes=int(managed * GIB),
            resident_nbytes=int(0.81 * LIMIT),
            cpu_percent=0,
            numbers=numbers,
            spilling_nbytes=writing[0],
            spill_bytes_per_s=writing[1],
        ),
    )


def worker(board: Board, name: str = "w") -> int:
    return board.worker(name, memory_limit=LIMIT, facts={SPILLS: True})


def test_a_paused_worker_gets_nothing_and_all_goes_to_the_others(board):
    alice = board.client()
    w, other = worker(board), worker(board, "other")
    report(board, w)
    out = board.send(alice, graph("a", "b", "c"))
    assert not assigned(out, w)
    assert list(assigned(out, other)) == ["a", "b", "c"]


def test_a_worker_that_is_paused_is_asked_back_for_all_that_has_not_started(board):
    alice = board.client()
    w = worker(board)
    board.send(alice, graph("a", "b", "c"))
    other = worker(board, "other")
    board.drop_rest()
    report(board, w)
    (asked,) = board.out.of(w, m.ReturnAttempts)
    assert asked.count == 3
    out = board.send(w, m.AttemptsReturned(attempts=[board.attempt("b"), board.attempt("c")]))
    assert list(assigned(out, other)) == ["b", "c"]
    assert board.where("a") == w


def test_a_paused_worker_takes_part_again_as_soon_as_it_runs(board):
    alice = board.client()
    w = worker(board)
    report(board, w)
    board.send(alice, graph("a"))
    assert board.states("a") == ["queued"]
    report(board, w, "running")
    assert board.where("a") == w


def test_the_holder_of_an_input_is_not_chosen_while_it_is_paused_and_serves_it(board):
    alice = board.client()
    w = worker(board)
    board.send(alice, graph("a"))
    board.finish(w, "a", nbytes=500 * MB, blob=None)
    other = worker(board, "other")
    report(board, w)
    out = board.send(alice, graph(":a -> b"))
    (message,) = out.of(other, m.AssignTasks)
    assert message.located_keys == ["a"]


def test_a_paused_worker_is_asked_for_no_copies_before_it_runs(board):
    alice = board.client()
    w = worker(board)
    board.send(alice, graph("a"))
    board.finish(w, "a", blob=None)
    other = worker(board, "other")
    report(board, other)
    ask = m.Ask(name="replicate", request=1, arguments={"keys": ["a"], "n": 2})
    assert not board.send(alice, ask).of(other, m.HoldCopies)
    report(board, other, "running")
    assert sent_keys(board.tick(), other, m.HoldCopies) == ["a"]
    board.rest()


def test_a_worker_that_stays_paused_because_of_other_memory_is_explained_with_what_helps(board):
    alice = board.client()
    w = worker(board)
    board.send(alice, graph("a"))
    report(board, w, managed=0.2, spilled=0.0)
    (detail,) = [x for x in explain(board.state, board.task("a"))["details"] if "worker w" in x]
    assert "205 MiB of results, 3.04 GiB not by results" in detail
    assert "stays paused until its tasks give that back" in detail
    assert "client.restart_workers" in detail
    described = describe_worker(board.state, board.state.workers[w])
    assert detail == f"worker w: {described['why_not']}"
    lines = {line["code"]: line["advice"] for line in overview(board.state)["health"]}
    assert "restart those whose memory is not of results" in lines["workers-paused"]


def test_a_worker_that_is_paused_is_described_so_with_what_fills_its_memory(board):
    alice = board.client()
    w = worker(board)
    report(board, w)
    board.send(alice, graph("a"))
    text = "paused: 81% of 4 GiB, 2.1 GiB of results, 922 MiB spilled, 1.14 GiB not by results"
    assert f"worker w: {text}" in explain(board.state, board.task("a"))["details"]
    described = describe_worker(board.state, board.state.workers[w])
    assert (described["is_paused"], described["why_not"]) == (True, text)
    assert described["metrics"]["spilled"] == int(0.9 * GIB)
    states = {"running": 0, "paused": 1, "blocked": 0, "leaving": 0, "away": 0}
    assert count_workers(board.state) == states
    lines = {line["code"]: line["what"] for line in overview(board.state)["health"]}
    assert "1 worker is paused, and it gets no task" in lines["workers-paused"]


def test_a_paused_worker_that_writes_to_disk_says_how_much_and_how_fast_and_what_helps(board):
    w = worker(board)
    report(board, w, writing=(GIB // 4, 0))
    text = describe_worker(board.state, board.state.workers[w])["why_not"]
    assert "922 MiB spilled, 256 MiB being written to disk, 1.14 GiB not by results; " in text
    assert "; it takes tasks again when enough is on disk, which is sooner " in text
    assert text.endswith(" (--local-directory)")
    report(board, w, writing=(GIB // 4, GIB // 1000))
    text = describe_worker(board.state, board.state.workers[w])["why_not"]
    assert "256 MiB being written to disk at 1.02 MiB/s per file, " in text


def test_another_worker_is_desired_for_each_one_that_is_paused_while_tasks_wait(board):
    alice = board.client()
    w = worker(board)
    board.send(alice, graph("a"))
    assert desired_workers(board.state).n_workers == 1
    report(board, w)
    assert desired_workers(board.state).n_workers == 1
    board.send(alice, graph("b"))
    assert desired_workers(board.state).n_workers == 2
    board.drop_rest()


def test_a_worker_that_spills_is_never_full(board):
    alice = board.client()
    w = worker(board)
    report(board, w, "running")
    board.send(alice, graph("a", "b"))
    board.finish(w, "a", "b", nbytes=GIB, blob=None)
    assert not board.state.full


def hold(board: Board) -> tuple[int, int]:
    """Let a paused worker have two results of 1.5 GiB, while a third is to be made."""
    alice = board.client()
    w = worker(board)
    board.send(alice, graph("a", "b", function="make"))
    for key in "ab":
        board.finish(w, key, nbytes=3 * GIB // 2, blob=None)
    report(board, w, managed=3.0, spilled=0.0)
    board.send(alice, graph("x", function="make"))
    assert board.states("x") == ["queued"]
    return alice, w


def test_the_newest_results_fail_when_a_paused_worker_cannot_spill_any_more(board):
    alice, w = hold(board)
    out = pass_reporting(board, w, relief.STALLED_S + 2)
    assert board.states("a", "b", "x") == ["memory", "memory", "erred"]
    assert board.task("x").failure[0] == "memory-exceeded"
    assert any(isinstance(message, m.KeysUnrunnable) for message in out[alice])
    board.rest()


def test_nothing_fails_before_a_paused_worker_has_reported_again_that_it_makes_no_room(board):
    """Its reports are late, or it is suspended: it may have made room meanwhile."""
    alice, w = hold(board)
    (notice,) = board.tick(2 * relief.STALLED_S).of(alice, m.KeysUnrunnable)
    assert notice.keys == ["x"]
    for _ in range(relief.N_REPORTS - 1):
        report(board, w, managed=3.0, spilled=0.0)
        board.tick(relief.STALLED_S)
    assert board.states("x") == ["queued"]
    report(board, w, managed=3.0, spilled=0.0)
    board.tick(2.0)
    assert board.states("x") == ["erred"]
    board.drop_rest()


def test_nothing_fails_while_a_paused_worker_is_expected_back():
    """Whether it is still paused is not known: another process may have its name by now."""
    board = Board(away_s=60.0)
    _alice, w = hold(board)
    pass_reporting(board, w, 3.0)
    board.close(w)
    board.tick(2 * relief.STALLED_S)
    assert board.states("x") == ["queued"]
    board.tick(60.0)
    assert not board.state.workers
    board.drop_rest()


def test_a_notice_does_not_compare_what_a_worker_uses_with_a_limit_that_it_does_not_have(board):
    alice, w = board.client(), board.worker("w")
    report(board, w, managed=3.0, spilled=0.0)
    board.send(alice, graph("x"))
    notices = board.tick(10.0).of(alice, m.KeysUnrunnable)
    assert [notice.keys for notice in notices] == [["x"]]
    assert "w uses 3.24 GiB, and has no limit" in notices[0].reason
    board.rest()


def pass_reporting(board: Board, w: int, seconds: float) -> Out:
    """Let time pass while a paused worker reports each half second that it has not made room."""
    out = Out()
    for _ in range(int(2 * seconds)):
        report(board, w, managed=3.0, spilled=0.0)
        for peer, messages in board.tick(0.5).items():
            out.setdefault(peer, []).extend(messages)
    return out


def test_nothing_fails_while_a_paused_worker_spills_more(board):
    _alice, w = hold(board)
    for second in range(20):
        report(board, w, managed=3.0, spilled=0.1 * second)
        board.tick(1.0)
    assert board.states("a", "b", "x") == ["memory", "memory", "queued"]
    board.drop_rest()


def test_tasks_that_prefer_a_worker_which_stays_paused_run_elsewhere(board):
    alice, w = board.client(), worker(board)
    other = worker(board, "other")
    report(board, w)
    board.send(alice, graph("a", "b", workers=["w"], allow_other_workers=True))
    board.send(alice, graph("s", workers=["w"]))
    assert board.states("a", "b", "s") == ["queued"] * 3
    out = pass_reporting(board, w, relief.STALLED_S + 2)
    assert list(assigned(out, other)) == ["a", "b"]
    assert board.states("s") == ["queued"]
    report(board, w, "running")
    assert board.where("s") == w
    board.finish(w, "s")
    board.tick(2.0)
    board.send(alice, graph("c", workers=["w"], allow_other_workers=True))
    assert board.where("c") == w
    board.drop_rest()


def test_tasks_that_prefer_a_worker_may_run_elsewhere_for_as_long_as_all_workers_are_paused(board):
    alice, w = board.client(), worker(board)
    other = worker(board, "other")
    report(board, w)
    report(board, other)
    board.send(alice, graph("a", workers=["w"], allow_other_workers=True))
    for _ in range(2):
        for _ in range(int(relief.STALLED_S) + 2):
            report(board, w, managed=3.0, spilled=0.0)
            report(board, other, managed=3.0, spilled=0.0)
            board.tick(1.0)
    report(board, other, "running")
    assert board.where("a") == other
    board.drop_rest()


def test_a_preferred_worker_that_joins_is_preferred_again(board):
    alice, w = board.client(), worker(board)
    other = worker(board, "other")
    report(board, w)
    options = {"workers": ["w", "w2"], "allow_other_workers": True}
    board.send(alice, graph("a", **options))
    pass_reporting(board, w, relief.STALLED_S + 2)
    board.finish(other, "a")
    w2 = worker(board, "w2")
    keys = list("bcdefgh")
    assert list(assigned(board.send(alice, graph(*keys, **options)), w2)) == keys
    board.drop_rest()


def test_a_paused_worker_that_is_lost_leaves_nothing_behind(board):
    _alice, w = hold(board)
    board.close(w)
    assert not memory_of(board.state).paused
    board.drop_rest()


def test_a_worker_that_comes_back_paused_is_asked_again_for_what_it_has_not_started():
    board = Board(away_s=5.0)
    alice, w = board.client(), worker(board)
    board.send(alice, graph("a", "b"), m.WantKeys(keys=["a", "b"]))
    report(board, w)
    board.close(w)
    running, waiting = ({key: board.attempt(key)} for key in "ab")
    options = {"memory_limit": LIMIT, "facts": {SPILLS: True}}
    w = board.come_back("w", running=running, assigned=waiting, **options)
    assert m.ReturnAttempts(count=2) in board.out[w]
    board.drop_rest()
