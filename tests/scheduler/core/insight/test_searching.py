"""A search among tasks: what is found, and how many are looked at."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight import searching

from ...builders import graph


def search(board, text):
    """Return all pages of an answer."""
    peer, page, found = board.connect(Role.VIEWER), "", []
    while True:
        ask = m.Ask(request=9, name="search", arguments={"text": text}, page=page)
        (answer,) = board.send(peer, ask)[peer]
        assert isinstance(answer, m.Answer), answer
        found.append(answer.info)
        page = answer.next_page
        if not page:
            return found


def keys(found):
    return [row[0] for page in found for row in page["keys"]]


def test_tasks_are_found_by_a_part_of_their_keys_the_latest_first(board):
    client = board.client()
    board.send(client, graph("load-1", "load-2", function="load"))
    board.send(client, graph("sum-1", function="sum"))
    (found,) = search(board, "-1")
    assert found["keys"] == [["sum-1", "no_worker", "sum"], ["load-1", "no_worker", "load"]]
    assert (found["n_looked_at"], found["n_tasks"], found["is_cut"]) == (3, 3, False)
    assert found["functions"] == []
    board.drop_rest()


def test_functions_are_found_by_a_part_of_their_names(board):
    board.send(board.client(), graph("a", "b", function="LoadPart"))
    (found,) = search(board, "dpa")
    assert (found["functions"], found["keys"]) == ([["LoadPart", 2, 0]], [])
    board.drop_rest()


def test_a_whole_key_is_found_first_among_any_number_of_tasks(board, monkeypatch):
    monkeypatch.setattr(searching, "N_LOOKED_AT", 3)
    monkeypatch.setattr(searching, "N_PAGES", 2)
    names = [f"k{i}" for i in range(10, 40)]
    board.send(board.client(), graph(*names))
    assert keys(search(board, "k25")) == ["k25"]
    board.drop_rest()


def test_of_many_tasks_the_latest_and_the_oldest_are_looked_at(board, monkeypatch):
    monkeypatch.setattr(searching, "N_LOOKED_AT", 3)
    monkeypatch.setattr(searching, "N_PAGES", 2)
    names = [f"k{i}" for i in range(10, 40)]
    board.send(board.client(), graph(*names))
    found = search(board, "k")
    assert keys(found) == [*names[:-7:-1], *names[:6]]
    assert [page["n_looked_at"] for page in found] == [3, 3, 3, 3]
    board.drop_rest()


@pytest.mark.parametrize("n", [1, 3, 4, 6, 7, 9, 12])
def test_a_table_that_is_not_longer_is_looked_at_as_a_whole_and_once(board, monkeypatch, n):
    monkeypatch.setattr(searching, "N_LOOKED_AT", 3)
    monkeypatch.setattr(searching, "N_PAGES", 2)
    names = [f"k{i}" for i in range(10, 10 + n)]
    board.send(board.client(), graph(*names))
    assert sorted(keys(search(board, "k"))) == names
    board.drop_rest()


def test_few_keys_are_listed_in_a_page(board, monkeypatch):
    monkeypatch.setattr(searching, "N_FOUND", 2)
    board.send(board.client(), graph("a1", "a2", "a3"))
    (found,) = search(board, "a")
    assert (len(found["keys"]), found["is_cut"]) == (2, True)
    board.drop_rest()


@pytest.mark.parametrize("arguments", [{}, {"text": ""}, {"text": 1}, {"text": "a" * 201}])
def test_an_argument_that_is_no_text_is_refused(board, arguments):
    peer = board.connect(Role.VIEWER)
    (answer,) = board.send(peer, m.Ask(request=1, name="search", arguments=arguments))[peer]
    assert answer.kind == "bad-argument"


def test_a_page_that_there_is_not_is_refused(board):
    peer = board.connect(Role.VIEWER)
    for page in ("40", "-1", "x"):
        ask = m.Ask(request=1, name="search", arguments={"text": "a"}, page=page)
        assert board.send(peer, ask)[peer][0].kind == "bad-argument"
