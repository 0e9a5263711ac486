"""If a member of a gang is to run again, all are; if one fails or is cancelled, all end."""

from __future__ import annotations

import pytest

from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.scheduler.core.gangs.records import gangs_of
from weft.scheduler.core.gangs.running import LONGEST_END_S, VERDICT_S
from weft.scheduler.core.interruption.interrupted import interruptions_of
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.recovery.barrier import QUIET_S

from ...builders import Board, Out, dropped, failures, graph, learn, sent_keys
from .builders import gang, worker


class Two:
    """A gang of two that runs at two workers, and a third worker."""

    def __init__(self, board: Board, **options: object) -> None:
        self.board = board
        self.client = board.client()
        for name in "ab":
            worker(board, name)
        board.send(self.client, *gang("g", 2, **options))
        #: the peers of the workers, by rank
        self.at = [board.where("g-0"), board.where("g-1")]
        self.attempts = [board.attempt("g-0"), board.attempt("g-1")]
        assert None not in self.at

    def raises(self, rank: int, kind: str = "exception") -> Out:
        failure = [kind, f"g-{rank}", b"", "ValueError", "bad", "", b""]
        return self.board.send(
            self.at[rank],
            m.AttemptsErred(attempts=[self.attempts[rank]], durations_us=[5], failures=[failure]),
        )

    def ends(self, rank: int) -> Out:
        """Let the dropped attempt of a member end."""
        return self.board.send(self.at[rank], m.AttemptsEnded(attempts=[self.attempts[rank]]))


@pytest.fixture
def two(board) -> Two:
    return Two(board)


# -- a worker is lost ------------------------------------------------------------------------------
def test_the_loss_of_a_worker_ends_all_and_they_begin_anew_together(board, two):
    out = board.close(two.at[1])
    assert dropped(out, two.at[0]) == [two.attempts[0]]
    (interrupt,) = out.of(two.at[0], m.InterruptAttempts)
    assert interrupt.attempts == [two.attempts[0]]
    assert board.states("g-0", "g-1") == ["no_worker", "no_worker"]
    c = worker(board, "c")
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]  # the old run has not ended
    out = two.ends(0)
    assert {*board.states("g-0", "g-1")} == {"processing"}
    assert {board.where("g-0"), board.where("g-1")} == {two.at[0], c}
    board.drop_rest()


