"""transitions.py: functions stay a while after their last task, and are dropped in order of use.

`Board` validates after each event that exactly the functions without a task are idle, that they are
within the limits, and that their bytes are counted right.
"""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.payload import Payload
from weft.scheduler.core.moves.transitions import MAX_IDLE_FUNCTIONS_NBYTES

from ...builders import Board, Out, assigned, assignment, function_id, graph

MIB = 1 << 20


def idle(board: Board) -> list[str]:
    """Return the names of the idle functions, the next to be dropped first."""
    return [function.prefix.name for function in board.state.idle_functions]


def dropped_functions(out: Out, peer: int) -> list[bytes]:
    """Return the functions that a worker is asked to forget."""
    return [
        function
        for message in out.get(peer, [])
        if isinstance(message, m.DropFunctions)
        for function in message.functions
    ]


def use(board: Board, client: int, *functions: str) -> list[Out]:
    """Submit one task per function and release it, one function after the other."""
    outs = []
    for function in functions:
        board.send(client, graph(f"task-of-{function}", function=function))
        outs.append(board.send(client, m.ReleaseKeys(keys=[f"task-of-{function}"])))
    return outs


def test_the_function_used_longest_ago_is_dropped_first():
    board = Board(max_idle_functions=2)
    client, worker = board.client(), board.worker()
    first, second, third = use(board, client, "f", "g", "h")
    assert dropped_functions(first, worker) == dropped_functions(second, worker) == []
    assert dropped_functions(third, worker) == [function_id("f")]
    assert idle(board) == ["g", "h"]
    assert list(board.state.functions) == [function_id("g"), function_id("h")]


def test_use_makes_a_function_the_last_to_go():
    board = Board(max_idle_functions=2)
    client, worker = board.client(), board.worker()
    *_, last = use(board, client, "f", "g", "f", "h")
    assert dropped_functions(last, worker) == [function_id("g")]
    assert idle(board) == ["f", "h"]


def test_a_function_in_use_is_not_idle_and_never_dropped():
    board = Board(max_idle_functions=1)
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", function="kept"))
    outs = use(board, client, "f", "g", "h")
    gone = [function for out in outs for function in dropped_functions(out, worker)]
    assert gone == [function_id("f"), function_id("g")]
    assert idle(board) == ["h"]
    out = board.send(client, graph("b", function="kept", blob=None))
    assert assignment(out, worker).function_blobs == [None]


def test_a_function_stays_in_use_until_its_last_task_is_gone():
    board = Board(max_idle_functions=64)
    client = board.client()
    board.send(client, graph("a b"))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert idle(board) == []
    board.send(client, m.ReleaseKeys(keys=["b"]))
    assert idle(board) == ["inc"]


def test_reuse_before_eviction_sends_nothing_and_needs_no_blob():
    board = Board(max_idle_functions=1)
    client, worker = board.client(), board.worker()
    use(board, client, "f")
    out = board.send(client, graph("again", function="f", blob=None))
    assert board.refused() == []
    assert assigned(out, worker).keys() == {"again"}
    assert assignment(out, worker).function_blobs == [None]
    assert dropped_functions(out, worker) == []
    assert idle(board) == []
    assert board.state.idle_functions.nbytes == 0


def test_a_dropped_function_is_sent_anew():
    board = Board(max_idle_functions=1)
    client, worker = board.client(), board.worker()
    use(board, client, "f", "g")
    board.send(client, graph("again", function="f", blob=None))
    assert board.refused() == ["SubmitTasks names a function that the scheduler does not have"]
    out = board.send(board.client("bob"), graph("again", function="f"))
    assert assignment(out, worker).function_blobs == [b"pickle"]


def test_only_workers_that_have_a_function_are_asked_to_drop_it():
    board = Board(max_idle_functions=0)
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    out = board.send(client, graph("a"))
    (chosen,) = [peer for peer in (one, two) if peer in out]
    out = board.send(client, m.ReleaseKeys(keys=["a"]))
    assert dropped_functions(out, chosen) == [function_id("inc")]
    assert list(out) == [chosen]


def test_a_worker_that_left_is_sent_nothing():
    board = Board(max_idle_functions=1)
    client, worker = board.client(), board.worker()
    use(board, client, "f")
    board.close(worker)
    (out,) = use(board, client, "g")
    assert worker not in out
    assert idle(board) == ["g"]


def submit_large(board: Board, client: int, name: str, nbytes: int) -> Out:
    """Submit one task of a function of this size and release it."""
    board.send(client, graph(name, function=name, blob=bytes(nbytes)))
    return board.send(client, m.ReleaseKeys(keys=[name]))


def test_idle_functions_are_kept_up_to_their_limit_of_bytes():
    board = Board(max_idle_functions=64)
    client, worker = board.client(), board.worker()
    half = MAX_IDLE_FUNCTIONS_NBYTES // 2
    submit_large(board, client, "f", half)
    out = submit_large(board, client, "g", half)
    assert dropped_functions(out, worker) == []
    assert board.state.idle_functions.nbytes == MAX_IDLE_FUNCTIONS_NBYTES
    out = submit_large(board, client, "h", 1)
    assert dropped_functions(out, worker) == [function_id("f")]
    assert idle(board) == ["g", "h"]
    assert board.state.idle_functions.nbytes == half + 1


def test_one_large_function_may_push_out_several_in_one_message():
    board = Board(max_idle_functions=64)
    client, worker = board.client(), board.worker()
    for name in "abc":
        submit_large(board, client, name, MIB)
    out = submit_large(board, client, "d", MAX_IDLE_FUNCTIONS_NBYTES - MIB)
    assert out[worker][1:] == [m.DropFunctions(functions=[function_id("a"), function_id("b")])]
    assert idle(board) == ["c", "d"]


@pytest.mark.parametrize("as_payload", [False, True])
def test_a_function_above_the_limit_is_not_kept_and_nothing_is_left(as_payload):
    board = Board(max_idle_functions=64)
    client, worker = board.client(), board.worker()
    submit_large(board, client, "small", 10)
    data = bytes(MAX_IDLE_FUNCTIONS_NBYTES + 1)
    # The bytes beside a pickle count as well.
    blob = Payload(b"", [memoryview(data)]) if as_payload else data
    board.send(client, graph("huge", function="huge", blob=blob))
    out = board.send(client, m.ReleaseKeys(keys=["huge"]))
    assert dropped_functions(out, worker) == [function_id("small"), function_id("huge")]
    assert board.state.functions == {}
    assert board.state.idle_functions.nbytes == 0


def test_the_function_of_a_submission_that_makes_no_task_is_idle_when_its_client_wants_nothing():
    board = Board(max_idle_functions=64)
    client = board.client()
    board.send(client, graph("a"))
    board.send(client, graph("a", function="other"))
    assert idle(board) == []
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert sorted(idle(board)) == ["inc", "other"]
    board.send(client, graph("b", function="other", blob=None))
    assert board.refused() == []
    assert idle(board) == ["inc"]


def test_a_function_is_kept_for_a_client_that_has_not_heard_of_a_forced_cancel():
    board = Board(max_idle_functions=0)
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"), m.CancelKeys(keys=["a"], force=True, reason=""))
    assert assigned(board.send(alice, graph("b", blob=None)), worker)
    board.send(alice, m.ReleaseKeys(keys=["b"]))
    assert not board.state.functions
