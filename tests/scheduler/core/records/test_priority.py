"""priority.py: one integer for user priority, generation and place in the graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.scheduler.core.records.priority import (
    FIFO_TIMEOUT_S,
    MAX_GENERATION,
    MAX_RANK,
    base_priority,
    rank_of,
)

from ...builders import graph

parts = st.tuples(
    st.integers(-9999, 9999), st.integers(0, MAX_GENERATION), st.integers(0, MAX_RANK)
)


@given(parts, parts)
def test_order_is_by_user_priority_then_generation_then_rank(one, other):
    (user, generation, rank), (user2, generation2, rank2) = one, other
    smaller = base_priority(user, generation) | rank < base_priority(user2, generation2) | rank2
    assert smaller == ((-user, generation, rank) < (-user2, generation2, rank2))


@given(parts)
def test_a_priority_fits_into_a_signed_64_bit_integer_and_gives_back_its_rank(part):
    user, generation, rank = part
    priority = base_priority(user, generation) | rank
    assert 0 <= priority < 1 << 63
    assert rank_of(priority) == rank


def test_generations_beyond_the_last_share_it():
    assert base_priority(0, MAX_GENERATION + 5) == base_priority(0, MAX_GENERATION)


def test_submissions_close_together_share_a_generation_and_later_ones_come_behind(board):
    client = board.client()
    board.send(client, graph("a"))
    board.now += FIFO_TIMEOUT_S / 2
    board.send(client, graph("b"))
    board.now += FIFO_TIMEOUT_S * 2
    board.send(client, graph("c"))
    generations = [board.task(key).group.generation for key in "abc"]
    assert generations == [1, 1, 2]
    priorities = [board.task(key).priority for key in "abc"]
    assert priorities == sorted(priorities)


def test_a_task_comes_right_behind_the_last_of_its_inputs(board):
    #   a   b   c
    #    \ /    |
    #     d     e
    client = board.client()
    board.send(client, graph("a b c", "a b -> d", "c -> e"))
    rank = {key: rank_of(board.task(key).priority) for key in "abcde"}
    assert rank["d"] == rank["b"] < rank["c"] == rank["e"]


def test_an_input_of_an_earlier_generation_does_not_pull_a_task_forward_when_it_is_done(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", function="make"))
    board.finish(worker, "a", blob=None)
    board.now += 10.0
    board.send(client, graph("b", function="inc"), graph(":a -> c", function="inc"))
    assert board.task("c").priority > board.task("b").priority


@pytest.mark.parametrize(
    ("nbytes", "first"),
    [
        pytest.param(5_000_000, ["r0", "of_r0", "r1", "of_r1"], id="large: few live at a time"),
        pytest.param(8, ["r0", "r1", "r2", "r3"], id="small: in the order of submission"),
    ],
)
def test_readers_that_come_late_stand_behind_what_they_read_if_that_is_large(board, nbytes, first):
    client, worker = board.client(), board.worker()
    roots = [f"r{i}" for i in range(40)]
    board.send(client, graph(*roots, function="make"))
    board.finish(worker, "r0", nbytes=nbytes, blob=None)
    board.now += 10.0
    board.send(client, graph(*(f":{root} -> of_{root}" for root in roots), function="read"))
    order = sorted(board.state.tasks.values(), key=lambda task: task.priority)
    assert [task.key for task in order[:4]] == first
    board.drop_rest()
