"""Defects that the simulator found in the client's core, most of them after lost connections."""

from __future__ import annotations

from weft.client.core.events import (
    Cancel,
    ClientTick,
    Disconnected,
    Operations,
    ResultsFetched,
    Want,
    Watch,
)
from weft.protocol.wire.messages import (
    FetchKeys,
    KeysData,
    KeysErred,
    KeysPending,
    KeysUnknown,
    ReleaseKeys,
    ReleaseOthers,
    SubmitTasks,
    WantKeys,
)

from .core_kit import Bench, Listener, barrier_of, erred, in_memory, ready


def submitted(messages):
    return [key for x in messages.of(SubmitTasks) for key in x.keys]


def released(messages):
    return [key for x in messages.of(ReleaseKeys) for key in x.keys]


def want(bench, key):
    state = bench.table.find_or_make(key)
    return Want([state])


def test_a_held_task_follows_the_later_submission_of_its_input():
    """The input was released and submitted again, all before there was a connection."""
    bench = Bench()
    first = bench.task("a")
    bench.do(first, bench.task("b", "a"))
    bench.do(first.state)
    bench.do(bench.task("a"))
    assert submitted(bench.connect()) == ["a", "b"]


def test_an_input_that_was_watched_and_released_is_still_submitted():
    bench = Bench()
    a = bench.task("a")
    bench.do(a, bench.task("b", "a"))
    bench.handle(Operations([Watch(Listener(wants_data=True), [a.state]), a.state]))
    messages = bench.connect()
    assert submitted(messages) == ["a", "b"]
    assert messages.of(ReleaseKeys) == [ReleaseKeys(keys=["a"])]


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


def test_dependents_of_a_task_that_was_cancelled_unsent_are_cancelled_too():
    bench = Bench()
    a, b, c = bench.task("a"), bench.task("b", "a"), bench.task("c", "b")
    bench.do(a, b, c)
    bench.do(b.state)  # reaches c through a state without futures
    bench.do(Cancel([a.state]))
    assert bench.connect() == [ReleaseKeys(keys=["c"])]
    assert (c.state.status, c.state.failure[1]) == ("cancelled", "a")


