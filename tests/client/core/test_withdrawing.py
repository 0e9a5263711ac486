"""Calls that are cancelled only if they have not begun."""

from __future__ import annotations

import pytest

from weft.client.core.events import Disconnected, Notify, Operations, Watch, Withdraw
from weft.client.core.tasks import Watcher
from weft.protocol.wire.messages import KeysCancelled, KeysStarted, ReleaseKeys, WithdrawKeys

from .core_kit import Listener, ready


class StartListener(Watcher):
    ends_at_start = True

    def __init__(self):
        super().__init__(wants_data=False)


@pytest.fixture
def listener():
    return StartListener()


def test_the_scheduler_is_asked_and_each_state_is_notified_once(bench, listener):
    columns = bench.columns(["a", "b", "c"])
    bench.do(columns)
    states = bench.made[columns]
    assert bench.do(Withdraw(listener, states, "why")) == [
        WithdrawKeys(keys=["a", "b", "c"], reason="why")
    ]
    assert {state.status for state in states} == {"pending"}
    (notify,) = bench.acted_on(
        KeysStarted(keys=["a"]), KeysCancelled(keys=["b"], reason="why"), ready(["c"])
    )
    assert notify == Notify(listener, states)
    assert [state.status for state in states] == ["pending", "cancelled", "finished"]
    # A call that has begun ends as any other, which is no news for this listener.
    messages, actions = bench.hear(ready(["a"]), KeysStarted(keys=["a", "c", "never"]))
    assert (messages, actions) == ([], [])
    assert bench.do(*states) == [ReleaseKeys(keys=["a", "b", "c"])]


def test_other_watchers_of_the_state_go_on_waiting(bench, listener):
    task = bench.task("a")
    other = Listener(wants_data=True)
    bench.do(task, Watch(other, [task.state]))
    bench.do(Withdraw(listener, [task.state]))
    assert bench.hear(KeysStarted(keys=["a"]))[1] == [Notify(listener, [task.state])]
    assert bench.hear(ready(["a"]))[1] == [Notify(other, [task.state])]


def test_a_function_is_sent_again_while_a_call_of_it_is_being_withdrawn(bench, listener):
    first = bench.task("a")
    bench.do(first, Withdraw(listener, [first.state]))
    (message,) = bench.do(bench.task("b"))
    assert message.function_blobs == [bench.function.blob]
    bench.hear(KeysStarted(keys=["a"]))
    (message,) = bench.do(bench.task("c"))
    assert message.function_blobs == [None]


def test_calls_that_were_not_sent_are_cancelled_here(bench, listener):
    sent = bench.task("sent")
    bench.do(sent)
    bench.handle(Disconnected())
    unsent = bench.task("unsent")
    messages, actions = bench.handle(
        Operations([unsent, Withdraw(listener, [unsent.state, sent.state], "why")])
    )
    assert messages == []
    # Nobody can be asked about the other, so it counts as begun.
    assert [set(n.items) for n in actions] == [{unsent.state, sent.state}]
    assert unsent.state.failure == ["cancelled", "unsent", "why"]
    assert sent.state.status == "pending"
