"""fetching.py: limits of what is under way, and answers that are of no use any more."""

from __future__ import annotations

import pytest

from weft.client.core.events import (
    ClientTick,
    Disconnected,
    FetchFrom,
    Notify,
    Operations,
    ResultsFetched,
    ResultsNotFetched,
    Watch,
)
from weft.client.core.fetching import MAX_BATCH_NBYTES, MAX_NBYTES_IN_FLIGHT, MAX_ROUNDS
from weft.protocol.wire.messages import FetchKeys, KeysData, KeysInMemory, KeysPending, WantKeys

from .core_kit import Bench, Listener, erred, ready


@pytest.fixture
def bench():
    bench = Bench()
    bench.connect(epoch=1)
    return bench


def want(bench, keys):
    """Submit tasks whose results are wanted; return their states."""
    columns = bench.columns(keys)
    bench.watcher = Listener(wants_data=True)
    bench.do(columns, Watch(bench.watcher, bench.made[columns]))
    return bench.made[columns]


def in_memory(sizes, holder="tcp://w:1"):
    """Make the message that results of these {key: bytes} are at a holder."""
    return KeysInMemory(
        keys=[*sizes],
        nbytes=[*sizes.values()],
        holder_of=[0] * len(sizes),
        holders=[holder],
    )


def fetches(actions):
    return actions.of(FetchFrom)


def test_a_batch_is_limited_and_a_larger_result_goes_alone(bench):
    want(bench, "abcd")
    half = MAX_BATCH_NBYTES // 2
    sizes = {"a": MAX_BATCH_NBYTES + 1, "b": half, "c": half, "d": 1}
    actions = bench.acted_on(in_memory(sizes))
    assert [fetch.keys for fetch in fetches(actions)] == [["a"], ["b", "c"]]


def test_the_bytes_under_way_from_all_holders_are_limited(bench):
    n = MAX_NBYTES_IN_FLIGHT // MAX_BATCH_NBYTES
    keys = [f"k{i}" for i in range(n)]
    want(bench, [*keys, "late"])
    requests = []
    for i, key in enumerate(keys):
        actions = bench.acted_on(in_memory({key: MAX_BATCH_NBYTES}, f"tcp://w:{i}"))
        (fetch,) = fetches(actions)
        requests.append(fetch.request)
    actions = bench.acted_on(in_memory({"late": 1}, "tcp://late"))
    assert fetches(actions) == []
    notify, fetch = bench.acted(ResultsFetched(requests[0], ["k0"], [b"0"]))
    assert notify == Notify(bench.watcher, [bench.state("k0")])
    assert fetch.keys == ["late"]


def test_a_batch_has_no_more_than_there_is_room_for(bench):
    n = MAX_NBYTES_IN_FLIGHT // MAX_BATCH_NBYTES
    keys = [f"k{i}" for i in range(n)]
    want(bench, [*keys, "x", "y"])
    for i, key in enumerate(keys):
        nbytes = MAX_BATCH_NBYTES - (10 if i == 0 else 0)
        bench.hear(in_memory({key: nbytes}, f"tcp://w:{i}"))
    actions = bench.acted_on(in_memory({"x": 8, "y": 8}, "tcp://late"))
    assert [fetch.keys for fetch in fetches(actions)] == [["x"], ["y"]]


def test_a_result_whose_last_future_is_gone_is_not_fetched(bench):
    states = want(bench, "abc")
    sizes = dict.fromkeys("ab", MAX_BATCH_NBYTES)
    actions = bench.acted_on(in_memory({**sizes, "c": MAX_BATCH_NBYTES}))
    first, _ = fetches(actions)  # "c" waits in the queue
    bench.handle(Operations([states[2]]))  # its future is gone
    actions = bench.acted(ResultsFetched(first.request, ["a"], [b"1"]))
    assert actions == [Notify(bench.watcher, [states[0]])]