def test_an_input_is_not_released_before_the_held_task_that_reads_it_is_submitted(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.sent(Disconnected())
    bench.do(bench.task("b", "a"), a.state)
    messages = bench.connect()
    assert submitted(messages) == ["b"]
    assert messages[-1] == ReleaseKeys(keys=["a"])


def test_a_release_that_may_not_have_been_read_does_not_hit_the_same_task_submitted_again(bench):
    a = bench.task("a")
    bench.do(a)
    bench.do(a.state)
    barrier, _ = bench.do(bench.task("a"))
    bench.hear(KeysData(request=barrier.request, keys=[], results=[], missing=[]), ready(["a"]))
    bench.sent(Disconnected())
    assert bench.connect() == [WantKeys(keys=["a"])]


def test_a_key_wanted_after_its_cancel_gets_the_answer(bench):
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
    bench.handle(ResultsFetched(fetch.request, ["a"], [b"late"]))
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
    """It was wanted, then submitted, its input cancelled; then the first answer arrives."""
    bench.do(want(bench, "b"), want(bench, "a"))
    b = bench.task("b", "a")
    bench.do(b)
    bench.do(Cancel([bench.state("a")]))
    messages, _ = bench.hear(KeysUnknown(keys=["b"]))
    assert messages == [ReleaseKeys(keys=["b"])]
    assert b.state.status == "cancelled"
    bench.sent(ClientTick())


def test_nothing_is_released_before_it_is_known_what_has_to_be_submitted_again(bench):
    """The input's result came and its record is gone: only the scheduler can compute it again."""
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.do(bench.task("b", "a"))
    bench.do(a.state)  # neither of the two is heard
    bench.sent(Disconnected())
    assert bench.connect() == [WantKeys(keys=["b"])]
    messages, _ = bench.hear(KeysUnknown(keys=["b"]))
    assert submitted(messages) == ["b"]
    assert messages[-1] == ReleaseKeys(keys=["a"])


def test_an_input_that_is_released_while_answers_are_missing_stays_until_it_is_read(bench):
    a = bench.task("a")
    bench.do(a)
    bench.hear(ready(["a"]))
    bench.do(bench.task("b", "a"))
    bench.sent(Disconnected())
    assert bench.connect() == [WantKeys(keys=["a", "b"])]
    assert bench.do(a.state) == []
    messages, _ = bench.hear(KeysUnknown(keys=["b"]))
    assert submitted(messages) == ["b"]
    assert messages[-1] == ReleaseKeys(keys=["a"])


def test_a_task_that_was_released_and_submitted_again_keeps_its_inputs_at_the_scheduler(bench):
    """If it was released and submitted again, it would be another task, whose input is gone."""
    a, b = bench.task("a"), bench.task("b", "a", named=b"h" * 16)
    bench.do(a, b)
    bench.hear(ready(["a"]))
    bench.do(b.state)
    bench.do(bench.task("b", "a", named=b"h" * 16))
    bench.do(a.state)
    bench.sent(Disconnected())
    messages = bench.connect()
    assert messages[0] == ReleaseOthers(keys=["b"], spec_hashes=[b"h" * 16])
    assert barrier_of(messages)
    assert submitted(messages) == ["b"]
    assert released(messages) == ["a"]
    assert messages[-1] == ReleaseKeys(keys=["a"])


def test_the_old_task_of_a_name_is_released_before_the_name_is_used_again(bench):
    old, reader = bench.task("k", named=b"1" * 16), bench.task("reader", "k")
    bench.do(old, reader)
    bench.do(old.state, reader.state)
    bench.sent(Disconnected())
    bench.do(bench.task("k", named=b"2" * 16))
    release, others, barrier, submit = bench.connect()
    assert release == ReleaseKeys(keys=["reader"])
    assert others == ReleaseOthers(keys=["k"], spec_hashes=[b"2" * 16])
    assert isinstance(barrier, FetchKeys)
    assert submit.keys == ["k"]


def test_a_result_of_the_last_session_is_not_taken_for_that_of_a_new_task_of_its_name(bench):
    """It comes in the new session, before the scheduler has read the release of the old task."""
    old = bench.task("k", named=b"1" * 16)
    bench.do(old)
    bench.do(old.state)
    bench.do(bench.task("k", named=b"2" * 16))
    bench.sent(Disconnected())
    others, barrier, submit = bench.connect()
    assert others == ReleaseOthers(keys=["k"], spec_hashes=[b"2" * 16])
    assert submit.keys == ["k"]
    bench.hear(ready(["k"], b"old "))
    assert bench.state("k").status == "pending"
    bench.hear(KeysData(request=barrier.request, keys=[], results=[], missing=[]))
    bench.hear(ready(["k"], b"new "))
    assert bench.state("k").blob == b"new k"


def test_a_failed_task_that_was_submitted_again_does_not_get_its_old_failure(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a"))
    bench.do(bench.task("a"))
    bench.sent(Disconnected())
    messages = bench.connect()
    assert submitted(messages) == ["a"]
    assert barrier_of(messages)
    bench.hear(erred("a"))
    assert bench.state("a").status == "pending"


def test_a_release_that_follows_a_submission_is_sent_again_too(bench):
    """A task submitted only for its dependent: the next loss may come between the two messages."""
    a, b = bench.task("a"), bench.task("b", "a")
    bench.do(a, b)
    bench.do(a.state)
    (check,) = bench.sent(ClientTick())
    bench.hear(KeysData(request=check.request, keys=[], results=[], missing=[]))
    bench.sent(Disconnected())
    bench.connect()
    messages, _ = bench.hear(KeysUnknown(keys=["b"]))
    assert submitted(messages) == ["a", "b"]
    assert messages[-1] == ReleaseKeys(keys=["a"])
    bench.sent(Disconnected())
    bench.connect()
    (release, check), _ = bench.hear(KeysPending(keys=["b"]))
    assert release == ReleaseKeys(keys=["a"])
    assert isinstance(check, FetchKeys)


def test_a_late_failure_is_not_taken_for_that_of_the_same_task_submitted_again(bench):
    """Its input was unknown then, and is submitted by now."""
    first = bench.task("b", "a")
    bench.do(first)
    bench.do(first.state)
    messages = bench.do(bench.task("a"), bench.task("b", "a"))
    assert submitted(messages) == ["a", "b"]
    assert barrier_of(messages)
    bench.hear(KeysErred(keys=["b"], failure_of=[0], failures=[["data-lost", "a", "unknown"]]))
    assert bench.state("b").status == "pending"


def test_one_barrier_serves_all_tasks_that_are_submitted_again(bench):
    columns = bench.columns([f"k{i}" for i in range(10)])
    bench.do(columns)
    bench.do(*bench.made[columns])
    messages = bench.do(*[bench.task(f"k{i}") for i in range(10)])
    assert [type(message) for message in messages] == [FetchKeys, SubmitTasks]
    # ... but not keys that are released after it.
    bench.do(bench.state("k3"))
    messages = bench.do(bench.task("k3"))
    assert [type(message) for message in messages] == [FetchKeys, SubmitTasks]
    first = messages[0].request - 1
    bench.hear(KeysData(request=first, keys=[], results=[], missing=[]))
    bench.hear(ready(["k3", "k4"]))
    assert (bench.state("k3").status, bench.state("k4").status) == ("pending", "finished")


def test_a_name_is_asked_for_with_the_hash_of_its_task(bench):
    """Another client may have used the name in the meantime, at a new scheduler."""
    bench.do(bench.task("mine", named=b"h" * 16), bench.task("other"))
    bench.sent(Disconnected())
    (want,) = bench.connect()
    assert want == WantKeys(keys=["mine", "other"], spec_hashes=[b"h" * 16, bytes(16)])
    messages, _ = bench.hear(KeysUnknown(keys=["mine"]), KeysPending(keys=["other"]))
    assert submitted(messages) == ["mine"]  # and is refused, if it is another one
