"""The client's core meets a scheduler of another epoch, which has none of its tasks."""

from __future__ import annotations

import pytest

from weft.client.core.events import (
    Cancel,
    ClientTick,
    Confirm,
    Disconnected,
    Loaded,
    Operations,
    RecipesSpilled,
    ResultsFetched,
    SpillRecipes,
    Unreadable,
    Want,
    Warn,
    Watch,
)
from weft.client.core.features import FEATURES
from weft.client.core.features.notices import PATIENCE_TICKS
from weft.client.core.recipes import SMALL_NBYTES
from weft.client.core.state import ClientState
from weft.client.core.tasks import NO_VALUE
from weft.client.core.validate import validate
from weft.protocol.wire.messages import (
    KeysData,
    KeysInMemory,
    KeysPending,
    KeysUnknown,
    Recovered,
    Recovering,
    ReleaseKeys,
    Resubmitted,
    SubmitTasks,
    WantKeys,
)
from weft.protocol.wire.options import TaskOptions

from .core_kit import Bench, Listener, barrier_of, erred, in_memory, ready


class Constants:
    function = (b"c" * 16, b"<c>")

    @staticmethod
    def arguments(blob):
        return b"=" + blob


@pytest.fixture
def bench():
    bench = Bench()
    bench.core = ClientState(bench.table, FEATURES, Constants())
    assert bench.connect(epoch=1) == []
    yield bench
    validate(bench.core)


def restart(bench):
    bench.sent(Disconnected())
    return bench.connect(epoch=bench.core.epoch + 1)


def rows(messages):
    """Return `{key: (function, arguments)}` of all submissions, in order."""
    return {
        key: (message.functions[place], args)
        for message in messages.of(SubmitTasks)
        for key, place, args in zip(message.keys, message.function_of, message.args, strict=True)
    }


def delivered(messages):
    """Return the keys of all rows that run only when another task needs them."""
    return [
        key
        for message in messages.of(SubmitTasks)
        for key, place in zip(
            message.keys, message.option_of or [0] * len(message.keys), strict=True
        )
        if message.options[place].get("delivered")
    ]


def test_pending_tasks_are_submitted_at_once_in_order_and_nothing_is_asked(bench):
    bench.do(bench.task("b"), bench.task("a"), bench.task("c", "b", "a"))
    messages = restart(bench)
    assert [*rows(messages)] == ["b", "a", "c"]
    assert messages[0].function_blobs == [b"<f>"]
    assert not messages.of(WantKeys)
    assert messages[-1] == Resubmitted()
    # The session has begun: the next call goes out at once.
    assert [*rows(bench.do(bench.task("d", "c")))] == ["d"]


def test_the_same_scheduler_is_told_when_all_that_it_lacks_was_submitted_again(bench):
    """The line may have broken while all was submitted, or for so long that all was released."""
    a = bench.task("a")
    bench.do(a, bench.task("b", "a"))
    bench.do(a.state)
    restart(bench)
    bench.sent(Disconnected())
    (want,) = bench.connect(epoch=bench.core.epoch)
    assert want == WantKeys(keys=["b"])
    messages, _ = bench.hear(KeysUnknown(keys=["b"]))
    assert [*rows(messages)] == ["a", "b"]
    assert [*{type(one) for one in messages[1:-1]}] == [ReleaseKeys]
    assert messages[-1] == Resubmitted()


@pytest.mark.parametrize("is_columns", [False, True], ids=["task", "columns"])
def test_a_result_that_is_here_is_submitted_again_when_a_task_waits_for_it(bench, is_columns):
    """The new scheduler had found it at a worker, which is lost since then."""
    bench.do(bench.task("a"))
    bench.hear(ready(["a"]))
    reader = bench.columns(["b"], [["a"]]) if is_columns else bench.task("b", "a")
    bench.do(reader, bench.task("c"))
    messages, _ = bench.hear(KeysUnknown(keys=["a"]))
    (submit,) = messages.of(SubmitTasks)
    assert submit.keys == ["a"]
    assert submit.options[submit.option_of[0] if submit.option_of else 0]["delivered"]
    assert bench.hear(KeysPending(keys=["a"])) == ([], [])
    assert bench.state("a").has_data
    bench.hear(ready(["b"]))
    messages, _ = bench.hear(KeysUnknown(keys=["a"]))
    assert not messages.of(SubmitTasks), "no task waits for it"


