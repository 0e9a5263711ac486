"""No more results on record are read than workers and clients take."""

from __future__ import annotations

import pytest

from weft.protocol.values.serialize import dumps
from weft.protocol.wire import messages as m
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import EndsRead, JobEnded, JournalRead
from weft.scheduler.core.journal.jobs import journal_of
from weft.scheduler.core.journal.reading import LOOK_S, MAX_GIVEN_NBYTES

from ...builders import graph, sent_keys
from .test_journal import open_board
from .test_reading import reads


@pytest.mark.parametrize("is_taken", [False, True])
def test_no_more_results_are_read_than_workers_take(is_taken):
    keys = [f"a{i}" for i in range(20)]
    board = open_board(JournalRead(ended=dict.fromkeys(keys, "done")))
    client, worker = board.client(), board.worker()
    result = bytes(MAX_GIVEN_NBYTES // 8)
    rows = [" ".join(f":{key}" for key in some) for some in (keys[:18], keys[18:])]
    board.send(client, graph(f"{rows[0]} -> d", f"{rows[1]} -> e"))
    n_read = 0
    while asked := reads(board):
        n_read += 1
        key, *rest = asked[0].keys
        ends = [(JobEnded(key, "done", result=result), m.NO_HASH)]
        board.play(SchedulerTick(journal=[EndsRead(asked[0], ends, rest=rest)]))
    waiting = [key for key in keys if board.states(key) == ["queued"]]
    assert (len(waiting), n_read < len(keys)) == (9, True)
    if is_taken:
        taken = [key for key in keys if board.states(key) == ["processing"]]
        board.finish(worker, *taken, blob=dumps(7))
        assert board.states(waiting[0]) == ["processing"]
    else:
        board.send(client, m.ReleaseKeys(keys=["d"]))
        board.tick(LOOK_S + 0.1)
    assert len(reads(board)) == 1
    board.drop_rest()


@pytest.mark.parametrize("has_worker", [False, True])
def test_a_task_that_reads_many_results_keeps_no_client_from_one(has_worker):
    keys = [f"a{i}" for i in range(20)]
    ended = dict.fromkeys([*keys, "b"], "done") | {"f": "failed"}
    board = open_board(JournalRead(ended=ended))
    client, other = board.client(), board.client("bob")
    if has_worker:
        board.worker()
    board.send(client, graph(" ".join(f":{key}" for key in keys) + " -> d"))
    while asked := reads(board):
        key, *rest = asked[0].keys
        ends = [(JobEnded(key, "done", result=bytes(MAX_GIVEN_NBYTES // 8)), m.NO_HASH)]
        board.play(SchedulerTick(journal=[EndsRead(asked[0], ends, rest=rest)]))
    read = [key for key in keys if key not in journal_of(board.state).reading]
    assert len(read) == (17 if has_worker else 0)  # the worker has taken 8 of them
    board.send(client, graph(":b :f -> e"))
    board.send(other, m.WantKeys(keys=["b"]))
    board.tick(LOOK_S + 0.1)
    (asked,) = reads(board)
    assert asked.keys == ["f", "b"]
    ends = [(JobEnded("b", "done", result=dumps(7)), m.NO_HASH)]
    ends += [(JobEnded("f", "failed", ["exception", "f", "x"]), m.NO_HASH)]
    out = board.play(SchedulerTick(journal=[EndsRead(asked, ends)]))
    assert out.of(other, m.ResultsReady) == [m.ResultsReady(keys=["b"], results=[dumps(7)])]
    assert sent_keys(out, client, m.KeysErred) == ["e"]
    board.drop_rest()


def test_no_more_results_are_read_than_a_slow_client_takes():
    keys = [f"a{i}" for i in range(20)]
    board = open_board(JournalRead(ended=dict.fromkeys([*keys, "b"], "done")))
    client, other = board.client(), board.client("bob")
    kept: list[m.ResultsReady] = []

    def read_on() -> int:
        """Read results one after the other, while the client reads none of them."""
        n_read = 0
        while asked := reads(board):
            n_read += 1
            key, *rest = asked[0].keys
            ends = [(JobEnded(key, "done", result=bytes(MAX_GIVEN_NBYTES // 8)), m.NO_HASH)]
            if kept:
                board.state.outboxes[client] = kept
            out = board.play(SchedulerTick(journal=[EndsRead(asked[0], ends, rest=rest)]))
            kept[:] = out.of(client, m.ResultsReady)
        return n_read

    board.send(client, m.WantKeys(keys=keys))
    assert read_on() == 8
    board.send(other, m.WantKeys(keys=["b"]))
    board.state.outboxes[client] = kept
    board.now += LOOK_S
    board.play(SchedulerTick())
    (asked,) = reads(board)
    assert asked.keys == ["b"]
    end = JobEnded("b", "done", result=dumps(7)), m.NO_HASH
    board.play(SchedulerTick(journal=[EndsRead(asked, [end])]))
    kept.clear()  # the client has read all
    assert read_on() == 8
    board.drop_rest()
