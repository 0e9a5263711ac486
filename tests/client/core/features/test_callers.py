"""callers.py: in whose name the client of a worker's tasks submits, where several share a key."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Bench, barrier_of, in_memory, ready
from tests.client.core.test_new_scheduler import Constants, restart
from weft.client.core.events import ClientTick, Operations, Unreadable
from weft.client.core.features import FEATURES
from weft.client.core.features.callers import MAX_CALLERS, Callers
from weft.client.core.state import ClientState
from weft.client.core.validate import validate
from weft.protocol.wire.failure import data_lost, not_permitted
from weft.protocol.wire.messages import KeysData, KeysErred, ReleaseKeys, SubmitTasks
from weft.protocol.wire.options import TaskOptions


@pytest.fixture
def bench():
    bench = Bench()
    bench.core = ClientState(bench.table, FEATURES, Constants())
    assert bench.connect(epoch=1) == []
    yield bench
    validate(bench.core)


def of_attempt(number: int, actor: str = "") -> TaskOptions:
    return TaskOptions(attempt=number, actor=actor)


def callers(messages) -> dict[str, int]:
    """Return `{key: attempt that is named}` of all submissions."""
    return {
        key: message.options[place].get("attempt", 0)
        for message in messages.of(SubmitTasks)
        for key, place in zip(
            message.keys, message.option_of or [0] * len(message.keys), strict=True
        )
    }


def callers_of_a_refused(messages) -> dict[str, int]:
    """Return the same, of calls whose earlier answers are over with that to a question."""
    barrier_of(messages)
    return callers(messages)


def refuse(bench, key: str, attempt: int):
    failures = [not_permitted(key, attempt)]
    return bench.hear(KeysErred(keys=[key], failure_of=[0], failures=failures))


def answer(bench, messages) -> None:
    """Answer what the client asks in order to know that the scheduler has read all before it."""
    bench.hear(KeysData(request=barrier_of(messages).request, keys=[], results=[], missing=[]))


def fail_without(bench, missing: str, *keys: str):
    """Hear that these failed because the scheduler did not know an input when it read of them."""
    failures = [data_lost(missing, "the scheduler does not have it")]
    return bench.hear(KeysErred(keys=[*keys], failure_of=[0] * len(keys), failures=failures))


def test_a_call_refused_to_one_task_is_submitted_for_another_that_shares_it(bench):
    assert callers(bench.do(bench.task("f", options=of_attempt(7)))) == {"f": 7}
    assert bench.do(bench.task("f", options=of_attempt(8))) == []
    messages, actions = refuse(bench, "f", 7)
    assert callers(messages) == {"f": 8}
    assert not actions
    assert bench.state("f").status == "pending"
    answer(bench, messages)
    assert not any(refuse(bench, "f", 8))
    assert bench.state("f").status == "pending"  # a third task may share it, on its thread so far
    bench.handle(ClientTick())
    bench.handle(ClientTick())
    assert bench.state("f").failure[0] == "not-permitted"


def test_a_refused_call_of_one_future_has_failed(bench):
    bench.do(bench.task("f", options=of_attempt(7)))
    refuse(bench, "f", 7)
    assert bench.state("f").failure[0] == "not-permitted"


def test_a_task_that_takes_a_future_before_the_refusal_and_is_heard_after_it_submits_it(bench):
    bench.do(bench.task("f", options=of_attempt(7)))
    late = bench.task("f", options=of_attempt(8))
    assert not any(refuse(bench, "f", 7))
    bench.handle(ClientTick())
    assert callers_of_a_refused(bench.do(late)) == {"f": 8}
    bench.handle(ClientTick())
    bench.handle(ClientTick())
    assert bench.state("f").status == "pending"


def test_a_refused_call_is_submitted_with_its_inputs(bench):
    bench.do(bench.task("a", options=of_attempt(7)), bench.task("b", "a", options=of_attempt(7)))
    a = bench.state("a")
    bench.do(bench.task("b", "a", options=of_attempt(8)), a)
    messages, _ = refuse(bench, "b", 7)
    assert callers_of_a_refused(messages) == {"a": 8, "b": 8}
    assert messages.of(ReleaseKeys) == [ReleaseKeys(keys=["a"])]


def test_the_refusal_of_the_last_one_is_a_failure_also_when_others_have_shared_it_before(bench):
    bench.do(bench.task("f", options=of_attempt(7)))
    bench.do(bench.task("f", options=of_attempt(8)))
    bench.hear(ready(["f"]))
    bench.handle(ClientTick())
    assert not bench.core.record(Callers).by_state


def test_an_input_is_submitted_again_on_behalf_of_the_task_that_reads_it(bench):
    """The one that had submitted it may have ended, and a result is nobody's call."""
    bench.do(bench.task("small", options=of_attempt(7)), bench.task("x", options=of_attempt(7)))
    bench.hear(ready(["small"]))
    assert callers(restart(bench)) == {"x": 7}
    sent = bench.do(bench.task("b", "small", "x", options=of_attempt(8)))
    assert callers(sent) == {"small": 8, "b": 8}


