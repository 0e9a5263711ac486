"""Calls that read keys of other clients, and what may and may not overtake them."""

from __future__ import annotations

import pytest

from tests.client.core.test_state import Bench
from weft.client.core.borrowing import LOAN_TIMEOUT_S
from weft.client.core.events import (
    Borrow,
    Cancel,
    ClientClosing,
    ClientTick,
    Confirm,
    Disconnected,
    ForgetWatcher,
    GaveUp,
    Lent,
    Loan,
    Notify,
    Operations,
    Want,
    Watch,
)
from weft.client.core.tasks import Watcher
from weft.client.core.validate import validate
from weft.client.failures import exception_of
from weft.protocol.errors import ForeignFuture, TaskCancelled
from weft.protocol.wire.messages import FetchKeys, KeysData, ReleaseKeys, SubmitTasks


@pytest.fixture
def bench():
    bench = Bench()
    assert bench.connect() == []
    yield bench
    validate(bench.core)


@pytest.fixture
def loan():
    return Loan("the lender", {"lent": None})


def keys_of(messages):
    assert all(isinstance(message, SubmitTasks) for message in messages)
    return [message.keys for message in messages]


def pass_time(bench, seconds):
    bench.now += seconds
    return bench.handle(ClientTick())


def test_a_call_that_borrows_waits_and_other_calls_do_not(bench, loan):
    borrowing = Borrow(bench.task("a", "lent"), [loan])
    assert keys_of(bench.do(borrowing, bench.task("b"))) == [["b"]]
    assert keys_of(bench.do(bench.columns(["c", "d"], [[], ["b"]]))) == [["c", "d"]]
    assert keys_of(bench.do(Lent(loan))) == [["a"]]
    assert not bench.core.waiting


def test_every_loan_is_waited_for(bench, loan):
    other = Loan("another lender", {"more": None})
    assert bench.do(Borrow(bench.task("a", "lent", "more"), [loan, other])) == []
    assert bench.do(Lent(other)) == []
    assert keys_of(bench.do(Lent(loan))) == [["a"]]


def test_a_call_that_reads_a_waiting_call_is_sent_after_it(bench, loan):
    second = Loan("another lender", {"more": None})
    tasks = [
        Borrow(bench.task("a", "lent"), [loan]),
        bench.task("b", "a"),
        bench.columns(["c", "d"], [[], ["b"]]),
        Borrow(bench.task("e", "d", "more"), [second]),
        bench.task("f", "e"),
    ]
    assert bench.do(*tasks) == []
    assert keys_of(bench.do(bench.task("g", "f"), Lent(loan))) == [["a", "b"], ["c", "d"]]
    assert keys_of(bench.do(Lent(second))) == [["e", "f", "g"]]


def test_a_release_does_not_overtake_a_waiting_call_or_what_reads_it(bench, loan):
    task = bench.task("a", "lent")
    reader = bench.task("b", "a")
    assert bench.do(Borrow(task, [loan]), reader, task.state, reader.state) == []
    assert bench.state("a").status == "pending"
    submission, release = bench.do(Lent(loan))
    assert submission.keys == ["a", "b"]
    assert release == ReleaseKeys(keys=["a", "b"])
    assert not bench.table.states


def test_cancelling_a_waiting_call_fails_at_once_what_reads_it(bench, loan):
    task, reader = bench.task("a", "lent"), bench.task("b", "a")
    watcher = Watcher(wants_data=True)
    bench.do(Borrow(task, [loan]), reader, Watch(watcher, [reader.state]))
    messages, (notify,) = bench.handle(Operations([Cancel([task.state])]))
    assert messages == []
    assert notify == Notify(watcher, [reader.state])
    assert isinstance(exception_of(reader.state), TaskCancelled)
    assert bench.do(Lent(loan)) == []


def test_a_call_that_was_cancelled_while_it_waited_can_be_submitted_again(bench, loan):
    task = bench.task("a", "lent")
    bench.do(Borrow(task, [loan]), Cancel([task.state]))
    again = bench.task("a", "lent")
    other = Loan("the lender", {"lent": None})
    assert again.state is not task.state
    assert bench.do(Borrow(again, [other]), Lent(loan)) == []
    assert keys_of(bench.do(Lent(other))) == [["a"]]


