"""The number of workers that the present work is worth, of one pool of workers."""

from __future__ import annotations

import pytest

from weft.protocol.wire.question_arguments import BadArgument
from weft.scheduler.core.insight.desired import ask_desired, desired_workers

from ...builders import Board
from .test_desired import learn, submit

GPU = frozenset({"GPU"})
PLAIN = frozenset[str]()


def n_of(board: Board, pool: frozenset[str]) -> int:
    return desired_workers(board.state, pool=pool).n_workers


def test_each_pool_is_asked_for_by_the_tasks_that_request_its_resources(board):
    client, worker = board.client(), board.worker("w")
    board.worker("gpu", nthreads=8, resources={"GPU": 2.0})
    learn(board, client, worker, us=60_000_000)
    assert (n_of(board, PLAIN), n_of(board, GPU)) == (0, 0)
    submit(board, client, 12, resources={"GPU": 1.0})
    assert n_of(board, PLAIN) == 0
    assert 6 <= n_of(board, GPU) <= 7  # two run beside each other
    submit(board, client, 40)
    # Those of them that are at the worker with 8 threads are work of its pool.
    assert 20 <= n_of(board, PLAIN) < 40


def test_a_pool_without_workers_is_asked_for_while_others_have_some(board):
    """To the cluster as a whole such tasks are worth no more than one worker."""
    client, worker = board.client(), board.worker("w")
    learn(board, client, worker, us=60_000_000)
    submit(board, client, 12, resources={"GPU": 1.0})
    assert desired_workers(board.state).n_workers == 1
    assert n_of(board, GPU) == 12
    assert n_of(board, PLAIN) == 0


def test_a_pool_is_expected_to_have_workers_like_its_last_one(board):
    client, worker = board.client(), board.worker("w")
    learn(board, client, worker, us=60_000_000)
    board.close(board.worker("gpu", nthreads=8, resources={"GPU": 4.0}))
    submit(board, client, 12, resources={"GPU": 1.0})
    assert n_of(board, GPU) == 3


def test_tasks_that_the_workers_of_their_pool_may_not_run_keep_one_of_them(board):
    client = board.client()
    board.worker("gpu", resources={"GPU": 1.0})
    submit(board, client, 100, resources={"GPU": 2.0})
    assert n_of(board, GPU) == 1


def test_results_keep_the_workers_of_the_pool_that_has_them(board):
    client = board.client()
    worker = board.worker("gpu", resources={"GPU": 1.0}, memory_limit=1 << 30)
    board.worker("w", memory_limit=1 << 30)
    (key,) = submit(board, client, 1, resources={"GPU": 1.0})
    board.finish(worker, key, nbytes=600 << 20)
    assert (n_of(board, PLAIN), n_of(board, GPU)) == (0, 1)


def test_a_task_of_two_resources_is_for_the_pool_that_has_both(board):
    client = board.client()
    submit(board, client, 3, resources={"GPU": 1.0, "SSD": 1.0})
    assert n_of(board, GPU) == 0
    assert n_of(board, GPU | {"SSD"}) >= 1


def test_the_names_of_a_pool_are_a_list(board):
    submit(board, board.client(), 1, resources={"GPU": 1.0})
    answer, _ = ask_desired(board.state, {"resources": ["GPU"]}, "")
    assert answer["desired_workers"] == 1
    with pytest.raises(BadArgument, match="resources= is a list of names"):
        ask_desired(board.state, {"resources": "GPU"}, "")
