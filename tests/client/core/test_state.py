"""The client's core: events in, out-boxes out."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import patch

import pytest

from weft.client.core import fetching
from weft.client.core.events import (
    AnswersReceived,
    AskScheduler,
    Cancel,
    ClientClosing,
    ClientTick,
    Connected,
    Disconnected,
    EndSession,
    FetchFrom,
    ForgetWatcher,
    GaveUp,
    Notify,
    Operations,
    ResultsFetched,
    ResultsNotFetched,
    SendInOrder,
    ShutDown,
    Unwatch,
    Want,
    Warn,
    Watch,
)
from weft.client.core.fetching import FAST_ROUNDS, MAX_ROUNDS
from weft.client.core.state import ClientState
from weft.client.core.submitting import MAX_OPTIONS, MAX_TASKS
from weft.client.core.table import FutureTable
from weft.client.core.tasks import FunctionRecord, FutureState, TaskColumns, TaskRecord, Watcher
from weft.client.core.validate import validate
from weft.protocol.wire.messages import (
    Answer,
    Ask,
    AskFailed,
    CancelKeys,
    ClusterStopped,
    Denied,
    FetchKeys,
    KeysCancelled,
    KeysData,
    KeysErred,
    KeysInMemory,
    KeysPending,
    KeysUnknown,
    KeysUnrunnable,
    ReleaseKeys,
    ReportMissing,
    ResultsReady,
    ShutdownCluster,
    SubmitTasks,
    Unsupported,
    WantKeys,
    WantOutput,
)
from weft.protocol.wire.options import NO_OPTIONS, TaskOptions

F = FunctionRecord(b"f" * 16, b"<f>", "f")


class Bench:
    """A core, and a user in front of it."""

    def __init__(self) -> None:
        self.table = FutureTable(nullcontext())
        self.core = ClientState(self.table)
        self.function = FunctionRecord(b"f" * 16, b"<f>", "f")
        self.now = 0.0
        #: {columns: the states that they had before the core took them}
        self.made = {}

    def handle(self, event):
        self.now += 1
        self.core.handle(event, self.now)
        validate(self.core)
        core = self.core
        messages, actions = core.to_scheduler, [*core.before, *core.after]
        core.before, core.to_scheduler, core.after = [], [], []
        return messages, actions

    def sent(self, event):
        """Handle an event that leads to messages only."""
        messages, actions = self.handle(event)
        assert not actions
        return messages

    def connect(self, epoch=0):
        return self.sent(Connected(epoch))

    def handle_connected(self, **facts):
        return self.handle(Connected(**facts))

    def do(self, *operations):
        return self.sent(Operations(list(operations)))

    def task(self, key, *dependencies, options=NO_OPTIONS, function=None, named=None):
        (state,), replaced = self.table.attach([key], [named] if named else None)
        args = b"<args of %s>" % key.encode()
        return TaskRecord(
            state,
            function or self.function,
            args,
            list(dependencies),
            options,
            named,
            replaced[0] if replaced else None,
        )

    def columns(self, keys, dependencies=()):
        states = [FutureState(key) for key in keys]
        self.table.add(states)
        args = [b"<args of %s>" % key.encode() for key in keys]
        columns = TaskColumns(states, self.function, args, list(dependencies), NO_OPTIONS)
        self.made[columns] = states
        return columns

    def hear(self, *messages):
        return self.handle(AnswersReceived(list(messages)))

    def state(self, key):
        return self.table.states[key]


@pytest.fixture
def bench():
    bench = Bench()
    assert bench.connect() == []
    yield bench
    validate(bench.core)


class Listener(Watcher):
    pass


def ready(keys, prefix=b"result of "):
    return ResultsReady(keys=keys, results=[prefix + key.encode() for key in keys])


def in_memory(keys, nbytes=100, holder="tcp://w:1"):
    return KeysInMemory(
        keys=keys, nbytes=[nbytes] * len(keys), holder_of=[0] * len(keys), holders=[holder]
    )


def erred(key, root=None, kind="exception"):
    failure = [kind, root or key, b"", "T", "t", "", b""]
    return KeysErred(keys=[key], failure_of=[0], failures=[failure])


# --- Submitting -----------------------------------------------------------------------------------


def test_a_run_of_submissions_is_one_message_and_carries_its_function_once(bench):
    (message,) = bench.do(*[bench.task(f"k{i}") for i in range(100)])
    assert message.keys == [f"k{i}" for i in range(100)]
    assert message.functions == [b"f" * 16]
    assert message.function_blobs == [b"<f>"]
    assert message.function_of == [0] * 100
    assert message.dependencies == []
    assert message.spec_hashes == []


def test_rows_of_different_options_share_a_message(bench):
    equal = [TaskOptions(priority=3), TaskOptions(priority=3)]
    (message,) = bench.do(
        bench.task("a", options=equal[0]),
        bench.task("b", options=equal[1]),
        bench.task("c"),
        bench.task("d", options=TaskOptions(workers=["w"], retries=2)),
        bench.task("e", options=equal[1]),
        bench.task("f", options=equal[0]),
    )
    assert message.keys == ["a", "b", "c", "d", "e", "f"]
    assert message.options == [{"priority": 3}, {}, {"workers": ["w"], "retries": 2}]
    assert message.option_of == [0, 0, 1, 2, 0, 0]
    assert (message.functions, message.function_blobs) == ([b"f" * 16], [b"<f>"])


def test_a_message_of_one_option_does_not_list_it_for_each_row(bench):
    options = TaskOptions(priority=3)
    (message,) = bench.do(
        bench.task("a", options=options), bench.task("b", options=TaskOptions(priority=3))
    )
    assert (message.options, message.option_of) == ([{"priority": 3}], [])
    (message,) = bench.do(bench.task("c"), bench.task("d"))
    assert (message.options, message.option_of) == ([{}], [])


def test_a_message_has_a_limited_number_of_options(bench):
    messages = bench.do(
        *(bench.task(f"t{i}", options=TaskOptions(retries=i)) for i in range(MAX_OPTIONS + 1))
    )
    assert [len(message.options) for message in messages] == [MAX_OPTIONS, 1]
    assert messages[0].option_of == list(range(MAX_OPTIONS))
    assert messages[1].option_of == []


def test_rows_with_ranks_and_rows_without_do_not_share_a_message(bench):
    tasks = [bench.task(key) for key in "abcde"]
    tasks[1].rank, tasks[2].rank = 7, 0
    messages = bench.do(*tasks)
    assert [m.keys for m in messages] == [["a"], ["b", "c"], ["d", "e"]]
    assert [m.ranks for m in messages] == [[], [7, 0], []]


def test_functions_of_one_message_are_numbered(bench):
    other = FunctionRecord(b"g" * 16, b"<g>", "g")
    (message,) = bench.do(
        bench.task("a"), bench.task("b", function=other), bench.task("c"), bench.task("d")
    )
    assert message.functions == [b"f" * 16, b"g" * 16]
    assert message.function_of == [0, 1, 0, 0]


def test_messages_are_cut_by_number_and_by_size(bench):
    messages = bench.do(*[bench.task(f"k{i}") for i in range(MAX_TASKS + 5)])
    assert [len(m.keys) for m in messages] == [MAX_TASKS, 5]
    tasks = [bench.task(f"large-{i}") for i in range(4)]
    for task in tasks:
        task.args = bytes(600_000)
    assert [len(m.keys) for m in bench.do(*tasks)] == [2, 2]


def test_dependencies_and_hashes_fill_the_rows_before_them(bench):
    (message,) = bench.do(
        bench.task("a"),
        bench.task("b", "a"),
        bench.task("c"),
        bench.task("mine", named=b"h" * 16),
        bench.task("d"),
    )
    assert message.dependencies == [[], ["a"], [], [], []]
    assert message.spec_hashes == [bytes(16), bytes(16), bytes(16), b"h" * 16, bytes(16)]


def test_columns_go_out_as_they_are(bench):
    columns = bench.columns(["a", "b"])
    (message,) = bench.do(columns)
    assert message.keys == ["a", "b"]
    assert message.args is columns.args
    assert message.function_blobs == [b"<f>"]
    (message,) = bench.do(bench.columns(["c"]))
    assert message.function_blobs == [None]


def test_a_function_is_sent_again_after_its_last_key_was_released(bench):
    task = bench.task("a")
    bench.do(task)
    assert bench.do(task.state) == [ReleaseKeys(keys=["a"])]
    (message,) = bench.do(bench.task("b"))
    assert message.function_blobs == [b"<f>"]


def test_a_failed_task_does_not_count_for_its_function(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a"))
    (message,) = bench.do(bench.task("b"))
    assert message.function_blobs == [b"<f>"]


def test_releases_leave_after_the_submissions_of_the_same_turn(bench):
    a = bench.task("a")
    b = bench.task("b", "a")
    c = bench.task("c", "b")
    submit, release = bench.do(a, b, a.state, c, b.state)
    assert submit.keys == ["a", "b", "c"]
    assert release == ReleaseKeys(keys=["a", "b"])


def test_a_shared_key_is_submitted_once_and_released_with_its_last_future(bench):
    first, second = bench.task("a"), bench.task("a")
    assert first.state is second.state
    (message,) = bench.do(first, second)
    assert message.keys == ["a"]
    assert bench.do(first.state) == []
    assert bench.do(second.state) == [ReleaseKeys(keys=["a"])]
    assert bench.table.states == {}


def test_a_future_attached_while_a_release_is_queued_keeps_the_key(bench):
    first = bench.task("a")
    bench.do(first)
    queue = [first.state]  # released, not handled yet
    second = bench.task("a")
    assert second.state is first.state
    assert bench.do(*queue, second) == []
    assert bench.state("a").n_references == 1


def test_a_key_that_was_released_and_submitted_again_is_a_new_state(bench):
    first = bench.task("a")
    state = first.state
    bench.do(first)
    bench.do(state)
    second = bench.task("a")
    assert second.state is not state
    _barrier, message = bench.do(second)
    assert message.keys == ["a"]


def test_a_failed_task_is_submitted_again_and_not_shared(bench):
    first = bench.task("a")
    bench.do(first)
    bench.hear(erred("a"))
    second = bench.task("a")
    assert second.state is not first.state
    release, barrier, submit = bench.do(second)
    assert release == ReleaseKeys(keys=["a"])
    assert submit.keys == ["a"]
    assert submit.function_blobs == [b"<f>"]
    bench.hear(KeysData(request=barrier.request, keys=[], results=[], missing=[]), ready(["a"]))
    assert (first.state.status, second.state.status) == ("error", "finished")
    # The key is the new one's now.
    assert bench.do(first.state) == []
    assert bench.do(second.state) == [ReleaseKeys(keys=["a"])]


def test_a_dependent_of_a_failed_task_is_sent_because_it_may_be_retried(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a", root="root"))
    (sent,) = bench.do(bench.task("b", "a"))
    assert (sent.keys, sent.dependencies) == (["b"], [["a"]])
    assert bench.state("b").status == "pending"


def test_a_dependent_of_a_task_that_cannot_be_retried_fails_without_being_sent(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a", root="root", kind="not-permitted"))
    assert bench.do(bench.task("b", "a"), bench.columns(["c"], [["b"]])) == []
    assert bench.state("c").status == "error"
    assert bench.state("c").failure[1] == "root"
    assert bench.do(bench.state("c")) == []


def test_a_key_of_another_task_is_refused(bench):
    bench.do(bench.task("mine", named=b"h" * 16))
    with pytest.raises(ValueError, match="another function"):
        bench.table.attach(["mine"], [b"i" * 16])
    assert bench.state("mine").n_references == 1


def test_the_same_key_twice_in_one_map_is_one_task(bench):
    states, _ = bench.table.attach(["a", "b", "a"])
    columns = TaskColumns(states, bench.function, [b"1", b"2", b"1"], [], NO_OPTIONS)
    (message,) = bench.do(columns)
    assert message.keys == ["a", "b"]
    assert bench.state("a").n_references == 2


# --- Results and watchers -------------------------------------------------------------------------


def test_a_watcher_is_notified_once_for_each_batch(bench):
    columns = bench.columns(["a", "b", "c"])
    watcher = Listener(wants_data=False)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    a, b, c = bench.made[columns]
    _, actions = bench.hear(ready(["a"]), ready(["b"]))
    assert actions == [Notify(watcher, [a, b])]
    _, actions = bench.hear(erred("c"))
    assert actions == [Notify(watcher, [c])]
    assert c.watchers is None


def test_a_watcher_of_a_done_state_is_notified_at_once(bench):
    bench.do(bench.task("a"))
    bench.hear(ready(["a"]))
    watcher = Listener(wants_data=True)
    messages, actions = bench.handle(Operations([Watch(watcher, [bench.state("a")])]))
    assert (messages, actions) == ([], [Notify(watcher, [bench.state("a")])])


def test_several_watchers_of_one_state_are_notified_except_one_that_left(bench):
    bench.do(bench.task("a"))
    state = bench.state("a")
    one, two, three = (Listener(wants_data=False) for _ in range(3))
    bench.do(Watch(one, [state]), Watch(two, [state]), Watch(three, [state]), Unwatch(two, [state]))
    _, actions = bench.hear(ready(["a"]))
    assert actions == [Notify(one, [state]), Notify(three, [state])]


def test_messages_about_released_keys_are_ignored(bench):
    task = bench.task("a")
    bench.do(task)
    bench.do(task.state)
    assert bench.hear(ready(["a"]), erred("a"), in_memory(["a"]), KeysPending(keys=["a"])) == (
        [],
        [],
    )


def test_a_late_result_is_not_taken_for_that_of_a_new_task_of_the_same_name(bench):
    first = bench.task("mine", named=b"1" * 16)
    bench.do(first)
    bench.do(first.state)
    barrier, submit = bench.do(bench.task("mine", named=b"2" * 16))
    assert isinstance(barrier, FetchKeys)
    assert barrier.keys == []
    assert submit.keys == ["mine"]
    bench.hear(ready(["mine"], b"old "))
    assert bench.state("mine").status == "pending"
    bench.hear(KeysData(request=barrier.request, keys=[], results=[], missing=[]))
    bench.hear(ready(["mine"], b"new "))
    assert bench.state("mine").blob == b"new mine"


def test_releasing_a_watched_future_ends_the_wait(bench):
    task = bench.task("a")
    watcher = Listener(wants_data=True)
    state = task.state
    bench.do(task, Watch(watcher, [state]))
    _, actions = bench.handle(Operations([state]))
    assert actions == [Notify(watcher, [state])]
    assert state.status == "cancelled"
    late = Listener(wants_data=True)
    _, actions = bench.handle(Operations([Watch(late, [state])]))
    assert actions == [Notify(late, [state])]


def test_cancelling_is_seen_at_once_and_leaves_finished_ones_alone(bench):
    columns = bench.columns(["a", "b"])
    bench.do(columns)
    bench.hear(ready(["a"]))
    assert bench.do(Cancel(bench.made[columns], False, "why")) == [
        CancelKeys(keys=["b"], force=False, reason="why")
    ]
    assert [s.status for s in bench.made[columns]] == ["finished", "cancelled"]
    assert bench.made[columns][1].failure == ["cancelled", "b", "why"]
    assert bench.do(bench.made[columns][1]) == []


def test_the_answer_to_a_cancel_does_not_hit_the_task_that_comes_next(bench):
    first = bench.task("a")
    bench.do(first)
    bench.do(Cancel([first.state]))
    barrier, submit = bench.do(bench.task("a"))
    assert isinstance(barrier, FetchKeys)
    assert isinstance(submit, SubmitTasks)
    bench.hear(KeysCancelled(keys=["a"], reason=""))
    assert bench.state("a").status == "pending"


def test_a_task_that_another_client_cancels_is_cancelled_here(bench):
    bench.do(bench.task("a"))
    bench.hear(KeysCancelled(keys=["a"], reason="why"))
    assert bench.state("a").failure == ["cancelled", "a", "why"]
    assert bench.do(bench.state("a")) == [ReleaseKeys(keys=["a"])]


def test_a_cluster_that_is_stopped_ends_the_session(bench):
    bench.do(bench.task("a"))
    assert bench.hear(ClusterStopped(reason="why")) == ([], [EndSession("why")])


def test_a_task_that_no_worker_can_run_causes_one_warning(bench):
    bench.do(bench.task("a"), bench.task("b"))
    _, actions = bench.hear(KeysUnrunnable(keys=["a"], reason="no GPU"))
    assert actions == [Warn("task 'a' waits for a worker that can run it: no GPU")]
    assert bench.hear(KeysUnrunnable(keys=["b"], reason="no GPU")) == ([], [])


def test_keys_of_other_clients_are_requested(bench):
    state = bench.table.find_or_make("theirs")
    assert bench.do(Want([state])) == [WantKeys(keys=["theirs"])]
    bench.hear(KeysUnknown(keys=["theirs"]))
    assert state.status == "lost"
    assert state.failure[0] == "data-lost"


def test_a_wanted_key_can_be_submitted_nevertheless(bench):
    state = bench.table.find_or_make("a")
    task = bench.task("a")
    want, submit = bench.do(Want([state]), task)
    assert want == WantKeys(keys=["a"])
    assert submit.keys == ["a"]


def test_an_answer_goes_to_the_watcher_that_asked(bench):
    watcher = Listener(wants_data=False)
    (message,) = bench.do(AskScheduler(watcher, "a question", {"keys": ["a"]}, "7"))
    assert message == Ask(request=1, name="a question", arguments={"keys": ["a"]}, page="7")
    answer = Answer(request=message.request, info={"a": 1}, next_page="8")
    _, actions = bench.hear(answer)
    assert actions == [Notify(watcher, [answer])]
    assert bench.hear(answer) == ([], [])  # no question is open any more


def test_a_failed_question_goes_to_the_watcher_that_asked(bench):
    watcher = Listener(wants_data=False)
    (message,) = bench.do(AskScheduler(watcher, "a question", {}))
    failed = AskFailed(request=message.request, kind="unknown-question", text="what?")
    _, actions = bench.hear(failed)
    assert actions == [Notify(watcher, [failed])]


def test_a_question_is_asked_again_after_a_lost_connection(bench):
    watcher = Listener(wants_data=False)
    (message,) = bench.do(AskScheduler(watcher, "a question", {}, "7"))
    bench.handle(Disconnected())
    assert bench.connect() == [message]
    bench.handle(Disconnected())
    bench.do(ForgetWatcher(watcher))
    assert bench.connect() == []


def test_a_question_without_connection_is_asked_when_there_is_one(bench):
    bench.handle(Disconnected())
    watcher = Listener(wants_data=False)
    assert bench.do(AskScheduler(watcher, "a question", {})) == []
    assert bench.connect() == [Ask(request=1, name="a question")]
    _, actions = bench.handle(GaveUp("gone"))
    assert Notify(watcher, [None]) in actions


def test_a_shutdown_is_answered_by_the_end_of_the_connection_or_a_denial(bench):
    one, other, late = (Listener(wants_data=False) for _ in range(3))
    first, _ = bench.do(ShutDown(one, "over"), ShutDown(other, "over"))
    assert isinstance(first, ShutdownCluster)
    assert first.reason == "over"
    denied = Denied(request=first.request, needed="admin", level="client")
    _, actions = bench.hear(denied)
    assert actions == [Notify(one, [denied])]
    assert bench.hear(denied) == ([], [])
    messages, actions = bench.handle(Disconnected())
    assert (messages, actions) == ([], [Notify(other, [None])])
    # One that could not be sent is sent in the next session.
    assert bench.do(ShutDown(late, "over")) == []
    (again,) = bench.connect()
    assert again.reason == "over"
    _, actions = bench.handle(GaveUp("gone"))
    assert actions == [Notify(late, [None])]


def test_a_question_that_the_scheduler_does_not_know_ends_with_unsupported(bench):
    watcher = Listener(wants_data=False)
    (message,) = bench.do(AskScheduler(watcher, "a question", {}))
    answer = Unsupported(unknown_code=Ask.code, request=message.request)
    _, actions = bench.hear(answer)
    assert actions == [Notify(watcher, [answer])]
    assert bench.hear(answer) == ([], [])


# --- Large results --------------------------------------------------------------------------------


@pytest.fixture
def large(bench):
    """Three large results, wanted."""
    columns = bench.columns(["a", "b", "c"])
    bench.watcher = Listener(wants_data=True)
    bench.do(columns, Watch(bench.watcher, bench.made[columns]))
    _, (bench.fetch,) = bench.hear(in_memory(["a", "b", "c"]))
    bench.states = bench.made[columns]
    return bench


def test_large_results_are_fetched_in_one_request_from_their_holder(large):
    assert large.fetch == FetchFrom("tcp://w:1", large.fetch.request, ["a", "b", "c"])
    assert [s.status for s in large.states] == ["finished"] * 3
    _, actions = large.handle(
        ResultsFetched(large.fetch.request, ["a", "b", "c"], [b"1", b"2", b"3"])
    )
    assert actions == [Notify(large.watcher, large.states)]
    assert large.states[2].blob == b"3"


def test_large_results_are_not_fetched_before_they_are_requested(bench):
    columns = bench.columns(["a"])
    watcher = Listener(wants_data=False)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    assert bench.hear(in_memory(["a"])) == ([], [Notify(watcher, bench.made[columns])])
    data = Listener(wants_data=True)
    _, (fetch,) = bench.handle(Operations([Watch(data, bench.made[columns])]))
    assert isinstance(fetch, FetchFrom)


def test_a_missing_key_is_reported_and_fetched_where_it_is_next(large):
    request = large.fetch.request
    messages, actions = large.handle(ResultsFetched(request, ["a"], [b"1"]))
    assert messages == [ReportMissing(keys=["b", "c"], holder="tcp://w:1")]
    assert actions == [Notify(large.watcher, [large.state("a")])]
    assert large.state("b").status == "pending"
    large.hear(KeysPending(keys=["c"]))
    _, (fetch,) = large.hear(in_memory(["b"], holder="tcp://w:2"))
    assert (fetch.holder, fetch.keys) == ("tcp://w:2", ["b"])


def test_an_unreachable_holder_is_asked_through_the_scheduler(large):
    (message,) = large.sent(ResultsNotFetched(large.fetch.request, "no route"))
    assert isinstance(message, FetchKeys)
    assert message.keys == ["a", "b", "c"]
    _, actions = large.hear(
        KeysData(
            request=message.request, keys=["a", "b", "c"], results=[b"1", b"2", b"3"], missing=[]
        )
    )
    assert actions == [Notify(large.watcher, large.states)]


def test_a_result_that_was_lost_is_fetched_anew_although_the_first_holder_owes_an_answer(large):
    """For example, its holder is suspended: the connection is open and silent for a minute."""
    first = large.fetch.request
    assert large.hear(KeysPending(keys=["a", "b", "c"])) == ([], [])
    assert [s.status for s in large.states] == ["pending"] * 3
    _, (fetch,) = large.hear(in_memory(["a", "b"], holder="tcp://w:2"))
    assert (fetch.holder, fetch.keys) == ("tcp://w:2", ["a", "b"])
    # A late answer of the first holder, or none, has no effect any more.
    assert large.handle(ResultsFetched(first, ["a", "b", "c"], [b"1", b"2", b"3"])) == ([], [])
    assert large.handle(ResultsNotFetched(first, "silent")) == ([], [])
    _, (told,) = large.handle(ResultsFetched(fetch.request, ["a", "b"], [b"1", b"2"]))
    assert told == Notify(large.watcher, large.states[:2])


def test_a_result_whose_first_holder_is_lost_is_fetched_from_the_other_one(large):
    _, (fetch,) = large.hear(in_memory(["b"], holder="tcp://w:2"))
    assert (fetch.holder, fetch.keys) == ("tcp://w:2", ["b"])
    _, (told,) = large.handle(ResultsFetched(large.fetch.request, ["a", "c"], [b"1", b"3"]))
    assert told == Notify(large.watcher, [large.state("a"), large.state("c")])
    # A message that names the holder from which it is being fetched already has no effect.
    assert large.hear(in_memory(["b"], holder="tcp://w:2")) == ([], [])


def test_a_lost_result_waits_in_no_queue_of_its_holder(bench):
    columns = bench.columns(["a", "b", "c", "d"])
    watcher = Listener(wants_data=True)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    with patch.object(fetching, "MAX_BATCH_KEYS", 1):
        _, fetches = bench.hear(in_memory(["a", "b", "c", "d"]))
        assert [fetch.keys for fetch in fetches] == [["a"], ["b"]]
        _, fetches = bench.hear(KeysPending(keys=["a", "c"]))
    assert [fetch.keys for fetch in fetches] == [["d"]]


def test_a_finished_result_that_is_lost_is_pending_until_it_is_there_again(bench):
    columns = bench.columns(["a"])
    (state,) = bench.made[columns]
    bench.do(columns)
    bench.hear(in_memory(["a"]))
    assert state.status == "finished"
    bench.hear(KeysPending(keys=["a"]))
    assert (state.status, state.location) == ("pending", None)
    bench.hear(in_memory(["a"], holder="tcp://w:2"))
    assert (state.status, state.location[0]) == ("finished", "tcp://w:2")


def test_data_that_no_holder_ever_has_is_lost_in_the_end(bench):
    columns = bench.columns(["a"])
    watcher = Listener(wants_data=True)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    for _ in range(MAX_ROUNDS):
        assert bench.made[columns][0].status != "lost"
        _, actions = bench.hear(in_memory(["a"]))
        (fetch,) = actions
        _, actions = bench.handle(ResultsFetched(fetch.request, [], []))
    assert actions == [Notify(watcher, bench.made[columns])]
    assert bench.made[columns][0].status == "lost"


def test_a_holder_out_of_reach_is_asked_about_once_a_tick_after_some_time(large):
    (ask,) = large.sent(ResultsNotFetched(large.fetch.request, "no route"))
    for _ in range(FAST_ROUNDS - 1):
        ((want,), _) = large.hear(
            KeysData(request=ask.request, keys=[], results=[], missing=["a", "b", "c"])
        )
        assert want == WantKeys(keys=["a", "b", "c"])
        ((ask,), _) = large.hear(in_memory(["a", "b", "c"]))
        assert isinstance(ask, FetchKeys)
    assert large.hear(
        KeysData(request=ask.request, keys=[], results=[], missing=["a", "b", "c"])
    ) == ([], [])
    assert large.sent(ClientTick()) == [WantKeys(keys=["a", "b", "c"])]


def test_data_that_is_recomputed_repeatedly_between_two_ticks_is_not_given_up(large):
    """Its holders died one after the other, which does not mean that the data is lost."""
    (ask,) = large.sent(ResultsNotFetched(large.fetch.request, "no route"))
    for _ in range(2 * MAX_ROUNDS):
        messages, _ = large.hear(
            KeysData(request=ask.request, keys=[], results=[], missing=["a", "b", "c"]),
            KeysPending(keys=["a", "b", "c"]),
            in_memory(["a", "b", "c"]),
        )
        ask = messages[-1]
        assert isinstance(ask, FetchKeys)
    assert large.state("a").status == "finished"


def test_bytes_under_way_are_limited(bench):
    keys = [f"k{i}" for i in range(20)]
    columns = bench.columns(keys)
    bench.do(columns, Watch(Listener(wants_data=True), bench.made[columns]))
    _, actions = bench.hear(in_memory(keys, nbytes=30 << 20))
    # Two at a time from one holder.
    assert [a.keys for a in actions] == [["k0"], ["k1"]]
    _, actions = bench.handle(ResultsFetched(actions[0].request, ["k0"], [b"0"]))
    assert [a.keys for a in actions if isinstance(a, FetchFrom)] == [["k2"]]


# --- The connection -------------------------------------------------------------------------------


def test_tasks_submitted_without_a_connection_are_sent_later():
    bench = Bench()
    assert bench.do(bench.task("a"), bench.task("b", "a"), bench.columns(["c"])) == []
    (message,) = bench.connect()
    assert message.keys == ["a", "b", "c"]


def test_after_a_loss_wanted_keys_are_sent_and_only_unknown_ones_submitted_again(bench):
    bench.do(bench.task("known"), bench.task("unknown"), bench.task("done"))
    bench.hear(ready(["done"]))
    assert bench.sent(Disconnected()) == []
    bench.do(bench.task("new", "unknown"))
    assert bench.connect() == [WantKeys(keys=["known", "unknown", "done"])]
    # Nothing before all is answered: "new" may need it.
    assert bench.hear(KeysPending(keys=["known"]), KeysUnknown(keys=["unknown"])) == ([], [])
    messages, _ = bench.hear(ready(["done"], b"other "))
    (message,) = messages
    assert message.keys == ["unknown", "new"]
    assert message.dependencies == [[], ["unknown"]]
    assert message.function_blobs == [b"<f>"]
    assert bench.state("done").blob == b"result of done"


def test_released_dependencies_are_submitted_again_with_their_dependents(bench):
    a, b, c = bench.task("a"), bench.task("b", "a"), bench.task("c", "b")
    bench.do(a, b, c, a.state, b.state)
    bench.sent(Disconnected())
    # It is not known whether the releases were read.
    assert bench.connect() == [WantKeys(keys=["c"])]
    (submit, *releases), _ = bench.hear(KeysUnknown(keys=["c"]))
    assert submit.keys == ["a", "b", "c"]
    assert releases[-1] == ReleaseKeys(keys=["a", "b"])


def test_a_chain_of_any_length_is_submitted_again(bench):
    n = 20_000
    tasks = [bench.task("k0")]
    tasks += [bench.task(f"k{i}", f"k{i - 1}") for i in range(1, n)]
    bench.do(*tasks, *[task.state for task in tasks[:-1]])
    last = tasks[-1].state
    del tasks
    bench.sent(Disconnected())
    bench.connect()
    messages, _ = bench.hear(KeysUnknown(keys=[last.key]))
    keys = [key for m in messages if isinstance(m, SubmitTasks) for key in m.keys]
    assert keys == [f"k{i}" for i in range(n)]


def test_a_release_while_there_is_no_connection_is_sent_later(bench):
    task = bench.task("a")
    bench.do(task)
    bench.sent(Disconnected())
    assert bench.do(task.state) == []
    assert bench.connect()[0] == ReleaseKeys(keys=["a"])


def test_a_release_is_sent_again_unless_the_scheduler_has_read_it(bench):
    a, b = bench.task("a"), bench.task("b")
    bench.do(a, b)
    bench.do(a.state)
    (check,) = bench.sent(ClientTick())
    assert isinstance(check, FetchKeys)
    bench.do(b.state)
    assert bench.sent(ClientTick()) == []
    bench.hear(KeysData(request=check.request, keys=[], results=[], missing=[]))
    bench.sent(Disconnected())
    assert bench.connect()[0] == ReleaseKeys(keys=["b"])


def test_a_scheduler_that_forgets_to_answer_holds_nothing_up_for_ever(bench):
    bench.do(bench.task("a"))
    bench.sent(Disconnected())
    assert bench.connect() == [WantKeys(keys=["a"])]
    messages = []
    for _ in range(100):
        messages += bench.sent(ClientTick())
    assert [m.keys for m in messages] == [["a"]]


def test_giving_up_fails_everything_pending_and_everything_later(bench):
    columns = bench.columns(["a", "b"])
    watcher = Listener(wants_data=True)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    bench.hear(ready(["a"]))
    bench.handle(Disconnected())
    _, actions = bench.handle(GaveUp("the scheduler is gone"))
    assert actions == [Notify(watcher, [bench.made[columns][1]])]
    assert bench.made[columns][1].failure == ["connection-lost", "b", "the scheduler is gone"]
    assert bench.made[columns][0].status == "finished"
    bench.do(bench.task("later"))
    assert bench.state("later").status == "lost"


def test_closing_wakes_all_watchers(bench):
    bench.do(bench.task("a"))
    watcher, asking = Listener(wants_data=True), Listener(wants_data=False)
    asked = AskScheduler(asking, "a question", {})
    bench.handle(Operations([Watch(watcher, [bench.state("a")]), asked]))
    _, actions = bench.handle(ClientClosing())
    assert [a.watcher for a in actions] == [asking, watcher] or [a.watcher for a in actions] == [
        watcher,
        asking,
    ]
    assert bench.state("a").status == "cancelled"


def test_a_wish_that_is_stated_while_keys_are_asked_about_is_not_lost(bench):
    """The first messages of the session, which state the wish before it, are on their way."""
    bench.do(bench.task("a"))
    bench.sent(Disconnected())
    wish = WantOutput(clients=[], level=0, loggers={"x": 10})
    assert bench.do(SendInOrder(wish)) == []
    assert bench.connect() == [WantKeys(keys=["a"])]
    assert bench.do(SendInOrder(wish)) == [wish]
