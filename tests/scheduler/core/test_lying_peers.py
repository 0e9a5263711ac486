"""Peers that are wrong or lie: their own session ends, or nothing changes; no other notices it."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.roles import Role
from weft.scheduler.core.recovery.records import recovery_of

from ..builders import Board, finished, graph

#: An epoch before that of the board, and attempts of it.
BEFORE = 5


def kept(*rows: tuple[str, int]) -> m.InventoryKept:
    keys, attempts = [key for key, _ in rows], [attempt for _, attempt in rows]
    return m.InventoryKept(keys=keys, attempts=attempts, nbytes=[8] * len(rows))


def unfinished(*rows: tuple[str, int], phase: int = m.RUNNING) -> m.InventoryUnfinished:
    keys, attempts = [key for key, _ in rows], [attempt for _, attempt in rows]
    return m.InventoryUnfinished(keys=keys, attempts=attempts, phases=[phase] * len(rows))


def failed(*rows: tuple[str, int]) -> m.InventoryFailed:
    return m.InventoryFailed(
        keys=[key for key, _ in rows],
        attempts=[attempt for _, attempt in rows],
        failures=[["exception", key, "ValueError"] for key, _ in rows],
    )


def play_inventory(board: Board, is_early: bool, *messages: m.Message) -> list[str]:
    """Let a worker send an inventory before or after the tasks are submitted.

    Returns why it was refused, after the recovery and the lease.
    """
    client, honest = board.client(last_epoch=BEFORE), board.worker("honest")
    if not is_early:
        board.send(client, graph("a", "b", "other"))
    liar = board.worker("liar", last_epoch=BEFORE)
    n_rows = sum(len(message.keys) for message in messages)
    board.send(liar, *messages, m.InventoryEnd(n_rows=n_rows))
    refused = board.refused()
    if is_early:
        board.send(client, graph("a", "b", "other"))
    board.send(client, m.Resubmitted())
    board.tick(6.0)
    for _ in range(8):
        for key in ("a", "b", "other"):
            if board.where(key) == honest:
                board.finish(honest, key)
        board.send(honest, m.Heartbeat())
        board.tick(8.0)
    assert board.states("other") == ["memory"]
    if refused:
        assert board.states("a", "b") == ["memory"] * 2
    board.send(client, m.ReleaseKeys(keys=["a", "b", "other"]))
    assert board.states("a", "b", "other") == ["-"] * 3
    return refused


@pytest.mark.parametrize("is_early", [True, False], ids=["worker first", "client first"])
@pytest.mark.parametrize(
    "messages",
    [
        [kept(("a", 7), ("b", 7))],
        [kept(("a", 7)), kept(("b", 7))],
        [unfinished(("a", 7), ("b", 7))],
        [unfinished(("a", 7)), unfinished(("a", 7), phase=m.ASSIGNED)],
        [kept(("a", 7)), unfinished(("a", 7))],
        [kept(("a", 7)), failed(("a", 7))],
        [unfinished(("a", 7)), failed(("a", 7))],
    ],
    ids=[
        "two keys",
        "two keys in two messages",
        "runs twice",
        "runs and waits",
        "kept and running",
        "kept and failed",
        "running and failed",
    ],
)
def test_an_attempt_in_rows_that_differ_ends_only_that_session(new, messages, is_early):
    (text,) = play_inventory(new, is_early, *messages)
    assert text == "worker liar lists attempt 7 in two rows that differ"


@pytest.mark.parametrize("is_early", [True, False], ids=["worker first", "client first"])
@pytest.mark.parametrize(
    "messages",
    [
        [kept(("a", 7), ("a", 7))],
        [kept(("a", 7)), kept(("b", 8), ("a", 7))],
        [unfinished(("a", 7), ("a", 7))],
        [failed(("a", 7), ("a", 7))],
    ],
    ids=["kept", "in two messages", "running", "failed"],
)
def test_a_row_that_is_repeated_exactly_changes_nothing(new, messages, is_early):
    assert play_inventory(new, is_early, *messages) == []


@pytest.mark.parametrize("message", [kept(("a", 0)), unfinished(("a", 0)), failed(("a", 0))])
def test_an_attempt_that_no_scheduler_gives_out_ends_only_that_session(new, message):
    (text,) = play_inventory(new, True, message)
    assert text == "worker liar lists attempt 0, which no scheduler has given out"


@pytest.mark.parametrize("kind", ["running", "assigned"])
def test_an_unmerged_attempt_that_has_ended_without_a_result_is_not_adopted(new, kind):
    worker = new.come_back(last_epoch=BEFORE, **{kind: {"a": 7}})
    new.send(worker, m.AttemptsEnded(attempts=[7]))
    assert not recovery_of(new.state).rows
    new.send(new.client(last_epoch=BEFORE), graph("a"))
    assert new.states("a") == ["queued"]


# -- the other lists ------------------------------------------------------------------------------
@pytest.mark.parametrize("sender", ["worker", "client", "relay"])
def test_a_key_that_is_reported_missing_twice_in_one_message_is_lost_once(board, sender):
    client, holder, other = board.client(), board.worker("w"), board.worker("other")
    board.send(client, graph("a", workers=["w"], allow_other_workers=True))
    board.finish(holder, "a", blob=None)
    keys = ["a", "a"]
    if sender == "worker":
        board.send(other, m.KeysMissing(keys=keys, holder="tcp://w"))
    elif sender == "client":
        board.send(client, m.ReportMissing(keys=keys, holder="tcp://w"))
    else:
        out = board.send(client, m.FetchKeys(request=1, keys=keys))
        (fetch,) = [x for x in out[holder] if isinstance(x, m.FetchKeys)]
        data = m.KeysData(request=fetch.request, keys=[], results=[], missing=keys)
        board.send(holder, data)
    assert board.states("a") == ["processing"]
    assert board.state.counters.replicas_missing == 1


def test_a_failure_that_is_reported_twice_in_one_message_counts_once(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=1))
    attempt = board.attempt("a")
    failure = ["exception", "a", "ValueError"]
    report = m.AttemptsErred(
        attempts=[attempt] * 2, durations_us=[1] * 2, failures=[failure, failure]
    )
    board.send(worker, report)
    assert board.states("a") == ["processing"]
    assert list(board.state.n_exceptions.values()) == [1]


def test_a_result_that_is_reported_twice_in_one_message_counts_once(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(worker, finished([board.attempt("a")] * 2))
    assert board.states("a") == ["memory"]
    assert board.state.counters.tasks_completed == 1


def test_a_death_that_lists_an_attempt_twice_counts_once():
    board = Board(allowed_deaths=1)
    client, sup = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.close(worker)
    board.send(sup, m.WorkerExited(worker_id="id of w", reason="killed", running=[attempt] * 2))
    assert board.states("a") == ["no_worker"]


@pytest.mark.parametrize("keys", [["a", "b"], ["a", "a"], ["other"]])
def test_data_that_was_not_asked_for_does_not_reach_the_client(board, keys):
    client, worker = board.client(), board.worker("w", nthreads=2)
    board.send(client, graph("a", "b"))
    board.finish(worker, "a", "b", blob=None)
    out = board.send(client, m.FetchKeys(request=1, keys=["a"]))
    (fetch,) = [x for x in out[worker] if isinstance(x, m.FetchKeys)]
    data = m.KeysData(request=fetch.request, keys=keys, results=[b"x"] * len(keys), missing=[])
    out = board.send(worker, data)
    assert board.refused() == ["worker w answers with the data of keys that it was not asked for"]
    (answer,) = [x for x in out[client] if isinstance(x, m.KeysData)]
    assert (answer.keys, answer.missing) == ([], ["a"])


# -- numbers --------------------------------------------------------------------------------------
def test_descriptions_of_workers_that_report_the_largest_numbers_can_be_sent(board):
    """The sums of what peers report are cut to what a message can hold."""
    client, viewer = board.client(), board.connect(Role.VIEWER)
    most = (1 << 63) - 1
    for name in ("a", "b", "c"):
        worker = board.worker(name, memory_limit=most)
        status = m.WorkerStatus(
            state="running",
            nthreads=most,
            n_records=most,
            n_ready=most,
            managed_nbytes=most,
            resident_nbytes=most,
            cpu_percent=most,
        )
        board.send(worker, status)
        board.send(client, graph(f"of-{name}", workers=[name]))
        board.finish(worker, f"of-{name}", nbytes=most, us=most)
    for question in (
        m.Ask(request=1, name="cluster"),
        m.Ask(request=1, name="workers"),
        m.Ask(request=1, name="sizes", arguments={"keys": ["of-a"]}),
        m.GetMetrics(request=1),
    ):
        assert WireState().encode(board.send(viewer, question)[viewer])
