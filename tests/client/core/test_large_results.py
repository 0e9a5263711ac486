"""The client's core: large results, which are fetched from their holders."""

from __future__ import annotations

from unittest.mock import patch

from weft.client.core import fetching
from weft.client.core.events import (
    ClientTick,
    FetchFrom,
    Notify,
    Operations,
    ResultsFetched,
    ResultsNotFetched,
    Watch,
)
from weft.client.core.fetching import FAST_ROUNDS, MAX_ROUNDS
from weft.protocol.wire.messages import (
    FetchKeys,
    KeysData,
    KeysPending,
    ReportMissing,
    WantKeys,
)

from .core_kit import Listener, in_memory


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
    (fetch,) = bench.acted(Operations([Watch(data, bench.made[columns])]))
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
        fetches = bench.acted_on(in_memory(["a", "b", "c", "d"]))
        assert [fetch.keys for fetch in fetches] == [["a"], ["b"]]
        fetches = bench.acted_on(KeysPending(keys=["a", "c"]))
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
        actions = bench.acted_on(in_memory(["a"]))
        (fetch,) = actions
        reports, actions = bench.handle(ResultsFetched(fetch.request, [], []))
        assert reports == ([] if actions else [ReportMissing(keys=["a"], holder="tcp://w:1")])
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
        *wishes, ask = messages
        assert wishes in ([], [WantKeys(keys=["a", "b", "c"])])
        assert isinstance(ask, FetchKeys)
    assert large.state("a").status == "finished"


def test_bytes_under_way_are_limited(bench):
    keys = [f"k{i}" for i in range(20)]
    columns = bench.columns(keys)
    watcher = Listener(wants_data=True)
    bench.do(columns, Watch(watcher, bench.made[columns]))
    actions = bench.acted_on(in_memory(keys, nbytes=30 << 20))
    # Two at a time from one holder.
    assert [a.keys for a in actions] == [["k0"], ["k1"]]
    notify, fetch = bench.acted(ResultsFetched(actions[0].request, ["k0"], [b"0"]))
    assert notify == Notify(watcher, [bench.state("k0")])
    assert fetch.keys == ["k2"]