@pytest.mark.parametrize("first", ["input", "reader"])
def test_a_result_that_is_here_and_is_refused_goes_along_with_the_call_of_another_task(
    bench, first
):
    """After a restart both were submitted for a task that runs anew, in the same process."""
    bench.do(bench.task("small", options=of_attempt(7)))
    bench.do(bench.task("x", "small", options=of_attempt(7)))
    bench.hear(ready(["small"]))
    assert callers(restart(bench)) == {"small": 7, "x": 7}
    bench.do(bench.task("x", "small", options=of_attempt(8)))
    if first == "input":
        messages, _ = refuse(bench, "small", 7)
        assert messages == [ReleaseKeys(keys=["small"])]
        again, _ = refuse(bench, "x", 7)
        assert callers_of_a_refused(again) == {"small": 8, "x": 8}
    else:
        sent, _ = refuse(bench, "x", 7)
        assert callers(sent) == {"x": 8}
        refuse(bench, "small", 7)
        answer(bench, sent)
        again, actions = fail_without(bench, "small", "x")
        assert callers(again) == {"small": 8, "x": 8}
        assert not actions
    assert (bench.state("x").status, bench.state("small").status) == ("pending", "finished")


def test_of_columns_too(bench):
    columns = bench.columns(["f", "g"])
    columns.options = of_attempt(7)
    bench.sent(Operations([columns]))
    bench.do(bench.task("g", options=of_attempt(8)))
    assert callers_of_a_refused(refuse(bench, "g", 7)[0]) == {"g": 8}


def test_readers_of_a_refused_call_are_submitted_again_behind_it(bench):
    """It was submitted for a task that goes on, before the refusal was here."""
    bench.do(bench.task("f", options=of_attempt(7)))
    bench.do(bench.task("f", options=of_attempt(8)))
    bench.do(bench.task("g", "f", options=of_attempt(8)))
    bench.do(bench.task("h", "g", options=of_attempt(9)))
    messages, _ = refuse(bench, "f", 7)
    assert callers_of_a_refused(messages) == {"f": 8}
    again, actions = fail_without(bench, "f", "g", "h")
    assert callers(again) == {"g": 8, "h": 9}
    assert not actions
    assert {bench.state(key).status for key in "gh"} == {"pending"}


def test_a_reader_of_a_call_that_was_refused_to_all_is_submitted_again_once(bench):
    bench.do(bench.task("f", options=of_attempt(7)))
    bench.do(bench.task("g", "f", options=of_attempt(8)))
    refuse(bench, "f", 7)
    assert bench.state("f").status == "error"
    assert callers(fail_without(bench, "f", "g")[0]) == {"g": 8}
    bench.handle(ClientTick())
    assert callers(fail_without(bench, "f", "g")[0]) == {}
    assert bench.state("g").status == "lost"


