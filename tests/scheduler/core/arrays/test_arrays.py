"""An array is a range: its rows become tasks as they come near to running, and none runs twice."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.protocol.wire import messages as m
from weft.scheduler.core.arrays.records import NONE_BLOB, arrays_of
from weft.scheduler.core.insight.explaining import why
from weft.scheduler.core.journal.entries import JobEnded, RowsChanged, WriteJournal
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ...builders import finished, graph
from .acts import array, ask, end, live, sent
from .disk import Disk


# -- rows ------------------------------------------------------------------------------------------
def test_a_window_of_rows_are_tasks_with_their_numbers(board, disk):
    client = board.client()
    board.worker()
    board.send(client, array(retries=3))
    assert live(board) == [0, 1, 2, 3]
    assert board.states("a", "a/0", "a/4") == ["waiting", "processing", "-"]
    row = board.task("a/2")
    assert pickle.loads(row.args) == (2,)
    assert row.group.options.retries == 3
    assert not row.group.options.array
    assert not row.group.options.detached
    assert row.group.wanted == m.WANTED_LARGE


def test_the_next_rows_come_when_the_ends_of_half_of_the_window_are_recorded(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    board.finish(worker, "a/0", "a/1", "a/2", blob=NONE_BLOB)
    assert live(board) == [3]
    disk.commit(board)
    assert live(board) == [3, 4, 5]
    assert disk.states() == "ddd---"


def test_an_array_ends_by_its_own_call_when_all_rows_have_succeeded(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(3))
    end(board, disk, worker, 0, 1, 2)
    board.tick()
    assert board.states("a") == ["processing"]
    assert board.task("a").args == b"args of a"
    board.finish(worker, "a")
    disk.commit(board)
    assert disk.ended["a"].state == "done"
    assert not disk.kept["a"]  # no line for a result None


def test_an_array_fails_when_all_rows_have_ended_and_some_not_well(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(3))
    board.raise_(worker, "a/1")
    end(board, disk, worker, 0, 2)
    board.tick()
    (failed,) = sent(board, client, m.KeysErred)
    assert failed.failures == [["rows-failed", "a", 1, 3, "1"]]
    disk.commit(board)
    assert disk.ended["a"].state == "failed"
    assert disk.states() == "dfd"
    assert disk.kept["a"][1].failure[:2] == ["exception", "a/1"]
    board.drop_rest()


def test_results_are_recorded_with_the_rows(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    board.finish(worker, "a/0", blob=b"result")
    board.send(worker, finished([board.attempt("a/1")], nbytes=1 << 21, blob=None))
    disk.commit(board)
    kept = disk.kept["a"]
    assert (kept[0].result, kept[1].result, kept[1].nbytes) == (b"result", None, 1 << 21)
    assert board.states("a/0", "a/1") == ["-", "-"]


def test_one_entry_has_all_rows_that_end_with_an_event(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    board.finish(worker, "a/0", "a/1", "a/2")
    (write,) = [a for a in board.actions if isinstance(a, WriteJournal)]
    (entry,) = write.entries
    assert isinstance(entry, RowsChanged)
    assert [one.position for one in entry.ends] == [0, 1, 2]


def test_ends_that_cannot_be_recorded_are_tried_again_and_hold_the_window(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    disk.error = "the disk is full"
    end(board, disk, worker, 0, 1, 2)
    assert live(board) == [3]
    disk.error = ""
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert live(board) == [3, 4, 5]
    assert disk.states()[:3] == "ddd"


def test_an_array_that_is_not_recorded_ends_with_its_rows(board, disk):
    client = board.client()
    board.worker()
    board.send(client, array())
    disk.error = "the disk is full"
    disk.commit(board)
    board.tick()
    assert board.states("a", "a/0") == ["erred", "-"]


def test_rows_have_the_turns_of_their_array(board):
    client = board.client()
    board.send(client, array())
    of_array, made = board.task("a").group, board.task("a/0").group
    assert (made.client, made.user) == (of_array.client, of_array.user)


def test_rows_count_among_the_running_tasks_of_their_user(board, disk):
    user_limits_of(board.state).max_running = 2
    ann, worker = board.client("ann", user="ann"), board.worker(nthreads=8)
    board.send(ann, array())
    disk.commit(board)
    assert board.states("a/0", "a/1", "a/2") == ["processing", "processing", "no_worker"]
    end(board, disk, worker, 0, 1)
    assert board.states("a/2", "a/3", "a/4") == ["processing", "processing", "no_worker"]


def test_an_array_is_one_task_for_the_limit_of_its_user_until_rows_are_made(board, disk):
    user_limits_of(board.state).max_rows = 3
    ann, worker = board.client("ann", user="ann"), board.worker()
    board.send(ann, array())
    assert board.task("a").group.user.n_rows == 5
    (failed,) = board.send(ann, graph("b")).of(ann, m.KeysErred)
    assert failed.failures[0][0] == "user-limit"
    disk.commit(board)
    end(board, disk, worker, 0, 1, 2, 3)
    assert live(board) == [4, 5]
    board.drop_rest()


def test_the_window_follows_the_threads_of_the_cluster(board, disk):
    client = board.client()
    board.send(client, array(100))
    assert len(live(board)) == 4
    worker = board.worker(nthreads=20)
    disk.commit(board)
    end(board, disk, worker, 0)
    assert len(live(board)) == 39  # and one was being recorded


def test_many_arrays_share_the_window(board, disk):
    client = board.client()
    for key in "abc":
        board.send(client, array(key=key))
    assert [len(live(board, key)) for key in "abc"] == [4, 2, 2]


def test_a_key_of_a_row_that_another_task_has_is_shared_or_fails_the_row(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a/1"))
    board.send(client, array(2))
    end(board, disk, worker, 0, 1)
    assert disk.states() == "dd"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"detached": False}, "an array is a detached job"),
        ({"cron": {"expression": "@daily", "zone": "UTC", "since_ms": 0, "until_ms": 0,
                   "overlap": "skip", "missed": "one"}}, "an array has no cron"),
        ({"begin_by_ms": 1}, "an array has no begin_by_ms"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_be_an_array_is_refused(board, options, text):
    client = board.client()
    message = graph("a", array=[[0, 3, 1, 0]], **{"detached": True, **options})
    (failed,) = board.send(client, message).of(client, m.KeysErred)
    assert text in failed.failures[0][2]
    board.drop_rest()


# -- conditions, ends ------------------------------------------------------------------------------
def test_rows_begin_when_the_conditions_of_their_array_are_met(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x", detached=True))
    board.send(client, array(conditions=[["done", "x"]]))
    assert live(board) == []
    board.finish(worker, "x")
    assert live(board) == [0, 1, 2, 3]
    assert not board.task("a/0").group.options.conditions
    assert board.states("a") == ["waiting"]


def test_an_array_whose_condition_fails_runs_no_row(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x", detached=True))
    board.send(client, array(conditions=[["failed", "x"]]))
    board.finish(worker, "x")
    disk.commit(board)
    board.tick()
    assert disk.ended["a"].state == "cancelled"
    assert board.states("a/0") == ["-"]


def test_others_wait_for_the_end_of_an_array(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    board.send(client, graph("after", conditions=[["failed", "a"]]))
    board.raise_(worker, "a/0")
    end(board, disk, worker, 1)
    board.tick()
    assert board.states("after") == ["processing"]


def test_a_deadline_ends_the_rows_as_well(board, disk):
    client = board.client()
    board.worker()
    board.send(client, array(end_by_ms=int(board.state.now) + 2_000))
    disk.commit(board)
    board.tick(3.0)
    disk.commit(board)
    assert disk.ended["a"].state == "cancelled"
    assert board.states("a", "a/0") == ["-", "-"]


def test_the_cancellation_of_an_array_ends_its_rows(board, disk):
    client = board.client()
    board.worker()
    board.send(client, array())
    board.send(client, m.CancelKeys(keys=["a"], force=True, reason="", running=True))
    board.tick()
    assert board.states("a", "a/0", "a/3") == ["-", "-", "-"]
    assert not arrays_of(board.state)
    disk.commit(board)
    assert disk.ended["a"].state == "cancelled"


def test_a_row_whose_worker_is_lost_runs_again(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    board.close(worker)
    other = board.worker("v")
    end(board, disk, other, 0, 1)
    assert disk.states() == "dd"


def test_an_array_whose_own_call_lost_its_worker_ends_at_another(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(1))
    end(board, disk, worker, 0)
    board.tick()
    assert board.states("a") == ["processing"]
    board.close(worker)
    other = board.worker("v")
    board.finish(other, "a")
    disk.commit(board)
    assert disk.ended["a"].state == "done"


def test_an_array_goes_on_without_its_client_and_is_forgotten_with_its_end(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(1))
    disk.commit(board)
    board.send(client, m.ReleaseKeys(keys=["a"]))
    end(board, disk, worker, 0)
    board.tick()
    board.finish(worker, "a")
    disk.commit(board)
    assert board.states("a", "a/0") == ["-", "-"]
    assert not arrays_of(board.state)


def test_an_explanation_says_how_far_an_array_is(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/0")
    text = why(board.state, board.task("a")).text
    assert text == (
        "it is an array: 1 of 6 rows have ended; 1 of these without success; a/1 is under way"
    )


def test_a_worker_has_a_result_until_it_is_recorded(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(1))
    disk.commit(board)
    board.finish(worker, "a/0")
    assert board.states("a/0") == ["memory"]
    disk.commit(board)
    assert board.states("a/0") == ["-"]


def test_a_row_that_has_ended_does_not_run_again_if_its_worker_is_lost_before_that_is_recorded(
    board, disk
):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    disk.commit(board)
    board.finish(worker, "a/0")
    board.close(worker)
    board.worker("v")
    assert board.states("a/0", "a/1") == ["released", "processing"]
    disk.commit(board)
    assert disk.states() == "d-"
    assert board.states("a/0") == ["-"]


# -- the next scheduler ----------------------------------------------------------------------------
def test_a_row_whose_end_is_recorded_does_not_run_again(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/1")
    end(board, disk, worker, 0, 2)
    board.finish(worker, "a/3")  # the scheduler is killed before that is committed
    again = disk.board(8)
    again.worker()
    assert live(again) == [3, 4, 5]


def test_rows_at_living_workers_go_on_wherever_they_are_in_the_range(board, disk):
    client = board.client()
    board.send(client, array(100))
    disk.commit(board)
    again = disk.board(8, expected=Members(("id of w",), ()))
    assert live(again) == []
    again.state.first_attempt = again.state.next_attempt = 100
    again.come_back(running={"a/50": 7}, kept={"a/70": 8}, last_epoch=7, functions=["inc"])
    again.tick(2.0)
    disk.commit(again)
    assert (again.states("a/50"), again.attempt("a/50")) == (["processing"], 7)
    assert disk.states()[70] == "d"
    again.come_back("v", running={"a/90": 9}, last_epoch=7, functions=["inc"])
    assert again.attempt("a/90") == 9
    again.drop_rest()


def test_the_end_of_an_array_that_was_not_recorded_is_made_again(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    end(board, disk, worker, 0, 1)
    again = disk.board(8)
    worker = again.worker()
    again.tick()
    again.finish(worker, "a")
    disk.commit(again)
    assert disk.ended["a"].state == "done"


# -- users -----------------------------------------------------------------------------------------
def test_rows_run_again_while_their_array_goes_on(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/0", "a/1")
    disk.commit(board)
    assert [type(one) for one in ask(board, disk, client, "retry_rows", rows=["0"])] == [m.Answer]
    assert disk.states()[:2] == "-f"
    assert list(disk.kept["a"]) == [1]
    end(board, disk, worker, 2, 3)
    end(board, disk, worker, 0, 4, 5)
    assert disk.states() == "dfdddd"
    board.tick()
    disk.commit(board)
    assert disk.ended["a"].failure == ["rows-failed", "a", 1, 6, "1"]


@pytest.mark.parametrize("is_held", [False, True])
def test_an_array_that_has_failed_runs_only_the_rows_again_that_have(board, disk, is_held):
    client, worker = board.client(), board.worker()
    board.send(client, array(4))
    board.raise_(worker, "a/1", "a/3")
    end(board, disk, worker, 0, 2)
    board.tick()
    disk.commit(board)
    if not is_held:
        board.send(client, m.ReleaseKeys(keys=["a"]))
        assert board.states("a") == ["-"]
    assert [type(one) for one in ask(board, disk, client, "retry_rows", rows=["3"])] == [m.Answer]
    assert live(board) == [3]
    end(board, disk, worker, 3)
    board.tick()
    disk.commit(board)
    assert disk.ended["a"].failure == ["rows-failed", "a", 1, 4, "1"]
    ask(board, disk, client, "retry_job")
    assert live(board) == [1]
    end(board, disk, worker, 1)
    board.tick()
    board.finish(worker, "a")
    disk.commit(board)
    assert disk.ended["a"].state == "done"
    (failed,) = ask(board, disk, client, "retry_rows")
    assert "is done" in failed.text


def test_an_array_of_a_known_key_that_has_ended_begins_anew(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    board.raise_(worker, "a/1")
    end(board, disk, worker, 0)
    board.tick()
    disk.commit(board)
    board.send(client, array(2))
    assert live(board) == [0, 1]
    disk.commit(board)
    assert not disk.chunks["a"]
    board.drop_rest()


def test_rows_are_cancelled_begun_or_not(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    assert len(ask(board, disk, client, "cancel_rows", rows=["1", "5", "99"], reason="why")) == 1
    assert disk.states() == "-c---c"
    assert disk.kept["a"][5].failure == ["cancelled", "a/5", "why"]
    end(board, disk, worker, 0, 2, 3)
    end(board, disk, worker, 4)
    board.tick()
    disk.commit(board)
    assert disk.ended["a"].failure == ["rows-failed", "a", 2, 6, "1, 5"]


def test_a_question_waits_until_the_end_of_a_row_is_recorded(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array())
    disk.commit(board)
    assert ask(board, disk, client, "row_ended", rows=["0"]) == []
    board.finish(worker, "a/0")
    before = len(board._outs)
    disk.commit(board)
    assert any(out.of(client, m.Answer) for out in board._outs[before:])
    assert len(ask(board, disk, client, "row_ended", rows=["0"])) == 1
    assert ask(board, disk, client, "row_ended", rows=["5"]) == []
    out = board.send(client, m.CancelKeys(keys=["a"], force=True, reason="", running=True))
    assert len(out.of(client, m.Answer)) == 1
    board.drop_rest()


def test_questions_about_rows_are_checked(board, disk):
    client = board.client()
    board.send(client, array())
    disk.commit(board)
    for arguments in ({"rows": "x"}, {"rows": [1]}, {"key": 3}, {"rows": ["1"] * 1001}):
        (failed,) = ask(board, disk, client, "retry_rows", **arguments)
        assert isinstance(failed, m.AskFailed)
    (failed,) = ask(board, disk, client, "retry_rows")
    assert "no such row of 'a' has ended without success" in failed.text


# -- whatever happens ------------------------------------------------------------------------------
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["finish", "raise", "commit", "lose", "kill", "tick", "full"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 9))
def test_no_row_runs_again_whose_end_was_committed_and_all_end(events, n):
    disk = Disk()
    board = disk.board()
    client, worker = board.client(), board.worker()
    board.send(client, array(n))
    disk.commit(board)
    committed: dict[int, str] = {}
    epoch = 7
    names = iter(range(1000))

    def check() -> None:
        states = disk.states()
        for position, code in committed.items():
            assert states[position] == code
        committed.update({p: code for p, code in enumerate(states) if code != "-"})
        if "a" in board.state.tasks and (found := arrays_of(board.state).get(board.task("a"))):
            assert not found.live.keys() & committed.keys()

    for what, place in [*events, ("heal", 0)]:
        rows = [key for key in board.state.tasks if "/" in key]
        running_rows = [key for key in rows if board.states(key) == ["processing"]]
        if what in ("finish", "raise") and running_rows:
            key = running_rows[place % len(running_rows)]
            (board.finish if what == "finish" else board.raise_)(worker, key)
        elif what == "commit":
            disk.commit(board)
        elif what == "lose":
            board.close(worker)
            worker = board.worker(f"w{next(names)}")
        elif what == "kill":
            for action in disk.left[: place if not disk.error else 0]:
                if isinstance(action, WriteJournal):
                    disk.apply(action)
            epoch += 1
            board = disk.board(epoch)
            worker = board.worker(f"w{next(names)}")
        elif what == "tick":
            board.tick(1.0)
        elif what == "full":
            disk.error = "" if disk.error else "the disk is full"
        check()
    disk.error = ""
    for _ in range(5 * n + 10):
        board.tick(RETRY_S + 1)
        disk.commit(board)
        check()
        if "a" in disk.ended:
            break
        for key in [k for k in board.state.tasks if board.states(k) == ["processing"]]:
            board.finish(worker, key)
            disk.commit(board)
            check()
    assert isinstance(disk.ended["a"], JobEnded)
    assert "-" not in disk.states()
    assert (disk.ended["a"].state == "done") == (set(disk.states()) == {"d"})
    board.drop_rest()
