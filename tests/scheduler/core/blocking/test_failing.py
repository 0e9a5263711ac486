"""A host on which calls fail that end well elsewhere is blocked by itself, for a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.actions import LogLine
from weft.scheduler.core.blocking.failing import (
    MAX_FAILURES,
    MAX_HOSTS,
    MAX_TASKS,
    HostFailures,
    failing_hosts_of,
)
from weft.scheduler.core.blocking.feature import block, blocks_of, unblock
from weft.scheduler.core.categories.stragglers import LEAST_ENDED
from weft.scheduler.core.insight.info import describe_worker

from ...builders import Board, assigned, graph
from ..categories.builders import measured

LIMIT = 3


@pytest.fixture
def board() -> Iterator[Board]:
    board = made(LIMIT)
    yield board
    board.drop_rest()


def made(limit: int) -> Board:
    board = Board()
    failing_hosts_of(board.state).limit = limit
    return board


def join(board: Board, name: str, host: str = "", **options: object) -> int:
    """Let a worker join on a host; by default each has one of its own."""
    return board.worker(name, host=host or f"host of {name}", **options)


def is_blocked(board: Board, name: str = "host of a") -> bool:
    return name in blocks_of(board.state)


@contextmanager
def only(board: Board, *peers: int) -> Iterator[None]:
    """Let a user block all other workers by their names, for as long."""
    others = [ws.name for ws in board.state.workers.values() if ws.peer not in peers]
    if others:
        block(board.state, others, "ann", "", 0)
    yield
    unblock(board.state, others)


def give(board: Board, client: int, key: str, peer: int, **options: object) -> None:
    """Submit a call, which a worker gets."""
    with only(board, peer):
        board.send(client, graph(key, **options))
    assert board.where(key) == peer


def raise_(board: Board, peer: int, key: str, text: str = "no such file") -> None:
    board.send(
        peer,
        m.AttemptsErred(
            attempts=[board.attempt(key)],
            durations_us=[1000],
            failures=[["exception", key, "", "OSError", text]],
        ),
    )


def raise_to(board: Board, bad: int, good: int, key: str) -> None:
    """Let a call raise that runs again on the other worker."""
    with only(board, good):
        raise_(board, bad, key)
    assert board.where(key) == good


def fail_on(board: Board, client: int, bad: int, good: int, *keys: str) -> None:
    """Let calls raise on one worker and end well on another."""
    for key in keys:
        give(board, client, key, bad, retries=1)
        raise_to(board, bad, good, key)
        board.finish(good, key)


def warnings(board: Board) -> list[str]:
    return [x.text for x in board.actions if isinstance(x, LogLine) and x.level == "warning"]


def test_a_host_is_blocked_after_failures_of_calls_that_end_well_elsewhere(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y")
    assert not is_blocked(board)
    fail_on(board, ann, a, b, "z")
    assert is_blocked(board)
    reason = (
        "3 failures in a row, of calls that ended well elsewhere; "
        "the last one: inc raised OSError: no such file"
    )
    assert describe_worker(board.state, board.state.workers[a])["why_not"] == (
        f"blocked by the scheduler: {reason}"
    )
    assert warnings(board) == [
        f"host host of a is blocked for 15 min: {reason}. 'weft unblock host of a' takes that back"
    ]
    out = board.send(ann, graph("p", "q", "r"))
    assert not assigned(out, a)


def test_a_blocked_host_is_tried_again_when_the_time_is_over(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    failing_hosts_of(board.state).for_s = 10.0
    fail_on(board, ann, a, b, "x", "y", "z")
    board.tick(9.0)
    assert is_blocked(board)
    board.tick(2.0)
    assert not is_blocked(board)
    fail_on(board, ann, a, b, "p", "q")
    assert not is_blocked(board)  # it begins anew


def test_a_user_takes_the_block_back(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y", "z")
    arguments = {"names": ["host of a"]}
    board.send(ann, m.Ask(request=1, name="unblock_workers", arguments=arguments))
    assert not is_blocked(board)
    give(board, ann, "p", a)


def test_a_call_that_raises_everywhere_blocks_nobody(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    for i in range(3 * LIMIT):
        board.send(ann, graph(f"x-{i}", retries=2))
        while (peer := board.where(f"x-{i}")) is not None:
            raise_(board, peer, f"x-{i}")
    assert not blocks_of(board.state)
    assert {a, b} == set(board.state.workers)


def test_a_call_that_ends_well_on_the_same_host_later_blames_nobody(board):
    ann, a, a2 = board.client(), join(board, "a", "one"), join(board, "a2", "one")
    join(board, "b")
    fail_on(board, ann, a, a2, "x", "y", "z")
    assert not blocks_of(board.state)


def test_a_call_that_ends_well_breaks_the_row_also_of_failures_that_are_not_blamed_yet(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y")
    give(board, ann, "z", a, retries=1)
    raise_to(board, a, b, "z")
    give(board, ann, "well", a)
    board.finish(a, "well")
    board.finish(b, "z")
    assert not blocks_of(board.state)
    fail_on(board, ann, a, b, "p", "q")
    assert not blocks_of(board.state)
    fail_on(board, ann, a, b, "r")
    assert is_blocked(board)


def test_a_call_that_asks_for_another_worker_has_not_failed(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    for key in ("x", "y", "z"):
        give(board, ann, key, a)
        failures = [["reschedule", key, ""]]
        attempts = [board.attempt(key)]
        board.send(a, m.AttemptsErred(attempts=attempts, durations_us=[0], failures=failures))
        assert board.where(key) == b
        board.finish(b, key)
    assert not blocks_of(board.state)


def test_the_last_host_is_not_blocked(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y")
    give(board, ann, "z", a, retries=1)
    raise_to(board, a, b, "z")
    block(board.state, ["b"], "ann", "", 0)
    board.finish(b, "z")
    assert not is_blocked(board)
    assert warnings(board) == [
        "host host of a: 3 failures in a row, of calls that ended well elsewhere, but tasks have "
        "no other host: it is not blocked"
    ]


def test_the_last_host_that_has_what_some_calls_ask_for_is_not_blocked(board):
    ann, b = board.client(), join(board, "b")
    a = join(board, "a", resources={"GPU": 1.0})
    board.send(ann, graph("waits", "waits-too", resources={"GPU": 1.0}))
    fail_on(board, ann, a, b, "x", "y", "z")
    assert not blocks_of(board.state)
    join(board, "c", resources={"GPU": 1.0})
    fail_on(board, ann, a, b, "p")
    assert is_blocked(board)


@pytest.mark.parametrize("end", ["it leaves", "it is lost", "a user blocks it"])
def test_the_block_ends_when_tasks_have_no_other_host_left(board, end):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y", "z")
    board.send(ann, graph("later"))
    assert board.where("later") == b
    if end == "it leaves":
        board.send(b, m.WorkerLeaving(reason="SIGTERM"))
    elif end == "it is lost":
        board.close(b)
    else:
        block(board.state, ["b"], "ann", "", 0)
    assert not is_blocked(board)
    board.send(ann, graph("more"))
    assert board.where("more") == a


def test_a_block_of_a_user_is_left_as_it_is(board):
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y")
    give(board, ann, "z", a, retries=1)
    raise_to(board, a, b, "z")
    block(board.state, ["host of a"], "ann", "its disk", 0)
    board.finish(b, "z")
    assert blocks_of(board.state)["host of a"].describe() == "blocked by ann: its disk"


def die(board: Board, name: str, reason: str, *keys: str) -> None:
    """Let a worker die that runs these, and its supervisor report it."""
    (supervisor,) = board.state.supervisors
    running = [board.attempt(key) for key in keys]
    (peer,) = [ws.peer for ws in board.state.workers.values() if ws.name == name]
    board.close(peer)
    report = m.WorkerExited(worker_id=f"id of {name}", reason=reason, running=running)
    board.send(supervisor, report)


@pytest.mark.parametrize(
    ("reason", "is_host"), [("killed by SIGBUS", True), ("memory limit: 4.1 of 4.0 GiB", False)]
)
def test_the_death_of_a_worker_counts_once_unless_it_is_for_lack_of_memory(board, reason, is_host):
    ann, b, _ = board.client(), join(board, "b", nthreads=9), board.supervisor()
    for i in range(LIMIT):
        assert not is_blocked(board)
        name, keys = f"a{i}", (f"x-{i}", f"y-{i}")
        a = join(board, name, "host of a", nthreads=2, supervisor_id="sup")
        for key in keys:
            give(board, ann, key, a)
        die(board, name, reason, *keys)
        board.finish(b, *keys)
    assert is_blocked(board) is is_host
    if is_host:
        a = join(board, "a9", "host of a")
        assert "a2 died: killed by SIGBUS" in str(
            describe_worker(board.state, board.state.workers[a])["why_not"]
        )


def test_a_call_under_which_workers_die_everywhere_blocks_nobody(board):
    ann, _ = board.client(), board.supervisor()
    join(board, "there")
    for i in range(2 * LIMIT):
        a = join(board, f"a{i}", "host of a", supervisor_id="sup")
        give(board, ann, f"x-{i}", a)
        die(board, f"a{i}", "killed by SIGSEGV", f"x-{i}")
        board.send(ann, m.CancelKeys(keys=[f"x-{i}"], force=False, reason="by ann"))
    assert not blocks_of(board.state)


def test_the_death_of_a_worker_that_runs_nothing_blames_nobody(board):
    ann, b, _ = board.client(), join(board, "b"), board.supervisor()
    for i in range(LIMIT):
        a = join(board, f"a{i}", "host of a", supervisor_id="sup")
        give(board, ann, f"x-{i}", a)
        die(board, f"a{i}", "ended by weft")
        board.finish(b, f"x-{i}")
    assert not blocks_of(board.state)


def test_a_call_that_takes_too_long_there_only_is_blamed(board):
    ann, a, b = board.client(), join(board, "a", nthreads=9), join(board, "b")
    for key in ("x", "y", "z"):
        give(board, ann, key, a, retries=1, timeout_us=10**6)
        attempt = board.attempt(key)
        board.send(a, m.AttemptsOverdue(attempts=[attempt], timeouts_us=[10**6]))
        with only(board, b):
            board.send(a, m.AttemptsEnded(attempts=[attempt], ends=[m.INTERRUPTED]))
            board.tick()
        board.finish(b, key)
    assert is_blocked(board)
    assert blocks_of(board.state)["host of a"].reason.endswith("inc took longer than 1 s")


def test_stragglers_are_blamed_on_their_host():
    board = made(1)
    ann, b = board.client(), join(board, "b")
    category = {"name": "c", "mode": "fixed", "max_nbytes": 0, "straggler_multiple": 3.0}
    for i in range(LEAST_ENDED):
        board.send(ann, graph(f"first-{i}", category=category))
        measured(board, b, f"first-{i}", mb=1)
    a = join(board, "a")
    give(board, ann, "busy", b)
    board.send(ann, graph("x", category=category))
    assert board.where("x") == a
    board.finish(b, "busy")
    board.tick(5.0)
    assert board.where("x") == b
    board.finish(b, "x")
    assert is_blocked(board)
    board.drop_rest()


def test_a_retry_goes_to_another_worker_while_there_is_one(board):
    ann, a = board.client(), join(board, "a")
    board.send(ann, graph("x", retries=4))
    b = join(board, "b")
    raise_(board, a, "x")
    assert board.where("x") == b
    board.close(b)
    assert board.where("x") == a
    raise_(board, a, "x")
    assert board.where("x") == a


def test_nothing_is_noted_without_a_limit():
    board = made(0)
    ann, a, b = board.client(), join(board, "a"), join(board, "b")
    fail_on(board, ann, a, b, "x", "y", "z")
    assert not blocks_of(board.state)
    assert not failing_hosts_of(board.state).rows
    board.drop_rest()


def test_the_notes_of_failures_are_bounded(board):
    ann, a = board.client(), join(board, "a")
    for i in range(MAX_TASKS + 2):
        give(board, ann, f"x-{i}", a)
        raise_(board, a, f"x-{i}")
    table = board.state.record(HostFailures)
    assert len(table) == MAX_TASKS
    give(board, ann, "often", a, retries=MAX_FAILURES + 1)
    while board.where("often") == a:
        raise_(board, a, "often")
    assert len(table[board.task("often")]) == MAX_FAILURES
    board.send(ann, m.ReleaseKeys(keys=["often"]))
    assert len(table) == MAX_TASKS - 1
    rows = failing_hosts_of(board.state).rows
    rows.update((f"h{i}", type(rows["host of a"])(f"h{i}")) for i in range(MAX_HOSTS - 1))
    board.send(ann, graph("b"))
    late = join(board, "late")
    give(board, ann, "c", late)
    raise_(board, late, "c")
    assert len(rows) == MAX_HOSTS
