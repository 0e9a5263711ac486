r"""Indexes of parts: what m tasks read in parts is kept, named and lost together.

a0  a1        two results that have parts
\ /
index        says where they are
/ | \\
  r0  r1 r2       each reads one part of both
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from tests.scheduler.builders import Board, Out, assigned, dropped, graph
from tests.scheduler.core.recovery.recovery_kit import BEFORE
from weft.protocol.errors import InvalidState
from weft.protocol.values.serialize import loads
from weft.protocol.wire import messages as m
from weft.protocol.wire.part_index import OUT_OF_REACH, PartIndex, read_index
from weft.scheduler.core.data.part_indexes import INDEX_INVARIANTS, NamedHolders
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.journal.entries import JournalRead, JournalWritten
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.records.tasks import RELEASED

READERS = ("r0", "r1", "r2")


def index_row(key: str, *reads: str) -> m.SubmitTasks:
    return m.SubmitTasks(
        functions=[m.INDEX_FUNCTION],
        function_names=["index_of_parts"],
        function_blobs=[b""],
        function_of=[0],
        keys=[key],
        args=[b""],
        dependencies=[list(reads)],
        spec_hashes=[],
        options=[{"part_index": True}],
    )


def shuffle(board: Board, alice: int, n: int = 2) -> None:
    """Submit the graph above; only the readers are wanted."""
    inputs = [f"a{i}" for i in range(n)]
    board.send(alice, graph(" ".join(inputs)))
    board.send(alice, index_row("index", *inputs))
    board.send(alice, graph(*[f":index -> {key}" for key in READERS]))
    board.send(alice, m.ReleaseKeys(keys=[*inputs, "index"]))


def index_sent(out: Out, worker: int) -> PartIndex:
    (put,) = out.of(worker, m.Put)
    (value,) = put.values
    index = read_index(loads(value))
    assert index is not None
    return index


def holders(index: PartIndex) -> list[tuple[str, list[str]]]:
    """Return each key with the addresses of its holders."""
    addresses = [[index.addresses[i] for i in some] for some in index.holders]
    return list(zip(index.keys, addresses, strict=True))


def put_done(board: Board, worker: int) -> Out:
    return board.finish(worker, "index", nbytes=100, blob=None)


def two_workers() -> tuple[Board, int, int, int]:
    board = Board()
    first, second = board.worker("first"), board.worker("second")
    alice = board.client()
    shuffle(board, alice)
    board.finish(first, *[key for key in ("a0", "a1") if board.where(key) == first])
    board.finish(second, *[key for key in ("a0", "a1") if board.where(key) == second])
    board.drop_rest()
    return board, first, second, alice


def where_is(board: Board, key: str, *peers: int) -> int:
    (holder,) = board.task(key).replicas
    return holder.peer


def test_an_index_names_attempts_and_holders_in_order() -> None:
    board, first, second, _ = two_workers()
    index = index_sent(board.out, board.where("index"))  # type: ignore[arg-type]
    names = {first: "tcp://first", second: "tcp://second"}
    assert holders(index) == [(key, [names[where_is(board, key)]]) for key in ("a0", "a1")]
    assert list(index.attempts) == [board.attempt("a0"), board.attempt("a1")]
    board.drop_rest()


def test_an_index_is_sent_though_no_thread_is_free(board: Board) -> None:
    worker, alice = board.worker(), board.client()
    shuffle(board, alice)
    board.send(alice, graph("long", function="long"))
    board.finish(worker, "a0", "a1")
    assert board.states("index") == ["processing"]


def test_inputs_are_kept_until_the_last_reader_is_done(board: Board) -> None:
    worker, alice = board.worker(), board.client()
    shuffle(board, alice)
    board.finish(worker, "a0", "a1")
    attempts = [board.attempt(key) for key in ("a0", "a1", "index")]
    put_done(board, worker)
    assert board.states("a0", "a1", "index") == ["memory"] * 3
    for key in READERS[:-1]:
        assert dropped(board.finish(worker, key), worker) == []
    out = board.finish(worker, READERS[-1])
    assert sorted(dropped(out, worker)) == sorted(attempts)
    board.send(alice, m.ReleaseKeys(keys=list(READERS)))
    assert not board.state.tasks
    board.drop_rest()


def test_a_reader_depends_on_the_index_alone(board: Board) -> None:
    worker, alice = board.worker(), board.client()
    shuffle(board, alice, n=50)
    board.finish(worker, *[f"a{i}" for i in range(50)])
    put_done(board, worker)
    assert [d.key for d in board.task("r0").dependencies] == ["index"]
    assert board.task("a0").dependents == (board.task("index"),)


def test_a_lost_input_takes_the_index_along_and_only_it_runs_again() -> None:
    board, first, second, _ = two_workers()
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    gone = where_is(board, "a0")
    stays = first if gone == second else second
    kept = [key for key in ("a0", "a1") if where_is(board, key) == stays]
    out = board.close(gone)
    assert board.states("index", "r0", "r1", "r2")[0] == "waiting"
    lost = [key for key in ("a0", "a1") if key not in kept]
    assert set(assigned(out, stays)) >= set(lost)
    assert not set(assigned(out, stays)) & set(kept)
    out = board.finish(stays, *lost)
    name = "tcp://first" if stays == first else "tcp://second"
    assert holders(index_sent(out, stays)) == [("a0", [name]), ("a1", [name])]
    put_done(board, stays)
    assert board.states("a0", "a1", "index") == ["memory"] * 3
    board.drop_rest()


def test_a_lost_index_that_is_not_made_again_lets_its_inputs_go() -> None:
    """The client that wants it has its value."""
    board, first, second, alice = two_workers()
    board.send(alice, m.WantKeys(keys=["index"]))
    board.finish(board.where("index"), "index", nbytes=100, blob=b"index")  # type: ignore[arg-type]
    board.send(alice, m.ReleaseKeys(keys=[*READERS]))
    board.drop_rest()
    gone = where_is(board, "a0")
    stays = first if gone == second else second
    kept = {board.attempt(key) for key in ("a0", "a1") if where_is(board, key) == stays}
    out = board.close(gone)
    assert board.states("a0", "a1", "index") == ["released"] * 3
    assert kept
    assert kept <= {*dropped(out, stays)}
    board.drop_rest()


def test_an_input_that_is_lost_while_the_index_is_sent_makes_it_anew() -> None:
    board, first, second, _ = two_workers()
    at = board.where("index")
    assert at is not None
    other = first if at == second else second
    lost = [key for key in ("a0", "a1") if where_is(board, key) == other]
    board.close(other)
    put_done(board, at)
    assert board.states("index") == ["waiting"]
    board.finish(at, *lost)
    put_done(board, at)
    assert board.states("index") == ["memory"]
    board.drop_rest()


def missing(board: Board, worker: int, key: str, holder: str, **options: Any) -> Out:
    report = m.KeysMissing(keys=[key], holder=holder, attempts=[board.attempt(key)], **options)
    return board.send(worker, report)


def test_an_index_that_names_nobody_who_has_an_input_is_made_again() -> None:
    board, first, second, _ = two_workers()
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    holder = where_is(board, "a0")
    other = first if holder == second else second
    # Its copy moves, and its holder lets it go.
    added = m.ReplicasAdded(keys=["a0"], attempts=[board.attempt("a0")])
    board.send(other, added)
    before = board.attempt("index")
    names = {first: "tcp://first", second: "tcp://second"}
    out = missing(board, other, "a0", names[holder])
    assert board.attempt("index") > before
    at = board.where("index")
    assert at is not None
    assert dict(holders(index_sent(out, at)))["a0"] == [names[other]]
    board.drop_rest()


def test_an_index_that_names_one_who_has_an_input_no_more_is_made_again() -> None:
    """Another one that it names has it; but each reader would ask the wrong one first."""
    board = Board()
    names = {board.worker("first"): "tcp://first", board.worker("second"): "tcp://second"}
    shuffle(board, board.client())
    at = board.where("a0")
    assert at is not None
    board.finish(at, "a0")
    (other,) = names.keys() - {at}
    board.send(other, m.ReplicasAdded(keys=["a0"], attempts=[board.attempt("a0")]))
    out = board.finish(board.where("a1"), "a1")  # type: ignore[arg-type]
    index = index_sent(out, board.where("index"))  # type: ignore[arg-type]
    assert dict(holders(index))["a0"] == [names[at], names[other]]
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    out = missing(board, other, "a0", names[at])
    index = index_sent(out, board.where("index"))  # type: ignore[arg-type]
    assert dict(holders(index))["a0"] == [names[other]]
    board.drop_rest()


def test_the_loss_of_a_holder_is_reported_to_those_that_read_parts_of_its_data() -> None:
    board, first, second, _ = two_workers()
    reader = board.where("index")
    assert reader is not None
    put_done(board, reader)
    assert [board.where(key) for key in READERS] == [reader] * 3
    name, holder = ("second", second) if reader == first else ("first", first)
    assert m.HoldersGone(addresses=[f"tcp://{name}"]) in board.close(holder)[reader]
    board.drop_rest()


def test_readers_that_have_not_started_are_asked_back_when_their_index_is_lost() -> None:
    board, first, second, alice = two_workers()
    reader = board.where("index")
    assert reader is not None
    put_done(board, reader)
    other = board.worker("other")
    board.send(alice, graph("apart", workers=["other"]))
    holder = second if reader == first else first
    out = board.close(holder)
    asked = out.of(reader, m.ReturnAttempts)
    assert asked == [m.ReturnAttempts(count=3)]
    assert out.of(other, m.ReturnAttempts) == []
    attempts = [board.attempt(key) for key in READERS[1:]]
    out = board.send(reader, m.AttemptsReturned(attempts=attempts))
    assert board.states(*READERS) == ["processing", "waiting", "waiting"]
    assert not set(assigned(out, reader)) & set(READERS)
    board.drop_rest()


def test_readers_stay_where_they_are_when_their_index_is_kept() -> None:
    board, first, second, _ = two_workers()
    reader = board.where("index")
    assert reader is not None
    put_done(board, reader)
    holder = second if reader == first else first
    for key in ("a0", "a1"):
        board.send(reader, m.ReplicasAdded(keys=[key], attempts=[board.attempt(key)]))
    assert board.close(holder).of(reader, m.ReturnAttempts) == []
    assert board.states("index", *READERS) == ["memory", *["processing"] * 3]
    board.drop_rest()


def test_a_holder_out_of_reach_is_no_reason_to_make_it_again() -> None:
    board, first, second, _ = two_workers()
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    holder = where_is(board, "a0")
    other = first if holder == second else second
    before = board.attempt("index")
    missing(board, other, "a0", "tcp://first" if holder == first else "tcp://second",
            unreachable=True)  # fmt: skip
    assert board.attempt("index") == before
    board.drop_rest()


def ask_to_be_run_again(board: Board, key: str, holder: str, reason: str) -> bool:
    """Let a reader report that it does not reach a holder; return whether it is to run again."""
    at = board.where(key)
    assert at is not None
    inputs = [k for k in ("a0", "a1") if f"tcp://{holder}" in board.task(k).replicas[0].address]
    attempts = [board.attempt(k) for k in inputs]
    missed = m.KeysMissing(
        keys=inputs, attempts=attempts, holder=f"tcp://{holder}", unreachable=True
    )
    failure = m.AttemptsErred(
        attempts=[board.attempt(key)], durations_us=[1000], failures=[["reschedule", key, reason]]
    )
    board.send(at, missed, failure)
    return board.states(key) != ["erred"]


@pytest.mark.parametrize("is_reached", [False, True])
def test_a_reader_fails_that_does_not_reach_a_holder_for_long(is_reached: bool) -> None:
    board, first, second, alice = two_workers()
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    reader = board.where("r0")
    name = "second" if reader == first else "first"
    board.send(alice, m.CancelKeys(keys=["r1", "r2"], force=False, reason=""))
    reason = "another worker, please" if is_reached else f"{OUT_OF_REACH}: no answer"
    start = board.now
    while board.now < start + 200 and ask_to_be_run_again(board, "r0", name, reason):
        while board.where("r0") is None:
            for worker in (first, second):
                board.send(worker, m.Heartbeat())
            board.tick(1.0)
        if board.where("r0") != reader:
            name = "first" if name == "second" else "second"
            reader = board.where("r0")
    assert (board.states("r0") == ["erred"]) is not is_reached
    if not is_reached:
        (failed,) = [x for x in board.out[alice] if isinstance(x, m.KeysErred)]
        assert "its inputs are at workers that cannot reach each other" in str(failed.failures)
    board.drop_rest()


def test_an_input_that_fails_later_fails_the_readers() -> None:
    board, first, second, _ = two_workers()
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    gone = where_is(board, "a0")
    stays = first if gone == second else second
    lost = [key for key in ("a0", "a1") if where_is(board, key) == gone]
    board.close(gone)
    board.raise_(stays, *lost[:1])
    assert board.states(*READERS) == ["erred"] * 3
    board.drop_rest()


def test_an_input_that_fails_in_memory_fails_the_index_and_the_readers() -> None:
    """It was submitted again to be recorded, and could not be."""
    board, _, _, alice = two_workers()
    put_done(board, board.where("index"))  # type: ignore[arg-type]
    board.play(SchedulerTick(journal=[JournalRead()]))
    board.send(alice, graph("a0", detached=True))
    board.play(SchedulerTick(journal=[JournalWritten(1, "the disk is full")]))
    assert board.states("a0", "index", *READERS) == ["erred", "released", *["erred"] * 3]
    board.drop_rest()


def test_readers_that_are_cancelled_let_the_inputs_go(board: Board) -> None:
    worker, alice = board.worker(), board.client()
    shuffle(board, alice)
    board.finish(worker, "a0", "a1")
    put_done(board, worker)
    board.send(alice, m.CancelKeys(keys=list(READERS), force=False, reason=""))
    assert board.states("a0", "a1", "index") == ["-"] * 3
    board.drop_rest()


def test_a_new_scheduler_does_not_take_an_index_over() -> None:
    board = Board(epoch=7 << 20, away_s=5.0, expected=Members(("id of w",), ("alice",)))
    alice = board.client(last_epoch=BEFORE)
    shuffle(board, alice)
    board.send(alice, m.Resubmitted())
    kept = {"a0": 1, "a1": 2, "index": 3}
    worker = board.come_back("w", last_epoch=BEFORE, kept=kept)
    board.tick(1.0)
    assert board.states("a0", "a1") == ["memory"] * 2
    assert board.attempt("index") > 5
    put_done(board, worker)
    assert board.states("index") == ["memory"]
    board.drop_rest()


def test_an_index_that_is_back_before_its_recipe_is_made_again() -> None:
    board = Board(epoch=7 << 20, away_s=5.0, expected=Members(("id of w",), ("alice", "bob")))
    alice, bob = board.client(last_epoch=BEFORE), board.client("bob", last_epoch=BEFORE)
    worker = board.come_back("w", last_epoch=BEFORE, kept={"index": 3})
    board.send(bob, m.WantKeys(keys=["index"], spec_hashes=[], attempts=[]))
    assert board.states("index") == ["memory"]
    shuffle(board, alice)
    assert board.states("a0", "a1", "index") == ["queued", "queued", "waiting"]
    board.send(alice, m.Resubmitted())
    board.send(bob, m.Resubmitted())
    board.tick(1.0)
    board.finish(worker, "a0", "a1")
    put_done(board, worker)
    assert board.states("index") == ["memory"]
    board.drop_rest()


def test_an_index_whose_tasks_are_not_ready_is_not_sent_ahead(board: Board) -> None:
    worker, alice = board.worker(nthreads=2), board.client()
    shuffle(board, alice)
    assert board.states("a0", "a1") == ["processing"] * 2
    out = board.finish(worker, "a0")
    assert "index" not in assigned(out, worker)
    assert out.of(worker, m.Put) == []


def bytes_of_a_shuffle(n: int) -> int:
    """Return what the scheduler keeps while n partitions are split and n are to be read."""
    board = Board()
    worker, alice = board.worker(), board.client()
    board.send(alice, graph("warm"))
    board.finish(worker, "warm")
    inputs = [f"('shuffle-split-{'0' * 32}', {i})" for i in range(n)]
    gc.collect()
    tracemalloc.start()
    try:
        submission = graph(*(f"a{i}" for i in range(n)))
        submission.keys[:] = inputs
        board.send(alice, submission)
        board.send(alice, index_row("index", *inputs))
        readers = graph(*[f":index -> r{i}" for i in range(n)])
        board.send(alice, readers)
        board.send(alice, m.ReleaseKeys(keys=[*inputs, "index"]))
        while board.states("index") == ["waiting"]:
            ws = board.state.workers[worker]
            board.finish(worker, *[task.key for task in ws.processing.values()])
        board.finish(worker, "index", blob=None)
        del submission, readers
        board._outs.clear()
        board.out = Out()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        board.drop_rest()


def test_a_shuffle_takes_at_most_two_kilobytes_a_partition() -> None:
    few, many = bytes_of_a_shuffle(50), bytes_of_a_shuffle(150)
    assert (many - few) / 100 <= 2000


def lets_go(board: Board) -> None:
    board.task("index").waiting_on = None


def loses_an_input(board: Board) -> None:
    board.task("a0").state = RELEASED


def is_not_known(board: Board) -> None:
    board.state.record(NamedHolders).clear()


BREAKAGES = {
    "an index in memory keeps its inputs": lets_go,
    "what an index in memory names is known": is_not_known,
    "the inputs of an index in memory are in memory": loses_an_input,
}


@pytest.mark.parametrize("name", INDEX_INVARIANTS)
def test_a_broken_index_is_named(board: Board, name: str) -> None:
    worker, alice = board.worker(), board.client()
    shuffle(board, alice)
    board.finish(worker, "a0", "a1")
    put_done(board, worker)
    BREAKAGES[name](board)
    with pytest.raises(InvalidState, match=name):
        validate(board.state)
    board.drop_rest()
