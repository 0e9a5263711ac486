"""Calls that read keys of other clients, and what may and may not overtake them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from weft.client.core.foreign_keys import LOAN_TIMEOUT_S
from weft.client.core.tasks import Watcher
from weft.client.results.failures import exception_of
from weft.protocol.errors import ForeignFuture, TaskCancelled
from weft.protocol.wire.messages import CancelKeys, FetchKeys, KeysData, ReleaseKeys, SubmitTasks

from .core_kit import Bench


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
    assert isinstance(release, ReleaseKeys)
    assert {*release.keys} == {"a", "b"}
    assert not bench.table.states


def test_an_input_of_a_waiting_call_is_released_after_it(bench, loan):
    task = bench.task("a")
    assert keys_of(bench.do(task)) == [["a"]]
    assert bench.do(Borrow(bench.task("b", "a", "lent"), [loan]), task.state) == []
    submission, release = bench.do(Lent(loan))
    assert submission.keys == ["b"]
    assert release == ReleaseKeys(keys=["a"])


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
    (notify,) = bench.acted_on(
        KeysData(request=messages[1].request, keys=[], results=[], missing=[])
    )
    assert notify.watcher is unrelated
    submission, *requests = bench.do(Lent(loan))
    assert submission.keys == ["a"]
    actions = bench.acted_on(
        KeysData(request=requests[-1].request, keys=[], results=[], missing=[])
    )
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
    error = exception_of(bench.made[columns][0])
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
    (notify,) = bench.acted(end)
    assert notify.watcher is watcher
    assert not bench.table.states
    late = bench.task("b", "lent")
    bench.handle(Operations([Borrow(late, [Loan("the lender", {"lent": None})])]))
    assert late.state.status == "lost"


# --- Any order ------------------------------------------------------------------------------------


class Traffic:
    """A user who submits, borrows, releases and cancels, and a scheduler that checks the order."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.connect()
        self.operations = []
        #: {key: its record or columns}, of futures that live.
        self.futures = {}
        self.loans = {}
        self.n = 0
        #: Keys that the scheduler has.
        self.known = set()
        self.submitted = set()

    def inputs(self, choice):
        keys = list(self.futures)
        return [keys[choice % len(keys)], keys[choice // 3 % len(keys)]] if keys else []

    def submit(self, choice):
        self.n += 1
        dependencies = self.inputs(choice) if choice % 3 else []
        loans = []
        if choice % 2:
            loans = [Loan("the lender", {f"lent-{self.n}": None})]
            self.loans[f"lent-{self.n}"] = loans[0]
            dependencies = [*dependencies, f"lent-{self.n}"]
        if choice % 5:
            task = self.bench.task(f"k{self.n}", *dependencies)
            self.futures[f"k{self.n}"] = task.state
        else:
            keys = [f"k{self.n}", f"m{self.n}"]
            task = self.bench.columns(keys, [dependencies, []])
            self.futures.update(zip(keys, task.states, strict=True))
        self.operations.append(Borrow(task, loans) if loans else task)

    def release(self, choice):
        if self.futures:
            self.operations.append(self.futures.pop(list(self.futures)[choice % len(self.futures)]))

    def cancel(self, choice):
        if self.futures and not choice % 4:
            state = list(self.futures.values())[choice % len(self.futures)]
            self.operations.append(Cancel([state]))

    def confirm(self, choice):
        if self.futures:
            state = list(self.futures.values())[choice % len(self.futures)]
            self.operations.append(Confirm(Watcher(wants_data=False), [state]))

    def settle(self, choice):
        loans = [loan for loan in self.loans.values() if not loan.is_settled]
        if loans:
            self.operations.append(Lent(loans[choice % len(loans)]))
            self.flush(choice)

    def flush(self, _choice):
        operations, self.operations = self.operations, []
        messages, _ = self.bench.handle(Operations(operations))
        for message in messages:
            if isinstance(message, SubmitTasks):
                for key, reads in zip(
                    message.keys, message.dependencies or [[] for _ in message.keys], strict=True
                ):
                    self.check_inputs(key, reads)
                    self.known.add(key)
                self.submitted.update(message.keys)
            elif isinstance(message, ReleaseKeys | CancelKeys):
                assert self.known.issuperset(message.keys)
                self.known.difference_update(message.keys)

    def check_inputs(self, key, reads):
        for name in reads:
            assert self.loans[name].is_settled if name in self.loans else name in self.known, key


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["submit", "submit", "release", "cancel", "confirm", "settle", "flush"]
            ),
            st.integers(0, 999),
        ),
        max_size=60,
    )
)
def test_calls_leave_after_their_inputs_whatever_is_borrowed(steps):
    traffic = Traffic()
    for name, choice in steps:
        getattr(traffic, name)(choice)
    traffic.flush(0)
    for loan in traffic.loans.values():
        traffic.operations.append(Lent(loan))
    traffic.flush(0)
    core = traffic.bench.core
    assert not core.waiting
    for key, state in traffic.futures.items():
        assert (key in traffic.submitted) or state.status == "cancelled", state
    while traffic.futures:
        traffic.release(0)
    traffic.flush(0)
    assert not traffic.known
    assert not core.table.states
