"""`wait` and `as_completed`, blocking."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from weft.client import Client, as_completed, wait


def inc(x):
    return x + 1


def fail(text):
    raise ValueError(text)


def test_wait_returns_when_all_are_done(client):
    futures = client.map(inc, range(10))
    done, not_done = wait(futures, timeout=10)
    assert (done, not_done) == (set(futures), set())
    assert wait([]) == (set(), set())
    assert wait(futures[0]).done == {futures[0]}


def test_wait_returns_with_the_first_future(client, scheduler):
    first = client.submit(inc, 1)
    first.result(10)
    scheduler.is_holding = True
    second = client.submit(inc, 2)
    assert wait([first, second], 10, "FIRST_COMPLETED") == ({first}, {second})
    with pytest.raises(TimeoutError, match="1 of 2 futures"):
        wait([first, second], 0.01)
    scheduler.go_on()
    assert wait([second], 10, "FIRST_COMPLETED").done == {second}


def test_wait_returns_with_the_first_failure(client, scheduler):
    bad = client.submit(fail, "x")
    bad.exception(10)
    scheduler.is_holding = True
    good = client.submit(inc, 1)
    assert wait([good, bad], 10, "FIRST_EXCEPTION") == ({bad}, {good})
    with pytest.raises(ValueError, match="return_when="):
        wait([good], 10, "SOMETIMES")


def test_wait_refuses_futures_of_several_clients(client, scheduler):
    with Client(scheduler, set_as_default=False) as other:
        futures = [client.submit(inc, 1), other.submit(inc, 1)]
        with pytest.raises(ValueError, match="different clients"):
            wait(futures)
    with pytest.raises(TypeError, match=r"takes futures.*not int"):
        wait([3])


def test_as_completed_yields_each_future_once(client):
    futures = client.map(inc, range(100))
    completed = as_completed(futures)
    assert completed.count() == 100
    assert {*completed} == {*futures}
    assert completed.is_empty()
    assert completed.count() == 0
    assert [*as_completed()] == []
    twins = [client.submit(inc, 1), client.submit(inc, 1)]
    assert {*as_completed(twins)} == {*twins}


def test_as_completed_yields_results_of_any_size(client, scheduler):
    sizes = [10, 100_000, 20, 200_000]
    futures = client.map(bytes, sizes)
    found = {future: len(result) for future, result in as_completed(futures, with_results=True)}
    assert [found[future] for future in futures] == sizes
    assert scheduler.n_fetches >= 1


def test_futures_may_be_added_to_as_completed_while_it_runs(client):
    completed = as_completed(client.map(inc, range(3)), with_results=True)
    seen = []
    for _, result in completed:
        seen.append(result)
        if result < 20:
            completed.add(client.submit(inc, result + 9))
    assert sorted(seen) == [1, 2, 3, 11, 12, 13, 21, 22, 23]
    completed.update(client.map(inc, [50]))
    assert [result for _, result in completed] == [51]


def test_as_completed_raises_or_hands_over_errors(client):
    bad = client.submit(fail, "boom")
    with pytest.raises(ValueError, match="boom"):
        next(as_completed([bad], with_results=True))
    ((future, error),) = as_completed([bad], with_results=True, raise_errors=False)
    assert future is bad
    assert isinstance(error, ValueError)
    assert [*as_completed([bad])] == [bad]


def test_batches_hold_all_futures_that_are_ready(client, scheduler):
    scheduler.is_holding = True
    futures = client.map(inc, range(50))
    completed = as_completed(futures)
    assert completed.next_batch(block=False) == []
    assert not completed.has_ready()
    scheduler.go_on()
    batches = [*completed.batches()]
    assert all(batches)
    assert {future for batch in batches for future in batch} == {*futures}
    assert completed.next_batch() == []


def fail_at_two(x):
    if x == 2:
        raise ValueError("boom")
    return x


def test_a_failure_takes_no_results_of_its_batch_away(client):
    futures = client.map(fail_at_two, range(5))
    wait(futures, 20)
    completed = as_completed(futures, with_results=True)
    batches = completed.batches()
    assert [result for _, result in next(batches)] == [0, 1]
    assert (completed.count(), completed.has_ready()) == (3, True)
    with pytest.raises(ValueError, match="boom"):
        next(batches)
    assert [result for _, result in next(batches)] == [3, 4]
    assert [*batches] == []


@pytest.mark.parametrize("block", [True, False])
def test_next_batch_raises_a_failure_alone(client, block):
    futures = client.map(fail_at_two, range(5))
    wait(futures, 20)
    completed = as_completed(futures, with_results=True)
    assert [result for _, result in completed.next_batch(block)] == [0, 1]
    with pytest.raises(ValueError, match="boom"):
        completed.next_batch(block)
    assert [result for _, result in completed.next_batch(block)] == [3, 4]
    assert completed.next_batch(block) == []


async def test_batches_of_an_asynchronous_client_lose_nothing_either(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        futures = client.map(fail_at_two, range(5))
        await wait(futures, 20)
        completed = as_completed(futures, with_results=True)
        batches = completed.batches()
        assert [result for _, result in await anext(batches)] == [0, 1]
        with pytest.raises(ValueError, match="boom"):
            await completed.next_batch(block=False)
        assert [[result for _, result in batch] async for batch in batches] == [[3, 4]]


class _NoLook(deque):
    """A queue that must not be iterated over."""

    def __iter__(self):
        raise AssertionError("all of the queue was looked at")

    def copy(self):
        return iter(self)


def test_has_ready_does_not_visit_all_ready_futures(client):
    futures = client.map(inc, range(10))
    wait(futures, 20)
    completed = as_completed(futures)
    completed._completions.queue = _NoLook(completed._completions.queue)
    while not completed.is_empty():
        assert completed.has_ready()
        next(completed)
    assert not completed.has_ready()


def test_cleared_futures_are_not_ready_and_may_be_added_again(client, scheduler):
    futures = client.map(inc, range(3))
    wait(futures, 20)
    completed = as_completed(futures)
    assert completed.has_ready()
    completed.clear()
    assert not completed.has_ready()
    completed.update(futures)
    assert [*completed] == futures
    # The cleared futures complete later, which must not affect those that were added since.
    scheduler.is_holding = True
    late = client.map(inc, range(10, 13))
    completed.update(late)
    completed.clear()
    scheduler.go_on()
    wait(late, 20)
    assert not completed.has_ready()
    completed.add(late[0])
    assert [*completed] == [late[0]]


def test_as_completed_times_out_and_can_be_cleared(client, scheduler):
    scheduler.is_holding = True
    futures = client.map(inc, range(3))
    with pytest.raises(TimeoutError, match="3 futures"):
        next(as_completed(futures, timeout=0.01))
    completed = as_completed(futures)
    completed.clear()
    assert [*completed] == []
    client._engine.settle()
    scheduler.go_on()
    client.gather(futures)
    assert completed.is_empty()


def test_an_iteration_that_is_left_waits_for_nothing_any_more(client, scheduler):
    first = client.submit(inc, 0)
    first.result(10)
    scheduler.is_holding = True
    futures = client.map(inc, range(1, 4))
    for future, result in as_completed([first, *futures], with_results=True):
        assert (future, result) == (first, 1)
        break
    client._engine.settle()
    assert [future._state.watchers for future in futures] == [None] * 3
    scheduler.go_on()
    assert client.gather(futures) == [2, 3, 4]


def test_several_threads_share_one_iterator(client):
    futures = client.map(inc, range(500))
    completed = as_completed(futures, with_results=True)
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(r for _, r in completed)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == list(range(1, 501))


# --- Released futures -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [False, True])
def test_a_released_future_cannot_be_waited_for(client, scheduler, is_done):
    scheduler.is_holding = not is_done
    future = client.submit(inc, 1)
    if is_done:
        future.result(10)
    future.release()
    for call in (wait, as_completed, lambda fs: as_completed(fs, with_results=True)):
        with pytest.raises(ValueError, match=f"the future of '{future.key}' was released"):
            call([client.submit(inc, 2), future])
    completed = as_completed()
    with pytest.raises(ValueError, match="was released"):
        completed.add(future)
    assert completed.is_empty()


@pytest.mark.parametrize("with_results", [False, True])
def test_a_future_that_is_released_while_others_complete_is_left_out(
    client, scheduler, with_results
):
    scheduler.is_holding = True
    futures = client.map(inc, range(4))
    equal = client.submit(inc, 2)
    completed = as_completed([*futures, futures[3], equal], with_results=with_results)
    for future in (futures[0], futures[2], futures[3]):
        future.release()
    scheduler.go_on()
    found = [item[0] if with_results else item for item in completed]
    assert set(found) == {futures[1], equal}
    assert completed.is_empty()


def test_an_iteration_ends_when_its_last_future_is_released(client, scheduler):
    scheduler.is_holding = True
    future = client.submit(inc, 1)
    completed = as_completed([future])
    consumer = threading.Thread(target=lambda: found.append(list(completed)))
    found = []
    consumer.start()
    future.release()
    consumer.join(30)
    assert found == [[]]


def test_one_future_that_is_late_is_counted_in_the_singular(client, scheduler):
    scheduler.is_holding = True
    future = client.submit(inc, 1)
    with pytest.raises(TimeoutError, match=r"^1 of 1 future was not done within 0 s"):
        wait(future, timeout=0)
    with pytest.raises(TimeoutError, match=r"^1 future was not done within 0 s"):
        list(as_completed([future], timeout=0))


def test_as_completed_asks_for_an_iterable_where_it_gets_one_future(client):
    with pytest.raises(TypeError, match=r"takes an iterable of futures, such as \[future\]"):
        as_completed(client.submit(inc, 1))


def test_a_timeout_says_that_there_is_no_connection(client, scheduler, wait_until):
    scheduler.is_holding = True
    future = client.submit(inc, 1)
    client.scheduler_info()
    scheduler.disappear()
    wait_until(lambda: not client._engine.core.is_linked)
    with pytest.raises(TimeoutError, match=r"client has no connection to the scheduler"):
        future.result(0)


@pytest.mark.slow
def test_the_reason_of_a_timeout_is_not_waited_for(client, scheduler):
    scheduler.is_holding = True
    future = client.submit(inc, 1)
    client.scheduler_info()
    scheduler.answer = lambda connection, message: None
    texts = []

    def wait_in_vain():
        try:
            future.result(0.1)
        except TimeoutError as error:
            texts.append(str(error))

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    waiting.join(30)  # a question has 60 s otherwise
    assert texts == [f"no result of {future.key!r} within 0.1 s; its task continues"]