def test_an_equal_call_that_need_not_wait_is_submitted(bench, loan):
    other = Loan("the lender", {"lent": None})
    assert bench.do(Borrow(bench.task("a", "lent"), [loan])) == []
    assert bench.do(Borrow(bench.task("a", "lent"), [other])) == []
    assert keys_of(bench.do(Lent(other))) == [["a"]]
    assert keys_of(bench.do(bench.task("b", "a"))) == [["b"]]
    assert bench.do(Lent(loan)) == []
    assert bench.state("a").n_references == 2


def test_a_waiting_key_is_not_wanted_before_it_is_submitted(bench, loan):
    bench.do(Borrow(bench.task("a", "lent"), [loan]))
    assert bench.do(Want([bench.table.find_or_make("a")])) == []
    assert keys_of(bench.do(Lent(loan))) == [["a"]]


def test_a_confirmation_of_a_waiting_call_comes_after_it_and_others_do_not_wait(bench, loan):
    task, other = bench.task("a", "lent"), bench.task("b")
    mine, everything, unrelated = (Watcher(wants_data=False) for _ in range(3))
    messages = bench.do(
        Borrow(task, [loan]),
        other,
        Confirm(mine, [task.state]),
        Confirm(everything),
        Confirm(unrelated, [other.state]),
    )
    assert [type(message) for message in messages] == [SubmitTasks, FetchKeys]
    _, (notify,) = bench.hear(
        KeysData(request=messages[1].request, keys=[], results=[], missing=[])
    )
    assert notify.watcher is unrelated
    submission, *requests = bench.do(Lent(loan))
    assert submission.keys == ["a"]
    _, actions = bench.hear(KeysData(request=requests[-1].request, keys=[], results=[], missing=[]))
    assert [notify.watcher for notify in actions] == [mine, everything]


def test_a_waiting_confirmation_can_be_forgotten(bench, loan):
    task = bench.task("a", "lent")
    watcher = Watcher(wants_data=False)
    bench.do(Borrow(task, [loan]), Confirm(watcher, [task.state]), ForgetWatcher(watcher))
    assert keys_of(bench.do(Lent(loan))) == [["a"]]


def test_calls_fail_when_a_loan_takes_too_long_and_only_those_that_read_it(bench, loan):
    columns = bench.columns(["a", "b"], [["lent"], []])
    reader = bench.task("c", "a")
    bench.do(Borrow(columns, [loan]), reader)
    messages, _ = pass_time(bench, LOAN_TIMEOUT_S - 2)
    assert messages == []
    messages, _ = pass_time(bench, 1)
    assert keys_of(messages) == [["b"]]
    error = exception_of(columns.states[0])
    assert isinstance(error, ForeignFuture)
    assert "'a' was not submitted: its argument 'lent' is a future of the client the lender" in str(
        error
    )
    assert isinstance(exception_of(reader.state), ForeignFuture)
    assert bench.do(Lent(loan)) == []


def test_no_time_is_counted_without_a_connection(bench, loan):
    bench.do(Borrow(bench.task("a", "lent"), [loan]))
    bench.handle(Disconnected())
    pass_time(bench, LOAN_TIMEOUT_S + 1)
    bench.connect()
    pass_time(bench, LOAN_TIMEOUT_S - 3)
    assert bench.state("a").status == "pending"
    bench.handle(Disconnected())
    assert bench.do(Lent(loan)) == []
    assert keys_of(bench.connect()) == [["a"]]


@pytest.mark.parametrize("end", [ClientClosing(), GaveUp("no scheduler")])
def test_the_end_of_a_client_ends_the_waiting(bench, loan, end):
    task = bench.task("a", "lent")
    watcher = Watcher(wants_data=False)
    bench.do(Borrow(task, [loan]), Confirm(watcher, [task.state]), task.state)
    _, (notify,) = bench.handle(end)
    assert notify.watcher is watcher
    assert not bench.table.states
    late = bench.task("b", "lent")
    bench.handle(Operations([Borrow(late, [Loan("the lender", {"lent": None})])]))
    assert late.state.status == "lost"
