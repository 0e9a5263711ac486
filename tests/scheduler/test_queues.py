"""queues.py: the ready queue against a sorted list."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from weft.scheduler.queues import ReadyQueue


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


def test_dead_entries_are_swept():
    queue: ReadyQueue[Item] = ReadyQueue()
    for _ in range(50_000):
        item = Item(1)
        queue.push(item)
        queue.discard(item)
    assert len(queue._lane) + len(queue._heap) < 2000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 5)),
            st.tuples(st.just("pop"), st.just(0)),
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
        elif model:
            queue.discard(model.pop(argument % len(model))[2])
        assert len(queue) == len(model)
        assert queue.items() == [item for _, _, item in model]
        assert all(item.ticket > 0 for _, _, item in model)