def test_a_run_that_does_not_end_is_waited_for_until_its_process_has(board, two):
    board.close(two.at[1])
    worker(board, "c")
    worker(board, "d")
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    board.tick(LONGEST_END_S + 0.1)
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_a_member_is_not_asked_back_for_a_call_that_waits_and_keeps_its_core(board):
    client = board.client()
    at = board.worker(nthreads=2, resources={"cores": 3.0}, facts={QUEUES_RESOURCES: True})
    learn(board, client, at, us=1000)
    board.send(client, *gang("g", 2))
    one = {"cores": 1.0}
    board.send(client, graph("parent", resources=one), graph("next", resources=one, blob=None))
    out = board.send(at, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    (asked,) = out.of(at, m.WithdrawAttempts)
    assert asked.attempts == [board.attempt("next")]
    board.drop_rest()


def test_an_attempt_that_is_given_back_takes_the_others_back(board, two):
    board.send(two.at[0], m.AttemptsReturned(attempts=[two.attempts[0]]))
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    two.ends(1)
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_a_member_that_has_finished_runs_again_with_the_others(board, two):
    board.finish(two.at[0], "g-0")
    assert board.states("g-0", "g-1") == ["memory", "processing"]
    out = board.send(two.at[1], m.AttemptsReturned(attempts=[two.attempts[1]]))
    assert dropped(out, two.at[0]) == [two.attempts[0]]
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_a_result_that_is_lost_later_is_made_by_all_again(board, two):
    board.finish(two.at[0], "g-0", blob=None)
    board.finish(two.at[1], "g-1", blob=None)
    board.close(two.at[1])
    assert board.states("g-0", "g-1") == ["no_worker", "no_worker"]
    worker(board, "c")
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_a_lost_result_is_made_again_also_with_a_member_that_was_released(board, two):
    board.finish(two.at[0], "g-0", blob=None)
    board.finish(two.at[1], "g-1", blob=None)
    board.send(two.client, m.ReleaseKeys(keys=["g-0"]))
    board.close(two.at[1])
    worker(board, "c")
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_a_lost_result_is_lost_if_another_member_was_cancelled(board, two):
    board.finish(two.at[0], "g-0", blob=None)
    board.finish(two.at[1], "g-1", blob=None)
    board.send(two.client, m.CancelKeys(keys=["g-0"], force=False, reason=""))
    out = board.close(two.at[1])
    (erred,) = out.of(two.client, m.KeysErred)
    assert erred.failures[0][0] == "data-lost"
    assert "the future of rank 0 is gone" in erred.failures[0][2]
    board.drop_rest()


# -- a member fails --------------------------------------------------------------------------------
def test_a_failure_ends_all_with_its_cause(board, two):
    out = two.raises(0)
    assert out == {}
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    out = board.tick(VERDICT_S + 0.1)
    assert board.states("g-0", "g-1") == ["erred", "erred"]
    assert dropped(out, two.at[1]) == [two.attempts[1]]
    assert [x.attempts for x in out.of(two.at[1], m.InterruptAttempts)] == [[two.attempts[1]]]
    found = failures(out, two.client)
    assert found["g-0"][0] == "exception"
    assert found["g-1"][:5] == ["gang-ended", "g-0", 0, 2, "exception"]
    assert found["g-1"][5:] == found["g-0"][2:]
    two.ends(1)
    assert not interruptions_of(board.state)
    board.drop_rest()


def test_the_first_of_several_that_raise_is_the_cause(board, two):
    two.raises(1)
    two.raises(0)
    out = board.tick(VERDICT_S + 0.1)
    kinds = {key: failure[0] for key, failure in failures(out, two.client).items()}
    assert kinds == {"g-1": "exception", "g-0": "gang-ended"}
    # What had ended by itself is not interrupted, and holds no thread.
    assert not out.of(two.at[0], m.InterruptAttempts)
    assert not board.state.workers[two.at[0]].zombies
    board.drop_rest()


def test_an_exception_that_comes_of_the_loss_of_another_does_not_count(board, two):
    two.raises(0)
    board.close(two.at[1])
    assert board.states("g-0", "g-1") == ["no_worker", "no_worker"]
    board.tick(VERDICT_S + 0.1)
    worker(board, "c")
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    assert board.task("g-0") not in board.state.n_exceptions
    board.drop_rest()


def test_a_gang_at_one_worker_does_not_wait_for_the_verdict(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, *gang("g", 2))
    board.raise_(a, "g-0")
    assert board.states("g-0", "g-1") == ["erred", "erred"]
    board.drop_rest()


def test_an_exception_waits_while_the_worker_of_another_is_away(board):
    board = Board(away_s=20.0)
    two = Two(board)
    two.raises(0)
    board.close(two.at[1])
    board.tick(VERDICT_S * 3)
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.tick(20.0)
    assert board.states("g-0", "g-1") == ["no_worker", "no_worker"]
    board.drop_rest()


def test_a_cancelled_gang_leaves_no_thread_to_an_exception_that_was_held_back(board, two):
    two.raises(0)
    board.send(two.client, m.CancelKeys(keys=["g-0", "g-1"], force=False, reason=""))
    assert not board.state.workers[two.at[0]].zombies
    assert not gangs_of(board.state).by_name
    board.tick(VERDICT_S + 0.1)
    board.drop_rest()


@pytest.mark.parametrize("rank", [0, 1])
def test_retries_are_those_of_the_gang(board, rank):
    two = Two(board, retries=2)
    for n in (1, 2):
        two.raises(rank)
        board.tick(VERDICT_S + 0.1)
        two.ends(1 - rank)
        assert board.states("g-0", "g-1") == ["processing", "processing"]
        assert [board.state.n_exceptions[board.task(k)] for k in ("g-0", "g-1")] == [n, n]
        two.at = [board.where("g-0"), board.where("g-1")]
        two.attempts = [board.attempt("g-0"), board.attempt("g-1")]
        rank = 1 - rank
    two.raises(rank)
    board.tick(VERDICT_S + 0.1)
    assert board.states("g-0", "g-1") == ["erred", "erred"]
    board.drop_rest()


def test_retries_have_their_pauses(board):
    two = Two(board, retries=1, pauses=[30.0, 1.0, 60.0, 0.0])
    two.raises(0)
    board.tick(VERDICT_S + 0.1)
    two.ends(1)
    board.tick(15.0)
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    board.drop_rest()


def test_a_member_that_takes_too_long_takes_a_retry_of_all(board):
    two = Two(board, retries=1, timeout_us=1000)
    out = board.send(two.at[0], m.AttemptsOverdue(attempts=[two.attempts[0]], timeouts_us=[1000]))
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    assert [x.attempts for x in out.of(two.at[1], m.InterruptAttempts)] == [[two.attempts[1]]]
    two.ends(0)
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    two.ends(1)
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_a_member_that_asks_for_another_worker_takes_all_with_it(board, two):
    two.raises(0, "reschedule")
    two.ends(1)
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


def test_those_that_have_finished_keep_their_results_when_another_fails(board, two):
    board.finish(two.at[0], "g-0")
    two.raises(1)
    board.tick(VERDICT_S + 0.1)
    assert board.states("g-0", "g-1") == ["memory", "erred"]
    board.drop_rest()


def test_an_input_that_fails_fails_all(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, graph("x"))
    board.send(client, *gang("g", 2, inputs="x"))
    board.raise_(a, "x")
    assert board.states("g-0", "g-1") == ["erred", "erred"]
    board.drop_rest()


def test_failed_gangs_are_retried_as_a_whole(board, two):
    two.raises(0)
    board.tick(VERDICT_S + 0.1)
    two.ends(1)
    board.send(two.client, m.RetryKeys(request=1, keys=["g-1"]))
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


# -- a member is cancelled -------------------------------------------------------------------------
@pytest.mark.parametrize("is_running", [True, False])
def test_the_cancellation_of_one_cancels_all(board, is_running):
    client = board.client()
    worker(board, "a")
    if is_running:
        worker(board, "b")
    board.send(client, *gang("g", 2))
    attempt = board.task("g-0").attempt
    where = board.where("g-0")
    out = board.send(client, m.CancelKeys(keys=["g-1"], force=False, reason="by the user"))
    assert board.states("g-0", "g-1") == ["-", "-"]
    reasons = {key: x.reason for x in out.of(client, m.KeysCancelled) for key in x.keys}
    assert reasons == {"g-1": "by the user", "g-0": "rank 1 of its gang was cancelled"}
    if is_running:
        assert [x.attempts for x in out.of(where, m.InterruptAttempts)] == [[attempt]]
    board.drop_rest()


def test_a_cancellation_that_comes_with_the_submission_cancels_all(board):
    client = board.client()
    worker(board, "a", nthreads=2)
    board.send(client, *gang("g", 2), m.CancelKeys(keys=["g-1"], force=False, reason=""))
    assert board.states("g-0", "g-1") == ["-", "-"]
    board.drop_rest()


def test_the_cancellation_of_one_with_readers_cancels_all(board, two):
    board.send(two.client, graph(":g-1 -> reader", function="other"))
    board.send(two.client, m.CancelKeys(keys=["g-1"], force=False, reason=""))
    assert board.states("g-0") == ["-"]
    board.drop_rest()


# -- a member is released --------------------------------------------------------------------------
def test_a_gang_runs_on_while_one_member_is_wanted(board, two):
    other = board.client("bob")
    board.send(other, m.WantKeys(keys=["g-1"], spec_hashes=[]))
    board.send(two.client, m.ReleaseKeys(keys=["g-0", "g-1"]))
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.send(other, m.ReleaseKeys(keys=["g-1"]))
    assert board.states("g-0", "g-1") == ["-", "-"]
    board.drop_rest()


def test_a_gang_runs_on_while_one_member_has_a_reader(board, two):
    board.send(two.client, graph(":g-1 -> reader", function="other"))
    board.send(two.client, m.ReleaseKeys(keys=["g-1"]), m.ReleaseKeys(keys=["g-0"]))
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.finish(two.at[1], "g-1")
    board.finish(board.where("reader"), "reader")
    assert board.states("g-0") == ["-"]
    board.drop_rest()


def test_the_cancellation_of_one_ends_a_gang_that_has_readers_only(board, two):
    other = board.client("bob")
    board.send(other, m.WantKeys(keys=["g-1"], spec_hashes=[]))
    board.send(two.client, m.ReleaseKeys(keys=["g-0", "g-1"]))
    board.send(other, m.CancelKeys(keys=["g-1"], force=False, reason=""))
    assert board.states("g-0", "g-1") == ["-", "-"]
    board.drop_rest()


# -- who may not be one ----------------------------------------------------------------------------
def test_two_tasks_of_one_rank_are_no_gang(board):
    client = board.client()
    worker(board, "a", nthreads=2)
    message = graph("other", function="member", gang=["g", "0", "2"], resources={"cores": 1})
    board.send(client, gang("g", 2)[0])
    out = board.send(client, message)
    assert sent_keys(out, client, m.KeysErred) == ["other"]
    assert board.states("g-0") == ["waiting"]
    board.drop_rest()


def test_a_worker_that_was_given_up_comes_back_with_all_of_a_gang(board):
    client, first = board.client(), worker(board, "a", 2)
    board.send(client, *gang("g", 2))
    attempts = {key: board.attempt(key) for key in ("g-0", "g-1")}
    board.close(first)
    amounts = {"cores": 2.0, "places without cores": 100.0}
    back = board.worker("a", nthreads=2, last_epoch=board.state.epoch, resources=amounts)
    for key, attempt in attempts.items():  # in two messages, each of which may be a pass
        board.send(back, m.InventoryUnfinished(keys=[key], attempts=[attempt], phases=[m.RUNNING]))
        validate(board.state)
        assert board.states("g-0") == ["processing"]
    board.send(back, m.InventoryEnd(n_rows=2))
    assert [board.attempt(key) for key in attempts] == [*attempts.values()]
    board.drop_rest()


def test_a_worker_that_was_given_up_comes_back_with_a_part_of_a_gang(board, two):
    board.close(two.at[1])
    assert board.states("g-0", "g-1") == ["no_worker", "no_worker"]
    two.ends(0)
    amounts = {"cores": 1.0, "places without cores": 100.0}
    back = board.come_back("b", running={"g-1": two.attempts[1]}, resources=amounts)
    board.send(back, m.AttemptsEnded(attempts=[two.attempts[1]]))
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    assert not {board.attempt("g-0"), board.attempt("g-1")} & {*two.attempts}
    board.drop_rest()


def test_no_attempt_of_a_run_that_has_ended_runs_beside_the_next_run(board, two):
    board.close(two.at[1])
    two.ends(0)
    c = worker(board, "c")
    assert board.where("g-1") in (c, two.at[0])
    amounts = {"cores": 1.0, "places without cores": 100.0}
    back = board.come_back("b", running={"g-1": two.attempts[1]}, resources=amounts)
    assert dropped(board.out, back) == [two.attempts[1]]
    board.send(two.client, m.ReleaseKeys(keys=["g-0", "g-1"]))
    validate(board.state)
    board.drop_rest()


# -- another scheduler -----------------------------------------------------------------------------
def restarted(
    board: Board, running: dict[str, dict[str, int]]
) -> tuple[Board, int, dict[str, int]]:
    """Let the next scheduler meet a client, and workers that run these attempts."""
    after = Board(epoch=8)
    after.state.first_attempt = after.state.next_attempt = 100
    client = after.client(last_epoch=7)
    after.send(client, *gang("g", 2))
    amounts = {"cores": 1.0, "places without cores": 100.0}
    peers = {
        name: after.come_back(name, last_epoch=7, running=rows, resources=amounts)
        for name, rows in running.items()
    }
    after.pass_time(QUIET_S + 0.1)
    return after, client, peers


def test_a_gang_goes_on_under_the_next_scheduler(board, two):
    running = {"a": {"g-0": 1}, "b": {"g-1": 2}}
    after, _, _ = restarted(board, running)
    assert after.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()
    after.drop_rest()
