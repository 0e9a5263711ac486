"""The client's core: events in, out-boxes out."""

from __future__ import annotations

from weft.client.core.events import (
    Cancel,
    ClientClosing,
    ClientTick,
    Disconnected,
    EndSession,
    ForgetWatcher,
    GaveUp,
    Notify,
    Operations,
    SendInOrder,
    Unwatch,
    Want,
    Warn,
    Watch,
)
from weft.client.core.features.questions import AskScheduler, ShutDown
from weft.client.core.tasks import FunctionRecord
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
    KeysPending,
    KeysUnknown,
    KeysUnrunnable,
    ReleaseKeys,
    ShutdownCluster,
    SubmitTasks,
    Unsupported,
    WantKeys,
    WantOutput,
)

from .core_kit import Bench, Listener, erred, in_memory, ready

F = FunctionRecord(b"f" * 16, b"<f>", "f")


# --- Results and watchers -------------------------------------------------------------------------


def test_a_watcher_is_notified_once_for_each_batch(bench):
    columns = bench.columns(["a", "b", "c"])
    watcher = Listener(wants_data=False)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    a, b, c = bench.made[columns]
    actions = bench.acted_on(ready(["a"]), ready(["b"]))
    assert actions == [Notify(watcher, [a, b])]
    actions = bench.acted_on(erred("c"))
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
    actions = bench.acted_on(ready(["a"]))
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
    assert bench.handle(Operations([state])) == (
        [ReleaseKeys(keys=["a"])],
        [Notify(watcher, [state])],
    )
    assert state.status == "cancelled"
    late = Listener(wants_data=True)
    actions = bench.acted(Operations([Watch(late, [state])]))
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
    actions = bench.acted_on(KeysUnrunnable(keys=["a"], reason="no GPU"))
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
    actions = bench.acted_on(answer)
    assert actions == [Notify(watcher, [answer])]
    assert bench.hear(answer) == ([], [])  # no question is open any more


def test_a_failed_question_goes_to_the_watcher_that_asked(bench):
    watcher = Listener(wants_data=False)
    (message,) = bench.do(AskScheduler(watcher, "a question", {}))
    failed = AskFailed(request=message.request, kind="unknown-question", text="what?")
    actions = bench.acted_on(failed)
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
    actions = bench.acted(GaveUp("gone"))
    assert Notify(watcher, [None]) in actions


def test_a_shutdown_is_answered_by_the_end_of_the_connection_or_a_denial(bench):
    one, other, late = (Listener(wants_data=False) for _ in range(3))
    first, _ = bench.do(ShutDown(one, "over"), ShutDown(other, "over"))
    assert isinstance(first, ShutdownCluster)
    assert first.reason == "over"
    denied = Denied(request=first.request, needed="admin", level="client")
    actions = bench.acted_on(denied)
    assert actions == [Notify(one, [denied])]
    assert bench.hear(denied) == ([], [])
    messages, actions = bench.handle(Disconnected())
    assert (messages, actions) == ([], [Notify(other, [None])])
    # One that could not be sent is sent in the next session.
    assert bench.do(ShutDown(late, "over")) == []
    (again,) = bench.connect()
    assert again.reason == "over"
    actions = bench.acted(GaveUp("gone"))
    assert actions == [Notify(late, [None])]


def test_a_question_that_the_scheduler_does_not_know_ends_with_unsupported(bench):
    watcher = Listener(wants_data=False)
    (message,) = bench.do(AskScheduler(watcher, "a question", {}))
    answer = Unsupported(unknown_code=Ask.code, request=message.request)
    actions = bench.acted_on(answer)
    assert actions == [Notify(watcher, [answer])]
    assert bench.hear(answer) == ([], [])


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
    keys = [key for m in messages.of(SubmitTasks) for key in m.keys]
    assert keys == [f"k{i}" for i in range(n)]
    released = [key for m in messages.of(ReleaseKeys) for key in m.keys]
    assert {*released} == {*keys[:-1]}


def test_a_release_while_there_is_no_connection_is_sent_later(bench):
    task = bench.task("a")
    bench.do(task)
    bench.sent(Disconnected())
    assert bench.do(task.state) == []
    release, check = bench.connect()
    assert release == ReleaseKeys(keys=["a"])
    assert isinstance(check, FetchKeys)


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
    release, check = bench.connect()
    assert release == ReleaseKeys(keys=["b"])
    assert isinstance(check, FetchKeys)


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
    actions = bench.acted(GaveUp("the scheduler is gone"))
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
    actions = bench.acted(ClientClosing())
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