def test_the_first_scheduler_is_not_told_that_everything_was_submitted_again():
    bench = Bench()
    bench.do(bench.task("a"))
    (message,) = bench.connect(epoch=7)
    assert message.keys == ["a"]


def test_a_large_result_is_submitted_again_and_stays_finished(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(in_memory(["a"]))
    assert [*rows(restart(bench))] == ["a"]
    assert (a.state.status, a.state.phase) == ("finished", "sent")
    bench.hear(KeysInMemory(keys=["a"], nbytes=[100], holder_of=[0], holders=["tcp://v:1"]))
    assert a.state.location == ("tcp://v:1", 100)


@pytest.mark.parametrize("has_ended", [False, True])
def test_the_conditions_and_times_of_what_has_ended_are_left_out(bench, has_ended):
    """If the result is lost the task runs again, and is not cancelled."""
    options = TaskOptions(conditions=[["failed", "x"]], begin_by_ms=6, end_by_ms=7, priority=2)
    a = bench.task("a", options=options)
    bench.do(a)
    if has_ended:
        bench.hear(in_memory(["a"]))
    (submitted,) = restart(bench).of(SubmitTasks)
    names = {"conditions", "begin_by_ms", "end_by_ms"} & {*submitted.options[0]}
    assert names == (set() if has_ended else {"conditions", "begin_by_ms", "end_by_ms"})
    assert submitted.options[0]["priority"] == 2


def test_a_large_result_whose_workers_are_gone_is_pending_again(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(in_memory(["a"]))
    restart(bench)
    bench.hear(KeysPending(keys=["a"]))
    assert a.state.status == "pending"


def test_a_released_input_of_a_large_result_is_submitted_for_it_and_released(bench):
    a, b = bench.task("a"), bench.task("b", "a")
    bench.do(a, b)
    bench.hear(in_memory(["a"]), in_memory(["b"]))
    bench.do(a.state)
    messages = restart(bench)
    assert [*rows(messages)] == ["a", "b"]
    assert messages[-2:] == [ReleaseKeys(keys=["a"]), Resubmitted()]
    assert delivered(messages) == ["a"]


def test_a_small_result_stays_here_until_a_task_reads_it(bench):
    a = bench.task("a")
    bench.do(a, bench.task("b"))
    bench.hear(ready(["a"]))
    assert [*rows(restart(bench))] == ["b"]
    assert a.state.phase == "kept"
    assert bench.do(bench.task("x")) != []
    found = rows(bench.do(bench.task("c", "a")))
    assert found["a"] == (b"c" * 16, b"=result of a")
    assert [*found] == ["a", "c"]
    # Only once.
    assert [*rows(bench.do(bench.task("d", "a")))] == ["d"]
    assert bench.do(a.state) == [ReleaseKeys(keys=["a"])]


def test_a_small_result_is_submitted_before_the_pending_task_that_reads_it(bench):
    a = bench.task("a", named=b"h" * 16)
    bench.do(a, bench.task("b", "a"))
    bench.hear(ready(["a"]))
    messages = restart(bench)
    assert [*rows(messages)] == ["a", "b"]
    assert rows(messages)["a"][1] == b"=result of a"
    assert messages.of(SubmitTasks)[0].spec_hashes[0] == b"h" * 16


def test_a_small_result_without_a_future_is_still_the_input_of_a_pending_task(bench):
    a = bench.task("a")
    bench.do(a, bench.task("b", "a"))
    bench.hear(ready(["a"]))
    bench.do(a.state)
    messages = restart(bench)
    assert rows(messages)["a"] == (b"c" * 16, b"=result of a")
    assert messages[-2:] == [ReleaseKeys(keys=["a"]), Resubmitted()]


@pytest.mark.parametrize("n", [10, SMALL_NBYTES])
def test_a_small_result_that_was_read_is_what_it_was_when_it_came(bench, n):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"], bytes(n)))
    a.state.value = ["changed by the user"]
    if n >= SMALL_NBYTES:
        bench.do(Loaded(a.state))
        assert a.state.blob is None
    restart(bench)
    found = rows(bench.do(bench.task("b", "a")))
    assert found["a"] == (b"c" * 16, b"=" + bytes(n) + b"a")


def test_a_large_result_that_was_fetched_is_submitted_by_its_call(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(in_memory(["a"]))
    (fetch,) = bench.acted(Operations([Watch(Listener(wants_data=True), [a.state])]))
    bench.handle(ResultsFetched(fetch.request, ["a"], [bytes(1 << 20)]))
    messages = restart(bench)
    assert rows(messages)["a"] == (b"f" * 16, b"<args of a>")
    assert delivered(messages) == ["a"]
    assert a.state.has_data


def test_failed_and_cancelled_tasks_are_left_out_and_fail_their_readers(bench):
    a, b, c = bench.task("a"), bench.task("b"), bench.task("c", "a")
    bench.do(a, b, c)
    bench.do(Cancel([b.state]))
    bench.hear(erred("a"))
    messages = restart(bench)
    assert rows(messages) == {}
    assert messages.of(ReleaseKeys) == [ReleaseKeys(keys=["c"])]
    assert (c.state.status, c.state.failure) == ("error", a.state.failure)
    assert bench.do(a.state, b.state, c.state) == []


def test_a_failed_task_may_be_submitted_again_afterwards(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a"))
    restart(bench)
    assert [*rows(bench.do(bench.task("a")))] == ["a"]


def test_a_result_that_cannot_be_unpickled_here_is_kept_for_others(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.do(Unreadable(a.state, ["unreadable", "a", "why"]))
    assert rows(restart(bench)) == {}
    found = rows(bench.do(bench.task("b", "a")))
    assert found["a"] == (b"c" * 16, b"=result of a")


def test_a_key_of_another_client_is_wanted(bench):
    state = bench.table.find_or_make("theirs")
    bench.do(Want([state]))
    first, last = restart(bench)
    assert first == WantKeys(keys=["theirs"])
    assert last == Resubmitted()


def test_releases_that_may_not_have_been_read_are_forgotten(bench):
    a = bench.task("a")
    bench.do(a)
    bench.do(a.state)
    assert restart(bench) == [Resubmitted()]
    assert bench.sent(ClientTick()) == []


def test_releases_at_a_new_scheduler_are_checked_and_forgotten(bench):
    restart(bench)
    a = bench.task("a")
    bench.do(a)
    bench.do(a.state)
    (check,) = bench.sent(ClientTick())
    bench.hear(KeysData(request=check.request, keys=[], results=[], missing=[]))
    assert not bench.core.checked
    assert not bench.core.unacknowledged


def test_a_result_that_another_client_borrows_is_submitted_before_that_is_confirmed(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    restart(bench)
    messages = bench.do(Confirm(Listener(wants_data=False), [a.state]))
    assert [*rows(messages)] == ["a"]
    assert barrier_of(messages)


def test_a_result_that_is_borrowed_while_there_is_no_scheduler_is_submitted_to_the_next(bench):
    a, b = bench.task("a"), bench.task("b")
    bench.do(a, b)
    bench.hear(ready(["a", "b"]))
    bench.sent(Disconnected())
    bench.do(Confirm(Listener(wants_data=False), [a.state]))
    messages = bench.connect(epoch=2)
    assert [*rows(messages)] == ["a"]
    assert barrier_of(messages)
    assert b.state.phase == "kept"


def test_a_third_scheduler_gets_what_the_second_one_had(bench):
    a = bench.task("a")
    bench.do(a, bench.task("b", "a"))
    bench.hear(ready(["a"]))
    assert [*rows(restart(bench))] == ["a", "b"]
    assert [*rows(restart(bench))] == ["a", "b"]


def test_the_same_scheduler_that_forgot_a_small_result_gets_it_when_a_task_reads_it(bench):
    """Its lease for this client was over."""
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.sent(Disconnected())
    assert bench.connect(epoch=1) == [WantKeys(keys=["a"])]
    bench.hear(KeysUnknown(keys=["a"]))
    assert (a.state.status, a.state.phase) == ("finished", "kept")
    assert [*rows(bench.do(bench.task("b", "a")))] == ["a", "b"]


def test_a_released_result_keeps_no_value_in_the_recipes_of_others(bench):
    a, b = bench.task("a"), bench.task("b", "a")
    bench.do(a, b)
    bench.hear(ready(["a"]), in_memory(["b"]))
    a.state.value = object()
    bench.do(a.state)
    assert a.state.value is NO_VALUE
    assert b.state.spec.lineage == [a.state]


def test_the_recipe_of_a_small_result_is_no_longer_that_of_its_call(bench):
    """Or a loop in which each step reads the last result would keep all of them."""
    a, b = bench.task("a"), bench.task("b", "a")
    bench.do(a, b)
    bench.hear(ready(["a", "b"]))
    assert a.state.spec is b.state.spec is None


# --- The limit ------------------------------------------------------------------------------------


@pytest.fixture
def small(bench):
    """A client that keeps two of three large calls in memory."""
    bench.core = ClientState(bench.table, FEATURES, Constants(), 5 * SMALL_NBYTES // 2)
    assert bench.connect(epoch=1) == []
    bench.tasks = [bench.task(key) for key in "abc"]
    for task in bench.tasks:
        task.args = task.args + bytes(SMALL_NBYTES)
    bench.do(*bench.tasks)
    return bench


def test_the_oldest_calls_beyond_the_limit_are_written_once_their_tasks_are_done(small):
    a, b, c = small.tasks
    assert small.hear(in_memory(["b", "a"])) == ([], [])
    _, (action,) = small.hear(in_memory(["c"]))
    assert action == SpillRecipes([b, a])
    small.handle(RecipesSpilled([b"in a file", b"in a file, too"]))
    found = rows(restart(small))
    assert found["a"][1] == b"in a file, too"
    assert found["b"][1] == b"in a file"
    assert found["c"][1] == c.args


def test_a_call_that_could_not_be_kept_is_counted_and_its_key_wanted(small):
    small.hear(in_memory(["a", "b", "c"]))
    _, (warning,) = small.handle(RecipesSpilled(None, "no space left"))
    assert "could not be written to a file (no space left)" in warning.text
    assert small.core.recipes.n_dropped == 2
    messages = restart(small)
    assert messages[0] == WantKeys(keys=["a", "b"])
    assert [*rows(messages)] == ["c"]


def test_released_calls_make_room(small):
    small.hear(in_memory(["a", "b"]))
    small.do(small.tasks[0].state)
    del small.tasks[0]
    assert small.hear(in_memory(["c"])) == ([], [])


# --- What the user reads --------------------------------------------------------------------------


def test_a_short_outage_is_not_reported(bench):
    bench.do(bench.task("a"))
    bench.sent(Disconnected())
    messages, actions = bench.handle_connected(epoch=2, reported_outage_s=0.0)
    assert [*rows(messages)] == ["a"]
    assert actions == []


def test_the_return_of_the_same_scheduler_is_reported(bench):
    bench.do(bench.task("a"))
    bench.sent(Disconnected())
    messages, (warning,) = bench.handle_connected(epoch=1, reported_outage_s=7.4)
    assert messages == [WantKeys(keys=["a"])]
    assert warning == Warn("the scheduler is back after 7 s; 1 future pending")


def test_a_new_scheduler_is_reported_with_what_it_found(bench):
    bench.do(bench.task("a"), bench.task("b"))
    bench.hear(ready(["a"]))
    bench.sent(Disconnected())
    messages, actions = bench.handle_connected(epoch=2, reported_outage_s=12.0)
    assert [*rows(messages)] == ["b"]
    assert actions == []
    bench.hear(Recovering(reason="it waits"))
    for _ in range(2 * PATIENCE_TICKS):
        bench.sent(ClientTick())
    counts = {"n_workers": 2, "n_clients": 3, "n_tasks": 9, "n_kept": 5, "n_adopted": 1}
    (warning,) = bench.acted_on(Recovered(n_lost=0, **counts))
    assert warning.text == (
        "the scheduler is back after 12 s, and has been started again: 1 result kept here, 1 task "
        "submitted again; 2 workers and 2 other clients joined it, and workers had kept 5 results "
        "and 1 unfinished task"
    )


def test_a_new_scheduler_that_waits_for_nobody_is_reported_soon(bench):
    bench.do(bench.task("a"))
    bench.sent(Disconnected())
    bench.handle_connected(epoch=2, reported_outage_s=12.0)
    for _ in range(PATIENCE_TICKS):
        bench.sent(ClientTick())
    (warning,) = bench.acted(ClientTick())
    assert warning.text.endswith("0 results kept here, 1 task submitted again")