def test_a_reader_of_a_refused_call_without_futures_is_submitted_again_with_it(bench):
    first, second = (bench.task("f", options=of_attempt(n)) for n in (7, 8))
    bench.do(first)
    bench.do(second, bench.task("g", "f", options=of_attempt(8)))
    bench.do(first.state, second.state)
    assert not any(refuse(bench, "f", 7))
    again, _ = fail_without(bench, "f", "g")
    assert callers(again) == {"f": 8, "g": 8}
    assert again.of(ReleaseKeys) == [ReleaseKeys(keys=["f"])]
    assert bench.state("g").status == "pending"


def test_an_input_that_is_lost_after_its_call_was_taken_is_a_failure(bench):
    bench.do(bench.task("f", options=of_attempt(7)))
    bench.do(bench.task("f", options=of_attempt(8)), bench.task("g", "f", options=of_attempt(8)))
    messages, _ = refuse(bench, "f", 7)
    assert callers(messages) == {"f": 8}
    answer(bench, messages)
    bench.handle(ClientTick())
    fail_without(bench, "f", "g")
    assert bench.state("g").status == "lost"


def test_a_result_that_was_refused_as_an_input_is_submitted_for_another_task_that_reads_it(bench):
    """The scheduler does not have it: another one, or the same that has dropped it since."""
    for name in ("small", "unreadable"):
        bench.do(bench.task(name, options=of_attempt(7)))
    bench.hear(ready(["small", "unreadable"]))
    bench.do(Unreadable(bench.state("unreadable"), ["unreadable", "unreadable", "", ""]))
    bench.do(bench.task("b", "small", "unreadable", options=of_attempt(7)))
    assert callers(restart(bench)) == {"small": 7, "unreadable": 7, "b": 7}
    bench.do(bench.task("b", "small", "unreadable", options=of_attempt(8)))
    keys = ["small", "unreadable", "b"]
    failures = [not_permitted(key, 7) for key in keys]
    messages, actions = bench.hear(KeysErred(keys=keys, failure_of=[0, 1, 2], failures=failures))
    assert callers_of_a_refused(messages) == {"small": 8, "unreadable": 8, "b": 8}
    releases = [ReleaseKeys(keys=["small"]), ReleaseKeys(keys=["unreadable"])]
    assert messages.of(ReleaseKeys) == releases
    assert not actions
    assert bench.state("small").has_data


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_result_elsewhere_is_submitted_again_for_another_task_that_has_its_future(bench, when):
    bench.do(bench.task("big", options=of_attempt(7)))
    if when == "before":
        bench.do(bench.task("big", options=of_attempt(8)))
    bench.hear(in_memory(["big"]))
    if when == "after":
        bench.do(bench.task("big", options=of_attempt(8)))
    bench.handle(ClientTick())
    assert callers(restart(bench)) == {"big": 7}
    assert callers_of_a_refused(refuse(bench, "big", 7)[0]) == {"big": 8}


def test_a_result_elsewhere_that_is_refused_to_all_is_a_failure(bench):
    task = bench.task("big", options=of_attempt(7))
    bench.do(task)
    assert bench.table.share(task.state)
    bench.hear(in_memory(["big"]))
    restart(bench)
    assert not any(refuse(bench, "big", 7))
    bench.handle(ClientTick())
    bench.handle(ClientTick())
    assert bench.state("big").failure[0] == "not-permitted"


def test_the_last_attempts_that_have_submitted_a_key_are_kept(bench):
    bench.do(bench.task("f", options=of_attempt(7)))
    for attempt in range(100, 100 + 3 * MAX_CALLERS):
        task = bench.task("f", options=of_attempt(attempt))
        bench.do(task, task.state)
    (kept,) = bench.core.record(Callers).by_state.values()
    assert len(kept) == MAX_CALLERS
    assert callers_of_a_refused(refuse(bench, "f", 7)[0]) == {"f": attempt}
