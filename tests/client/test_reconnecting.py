"""What the simulator found in the client's core, in a few lines each: mostly lost connections."""

from __future__ import annotations

import pytest

from weft.client.events import Cancel, Disconnected, Fetched, Operations, Tick, Want, Watch
from weft.protocol.messages import (
    FetchKeys,
    KeysData,
    KeysErred,
    KeysPending,
    KeysUnknown,
    ReleaseKeys,
    SubmitTasks,
    WantKeys,
)

from .test_state import Bench, Listener, erred, in_memory, ready


@pytest.fixture
def bench():
    bench = Bench()
    assert bench.connect() == []
    yield bench
    bench.core.validate()


def submitted(messages):
    return [key for x in messages if isinstance(x, SubmitTasks) for key in x.keys]


def want(bench, key):
    state = bench.table.find_or_make(key)
    return Want([state])


def test_a_held_task_follows_the_later_submission_of_its_input():
    """The input was let go and submitted once more, all before there was a connection."""
    bench = Bench()
    first = bench.task("a")
    bench.do(first, bench.task("b", "a"))
    bench.do(first.state)
    bench.do(bench.task("a"))
    assert submitted(bench.connect()) == ["a", "b"]


def test_an_input_that_was_watched_and_let_go_is_still_submitted():
    bench = Bench()
    a = bench.task("a")
    bench.do(a, bench.task("b", "a"))
    bench.handle(Operations([Watch(Listener(wants_data=True), [a.state]), a.state]))
    assert submitted(bench.connect()) == ["a", "b"]


def test_an_input_that_is_also_wanted_anew_is_submitted_and_not_released():
    bench = Bench()
    a = bench.task("a")
    bench.do(a, bench.task("b", "a"))
    bench.do(a.state)
    bench.do(want(bench, "a"))
    messages = bench.connect()
    assert submitted(messages) == ["a", "b"]
    assert WantKeys(keys=["a"]) in messages
    assert ReleaseKeys(keys=["a"]) not in messages


def test_an_input_that_was_submitted_as_lineage_and_cancelled_since_is_released():
    bench = Bench()
    old = bench.task("a")
    bench.do(old, bench.task("b", "a"))
    bench.do(old.state)
    again = bench.task("a")
    bench.do(again)
    bench.do(Cancel([again.state]))
    messages = bench.connect()
    assert submitted(messages) == ["a", "b"]
    assert messages[-1] == ReleaseKeys(keys=["a"])


def test_what_depends_on_a_task_that_was_cancelled_unsent_is_cancelled_too():
    bench = Bench()
    a, b, c = bench.task("a"), bench.task("b", "a"), bench.task("c", "b")
    bench.do(a, b, c)
    bench.do(b.state)  # reaches c through a state that nobody holds
    bench.do(Cancel([a.state]))
    assert submitted(bench.connect()) == []
    assert (c.state.status, c.state.failure[1]) == ("cancelled", "a")


def test_an_input_is_not_released_before_the_held_task_that_reads_it_is_submitted(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.sent(Disconnected("why"))
    bench.do(bench.task("b", "a"), a.state)
    messages = bench.connect()
    assert submitted(messages) == ["b"]
    assert messages[-1] == ReleaseKeys(keys=["a"])


def test_a_release_that_may_not_have_been_heard_does_not_hit_the_same_task_submitted_again(bench):
    a = bench.task("a")
    bench.do(a)
    bench.do(a.state)
    bench.do(bench.task("a"))
    bench.hear(ready(["a"]))
    bench.sent(Disconnected("why"))
    assert bench.connect() == [WantKeys(keys=["a"])]


def test_a_key_wanted_after_its_cancel_is_not_deaf_to_the_answer(bench):
    a = bench.task("a", named=b"h" * 16)
    bench.do(a)
    bench.do(Cancel([a.state]), a.state)
    barrier, wish = bench.do(want(bench, "a"))
    assert isinstance(barrier, FetchKeys)
    assert wish == WantKeys(keys=["a"])
    bench.hear(
        KeysData(request=barrier.request, keys=[], results=[], missing=[]),
        KeysUnknown(keys=["a"]),
    )
    assert bench.state("a").status == "lost"


def test_data_that_arrives_after_a_failure_does_not_undo_it(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(in_memory(["a"]))
    _, (fetch,) = bench.handle(Operations([Watch(Listener(wants_data=True), [a.state])]))
    bench.hear(KeysPending(keys=["a"]), erred("a"))
    bench.handle(Fetched(fetch.request, ["a"], [b"late"], []))
    assert (a.state.status, a.state.blob) == ("error", None)


def test_a_result_that_is_here_is_not_undone_by_a_later_failure(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.hear(KeysErred(keys=["a"], failure_of=[0], failures=[["worker-died", "a", 1, "w", ""]]))
    assert (a.state.status, a.state.blob) == ("finished", b"result of a")


def test_a_task_that_lost_its_data_is_counted_once_for_its_function_when_submitted_again(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(in_memory(["a"]))
    bench.hear(KeysPending(keys=["a"]))
    bench.do(bench.task("a"))
    assert bench.function.n_wanted == 1
    bench.do(bench.columns(["x"]))
    assert bench.function.n_wanted == 2


def test_a_doomed_task_that_the_scheduler_may_have_is_released(bench):
    """It was asked for, submitted, and its input cancelled; then comes the first answer."""
    bench.do(want(bench, "b"), want(bench, "a"))
    b = bench.task("b", "a")
    bench.do(b)
    bench.do(Cancel([bench.state("a")]))
    messages, _ = bench.hear(KeysUnknown(keys=["b"]))
    assert messages == [ReleaseKeys(keys=["b"])]
    assert b.state.status == "cancelled"
    bench.sent(Tick())
