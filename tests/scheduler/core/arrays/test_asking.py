"""Questions about rows are answered when there is nothing more to wait for."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.arrays import asking
from weft.scheduler.core.arrays.records import NONE_BLOB
from weft.scheduler.core.events import SchedulerTick

from ...builders import graph
from .acts import array, ask, end, live, sent


def test_questions_are_answered_when_an_array_fails_by_an_input(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, graph("d", detached=True))
    disk.commit(board)
    board.send(client, graph(":d -> a", array=[[0, 6, 1, 0]], detached=True))
    disk.commit(board)
    assert ask(board, disk, client, "row_ended", rows=["5"]) == []
    board.raise_(worker, "d")
    assert len(sent(board, client, m.Answer)) == 1
    assert len(ask(board, disk, client, "row_ended", rows=["5"])) == 1


def test_questions_are_answered_when_the_beginning_of_an_array_cannot_be_recorded(board, disk):
    client = board.client()
    board.send(client, array())
    disk.error = "the disk is full"
    question = m.Ask(request=1, name="row_ended", arguments={"key": "a", "rows": ["5"]})
    assert not board.send(client, question).of(client, m.Answer)
    disk.commit(board)
    assert len(sent(board, client, m.Answer)) == 1


def test_the_oldest_question_is_answered_when_too_many_wait(board, disk, monkeypatch):
    # Its client has stopped waiting, or asks again.
    monkeypatch.setattr(asking, "MAX_ASKED", 2)
    client, other = board.client(), board.client("bob")
    board.send(client, array())
    disk.commit(board)
    for number in (1, 2):
        arguments = {"key": "a", "rows": ["5"]}
        question = m.Ask(request=number, name="row_ended", arguments=arguments)
        assert not board.send(client, question).of(client, m.Answer)
    assert ask(board, disk, other, "row_ended", rows=["4"]) == []
    assert [one.request for one in sent(board, client, m.Answer)] == [1]


def test_questions_of_clients_that_are_gone_make_room(board, disk, monkeypatch):
    monkeypatch.setattr(asking, "MAX_ASKED", 2)
    client = board.client()
    board.send(client, array())
    disk.commit(board)
    for name in ("ann", "bob"):
        gone = board.client(name)
        assert ask(board, disk, gone, "row_ended", rows=["5"]) == []
        board.close(gone)
    for row in ("0", "1"):
        assert ask(board, disk, client, "row_ended", rows=[row]) == []
    assert not sent(board, client, m.AskFailed)


def test_two_questions_to_run_an_array_again_leave_nothing_for_a_new_one(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(4))
    board.raise_(worker, "a/3")
    end(board, disk, worker, 0, 1, 2)
    board.tick()
    disk.commit(board)
    board.send(client, m.ReleaseKeys(keys=["a"]))
    for number, row in ((1, "3"), (2, "2")):
        arguments = {"key": "a", "rows": [row]}
        board.send(client, m.Ask(request=number, name="retry_rows", arguments=arguments))
    disk.commit(board)
    assert [one.request for one in sent(board, client, m.Answer)] == [1]
    assert live(board) == [3]  # as the first one has named
    end(board, disk, worker, 3)
    board.tick()
    board.finish(worker, "a", blob=NONE_BLOB)
    disk.commit(board)
    assert ask(board, disk, client, "forget_jobs", keys=["a"])
    board.send(client, array(4))
    assert live(board) == [0, 1, 2, 3]
    board.drop_rest()


def test_arrays_that_are_read_at_a_time_have_each_their_states(board, disk):
    client, worker = board.client(), board.worker()
    for key in "ab":
        board.send(client, array(2, key=key))
        board.raise_(worker, f"{key}/1")
        end(board, disk, worker, 0, key=key)
    board.tick()
    disk.commit(board)
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    reports = []
    for number, key in enumerate("ab"):
        question = m.Ask(request=number, name="retry_rows", arguments={"key": key})
        board.send(client, question)
        reports.append(disk.read_again(disk.left.pop()))
    board.play(SchedulerTick(journal=reports))
    assert (live(board, "a"), live(board, "b")) == ([1], [1])
    board.drop_rest()
