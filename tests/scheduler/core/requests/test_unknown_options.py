"""Rows with options of a later version: limits are refused, and hints are left out before."""

from __future__ import annotations

from weft.client.results.failures import exception_from
from weft.protocol.errors import UnsupportedRequest
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import MARK

from ...builders import assigned, graph, sent_keys


def test_rows_with_a_limit_that_is_not_known_are_refused_and_the_others_run(board):
    worker, client = board.worker("w", nthreads=9), board.client()
    submission = graph("plain", "limited", "last")
    submission.options = [{}, {"resources": {MARK + "later": 1}}]
    submission.option_of = [0, 1, 0]
    out = board.send(client, submission)
    assert [*assigned(out, worker)] == ["plain", "last"]
    (erred,) = [one for one in out[client] if type(one) is m.KeysErred]
    assert erred.keys == ["limited"]
    assert erred.failures == [["not-understood", "limited", "later="]]
    assert "limited" not in board.state.tasks
    error = exception_from(erred.failures[0], "limited")
    assert type(error) is UnsupportedRequest
    text = "the scheduler does not know the option later= of task 'limited', because it runs"
    assert str(error).startswith(text)


def test_a_function_of_which_every_row_is_refused_is_known_all_the_same(board):
    """Its client may have sent further rows, without the function, before it reads of that."""
    worker, client = board.worker("w"), board.client()
    out = board.send(client, graph("a", "b", resources={MARK + "later": 1}))
    assert [key for one in out[client] for key in one.keys] == ["a", "b"]
    assert not board.state.tasks
    assert [*assigned(board.send(client, graph("c", blob=None)), worker)] == ["c"]


def test_a_row_that_was_refused_and_is_asked_for_has_nothing_left_that_its_client_releases(board):
    """Its client may have the result of an earlier one, and keep it for itself."""
    client = board.client()
    board.send(client, graph("a", resources={MARK + "later": 1}))
    assert len(board.state.functions) == 1
    out = board.send(client, m.WantKeys(keys=["a"]))
    assert sent_keys(out, client, m.KeysUnknown) == ["a"]
    assert not board.state.functions
