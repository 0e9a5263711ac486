"""queues.py: the ready queue against a sorted list."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.rotation import level_of
from weft.scheduler.core.invariants.classes import validate_queue
from weft.scheduler.core.records.priority import base_priority
from weft.scheduler.core.records.queues import STRETCH_NS, ReadyQueue


@dataclass(eq=False)
class Item:
    priority: int
    ticket: int = 0


def test_items_come_out_by_priority_then_in_the_order_of_arrival():
    queue: ReadyQueue[Item] = ReadyQueue()
    items = [Item(p) for p in (3, 1, 2, 1, 3)]
    for item in items:
        queue.push(item)
    assert queue.items() == [items[i] for i in (1, 3, 2, 0, 4)]
    assert [queue.pop() for _ in range(6)] == [*(items[i] for i in (1, 3, 2, 0, 4)), None]
    assert len(queue) == 0


def test_a_discarded_item_may_be_pushed_again_and_comes_out_once():
    queue: ReadyQueue[Item] = ReadyQueue()
    item, other = Item(5), Item(7)
    queue.push(item)
    queue.push(other)
    queue.discard(item)
    assert item.ticket == 0
    queue.push(item)
    assert [queue.pop(), queue.pop(), queue.pop()] == [item, other, None]


def test_an_item_that_goes_to_another_queue_is_not_alive_again_in_the_first():
    first: ReadyQueue[Item] = ReadyQueue()
    second: ReadyQueue[Item] = ReadyQueue()
    item, other = Item(5), Item(7)
    first.push(item)
    first.push(other)
    first.discard(item)
    second.push(item)
    validate_queue(first)
    assert first.items() == [other]
    assert [first.pop(), first.pop()] == [other, None]
    assert second.pop() is item
    # Those that were put back are counted downwards.
    for queue in (first, second):
        queue.push(item)
        queue.push(other)
        queue.put_back(queue.pop())
        queue.discard(other)
        if queue is first:
            queue.discard(item)
    assert first.items() == []


def test_dead_entries_are_swept():
    queue: ReadyQueue[Item] = ReadyQueue()
    queue.push(Item(1))
    for _ in range(50_000):
        item = Item(1)
        queue.push(item)
        queue.discard(item)
    (lane,) = queue.rotation.lanes.values()
    assert len(lane.run) + len(lane.heap) < 2000


def popped(queue: ReadyQueue[Item], ns: int = STRETCH_NS) -> list[int]:
    """The numbers of all items in the order in which they come, each of which takes this long."""
    found = []
    while (item := queue.pop()) is not None:
        queue.left_ns -= ns
        found.append(item.priority % 1000)
        validate_queue(queue)
    return found


def test_clients_take_turns_whatever_their_priorities_within_one_user_priority():
    queue: ReadyQueue[Item] = ReadyQueue()
    for i in range(6):
        queue.push(Item(i), client=1)
    for i in range(100, 103):
        queue.push(Item(i), client=2)
    assert popped(queue) == [100, 0, 101, 1, 102, 2, 3, 4, 5]


def test_a_turn_is_a_stretch_of_time():
    queue: ReadyQueue[Item] = ReadyQueue()
    for i in range(6):
        queue.push(Item(i), client=1)
        queue.push(Item(100 + i), client=2)
    assert popped(queue, STRETCH_NS // 2) == [100, 101, 0, 1, 102, 103, 2, 3, 104, 105, 4, 5]


def test_a_client_that_had_nothing_is_next_even_in_the_middle_of_a_stretch():
    queue: ReadyQueue[Item] = ReadyQueue()
    for i in range(4):
        queue.push(Item(i), client=1)
    queue.pop()
    queue.push(Item(100), client=2)
    assert popped(queue, 1) == [100, 1, 2, 3]


def test_a_client_that_submits_little_and_often_gains_nothing():
    queue: ReadyQueue[Item] = ReadyQueue()
    for i in range(8):
        queue.push(Item(i), client=1)
    found = []
    for i in range(100, 104):
        queue.push(Item(i), client=2)
        for _ in range(2):
            item = queue.pop()
            assert item is not None
            queue.left_ns = 0
            found.append(item.priority)
    assert found == [100, 0, 101, 1, 102, 2, 103, 3]


def test_an_item_that_is_put_back_is_the_first_of_its_client_which_loses_its_turn():
    queue: ReadyQueue[Item] = ReadyQueue()
    for i in range(3):
        queue.push(Item(i), client=1)
        queue.push(Item(100), client=2)
    first = queue.pop()
    assert first is not None
    assert first.priority == 100
    queue.put_back(first, client=2)
    validate_queue(queue)
    assert popped(queue) == [0, 100, 1, 100, 2, 100]


def test_user_priority_goes_before_turns():
    queue: ReadyQueue[Item] = ReadyQueue()
    low, high = base_priority(0, 0), base_priority(1, 0)
    for i in range(3):
        queue.push(Item(low + i), client=1)
    assert queue.pop() is not None
    queue.push(Item(high), client=2)
    queue.push(Item(high + 1), client=2)
    assert queue.best_level() == level_of(high)
    assert [item.priority for item in iter(queue.pop, None)] == [high, high + 1, low + 1, low + 2]


def test_a_lane_that_was_forgotten_meanwhile_is_found_again():
    queue: ReadyQueue[Item] = ReadyQueue()
    lane = queue.lane(1, 7)
    first, other, second, third = Item(1), Item(1), Item(2), Item(3)
    lane.push([first])
    queue.push(other, 8)
    queue.discard(first, 7)
    queue.discard(other, 8)
    assert not queue.rotation.lanes
    queue.push(second, 7)
    validate_queue(queue)
    lane.push([third])
    validate_queue(queue)
    assert [queue.pop(), queue.pop(), queue.pop()] == [second, third, None]


def test_a_stretch_begins_with_the_items_that_come_next():
    queue: ReadyQueue[Item] = ReadyQueue()
    assert queue.stretch is None
    items = [Item(p) for p in range(6)]
    queue.lane(0, 7).push(items)
    assert queue.stretch is None  # nobody has had a turn
    assert queue.pop() is items[0]
    queue.discard(items[1], 7)
    lane = queue.stretch
    assert lane is not None
    taken = [lane.run.popleft()[2] for _ in range(3)]
    assert taken == items[1:4]
    items[2].ticket = items[3].ticket = 0
    queue.took(lane, 2)
    validate_queue(queue)
    late = Item(2)
    queue.push(late, 7)
    assert queue.stretch is None  # the heap's may be better
    assert [queue.pop(), queue.pop(), queue.pop()] == [late, items[4], items[5]]
    assert queue.stretch is not None
    queue.push(Item(9), 8)
    assert queue.stretch is None  # the new lane is next


def test_a_single_lane_that_runs_empty_is_kept_without_its_dead_entries():
    queue: ReadyQueue[Item] = ReadyQueue()
    first, second, third = Item(2), Item(1), Item(3)
    for item in (first, second, third):
        queue.push(item, 7)
    assert queue.pop() is second
    (lane,) = queue.rotation.lanes.values()
    for item in (first, third):
        queue.discard(item, 7)
    assert (list(lane.run), lane.heap) == ([], [])
    queue.push(first, 7)
    other = Item(5)
    queue.push(other, 8)
    validate_queue(queue)
    assert {*queue.rotation.lanes.values()} > {lane}
    assert {queue.pop(), queue.pop()} == {first, other}
    assert queue.pop() is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 5)),
            st.tuples(st.just("pop"), st.just(0)),
            st.tuples(st.just("put back"), st.just(0)),
            st.tuples(st.just("discard"), st.integers(0, 30)),
        ),
        max_size=60,
    )
)
def test_the_queue_equals_a_sorted_list(actions):
    queue: ReadyQueue[Item] = ReadyQueue()
    model: list[tuple[int, int, Item]] = []
    for n, (action, argument) in enumerate(actions):
        if action == "push":
            item = Item(argument)
            queue.push(item)
            model.append((argument, n, item))
            model.sort(key=lambda entry: entry[:2])
        elif action == "pop":
            assert queue.pop() is (model.pop(0)[2] if model else None)
        elif action == "put back":
            if (popped_item := queue.pop()) is not None:
                queue.put_back(popped_item)
        elif model:
            queue.discard(model.pop(argument % len(model))[2])
        assert len(queue) == len(model)
        assert queue.items() == [item for _, _, item in model]
        assert all(item.ticket for _, _, item in model)
        validate_queue(queue)