def test_data_that_comes_after_its_task_has_failed_changes_nothing(bench):
    (state,) = want(bench, "a")
    (fetch,) = bench.acted_on(in_memory({"a": 100}))
    bench.hear(erred("a"))
    bench.handle(ResultsFetched(fetch.request, ["a"], [b"1"]))
    assert (state.status, state.has_data) == ("error", False)


def test_a_relayed_request_goes_on_when_the_first_holder_is_lost(bench):
    """The scheduler answers each of them, so a second one would only fetch it twice."""
    want(bench, "a")
    (fetch,) = bench.acted_on(in_memory({"a": 100}))
    (asked,) = bench.sent(ResultsNotFetched(fetch.request, "no route"))
    assert isinstance(asked, FetchKeys)
    bench.hear(KeysPending(keys=["a"]))
    answer = KeysData(request=asked.request, keys=["a"], results=[b"1"], missing=[])
    (notice,) = bench.acted_on(answer)
    assert [state.blob for state in notice.items] == [b"1"]


def test_relayed_requests_wait_while_the_connection_is_down_and_are_repeated_then(bench):
    want(bench, "ab")
    (fetch,) = bench.acted_on(in_memory({"a": 100}))
    (asked,) = bench.sent(ResultsNotFetched(fetch.request, "no route"))
    assert asked.keys == ["a"]
    assert bench.handle(Disconnected())[0] == []
    assert bench.connect(epoch=1) == [WantKeys(keys=["a", "b"], spec_hashes=[])]
    messages, _ = bench.hear(in_memory({"a": 100}), KeysPending(keys=["b"]))
    assert [x.keys for x in messages.of(FetchKeys)] == [["a"]]


@pytest.mark.parametrize("is_repeated", [False, True], ids=["answered", "repeated"])
def test_a_result_that_has_come_in_another_way_is_not_asked_for_any_more(bench, is_repeated):
    (state,) = want(bench, "a")
    (fetch,) = bench.acted_on(in_memory({"a": 100}))
    (asked,) = bench.sent(ResultsNotFetched(fetch.request, "no route"))
    bench.hear(ready("a"))
    assert state.has_data
    if is_repeated:
        bench.handle(Disconnected())
        sent = [*bench.connect(epoch=2), *bench.sent(ClientTick())]
        assert [x for x in sent if isinstance(x, (FetchKeys, WantKeys))] == []
    else:
        answer = KeysData(request=asked.request, keys=[], results=[], missing=["a"])
        assert bench.hear(answer) == ([], [])
    assert not bench.core.fetch_rounds
    assert not bench.core.fetching


def test_rounds_of_a_result_count_anew_after_it_has_come(bench):
    (state,) = want(bench, "a")
    for _ in range(MAX_ROUNDS - 1):
        (fetch,) = bench.acted_on(in_memory({"a": 100}))
        bench.handle(ResultsFetched(fetch.request, [], []))
    (fetch,) = bench.acted_on(in_memory({"a": 100}))
    bench.handle(ResultsFetched(fetch.request, ["a"], [b"1"]))
    assert state.blob == b"1"
    assert not bench.core.fetch_rounds


def test_a_holder_that_was_out_of_reach_is_tried_again_after_a_tick(bench):
    want(bench, "a")
    (fetch,) = bench.acted_on(in_memory({"a": 100}))
    bench.handle(ResultsNotFetched(fetch.request, "no route"))
    want(bench, "b")
    messages, actions = bench.hear(in_memory({"b": 100}))
    assert fetches(actions) == []
    assert [x.keys for x in messages.of(FetchKeys)] == [["b"]]
    bench.core.fetch_later[bench.state("a")] = None
    assert bench.sent(ClientTick()) == [WantKeys(keys=["a"])]
    want(bench, "c")
    actions = bench.acted_on(in_memory({"c": 100}))
    assert [fetch.keys for fetch in fetches(actions)] == [["c"]]
