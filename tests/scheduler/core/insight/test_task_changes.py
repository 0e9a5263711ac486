"""task_changes.py: the story of all tasks, read on from a cursor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.builders import Board, graph
from weft.protocol import story
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight import task_changes
from weft.scheduler.core.insight.task_changes import change_in


class Reader(Board):
    """A board with a client that reads the changes of tasks, and a worker."""

    def __init__(self, **options):
        super().__init__(**options)
        self.alice = self.client("alice")
        self.w = self.worker("w", nthreads=100)
        self.cursor = ""
        self.n_missed = 0

    def ask(self, page="", peer=None, **arguments):
        arguments = {"after": self.cursor, **arguments}
        peer = peer or self.alice
        out = self.send(peer, m.Ask(request=1, name="task_changes", arguments=arguments, page=page))
        return out[peer][-1]

    def read(self):
        """Read all pages; return (change, who, keys) of each row, and keep the cursor."""
        found, page, self.n_missed = [], "", 0
        while True:
            answer = self.ask(page)
            self.n_missed += answer.info["n_missed"]
            found += [(change, who, keys) for _, change, who, keys in answer.info["changes"]]
            page = answer.next_page
            if not page:
                self.cursor = answer.info["cursor"]
                return found


def test_a_reader_gets_what_comes_after_its_first_question():
    board = Reader()
    board.send(board.alice, graph("before"))
    assert board.read() == []
    board.send(board.alice, graph("a b"))
    board.raise_(board.w, "a")
    board.finish(board.w, "b")
    assert board.read() == [
        ("queued", "alice", ["a", "b"]),
        ("assigned", "w", ["a", "b"]),
        ("failed", "", ["a"]),
    ]
    assert board.read() == []
    assert board.n_missed == 0


def test_a_cancelled_task_is_a_change_though_it_never_ran():
    board = Reader()
    board.read()
    board.send(board.alice, graph("a"))
    board.send(board.alice, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert ("cancelled", "alice", ["a"]) in board.read()


def test_pages_end_where_the_story_did_when_the_first_one_was_asked_for(monkeypatch):
    monkeypatch.setattr(task_changes, "N_KEYS", 3)
    board = Reader()
    board.read()
    keys = [f"k{i}" for i in range(10)]
    board.send(board.alice, graph(" ".join(keys)))
    answer = board.ask()
    assert [row[3] for row in answer.info["changes"]] == [["k0", "k1", "k2"]]
    board.send(board.alice, graph("later"))
    seen = [key for row in answer.info["changes"] for key in row[3]]
    while answer.next_page:
        answer = board.ask(answer.next_page)
        assert sum(len(row[3]) for row in answer.info["changes"]) <= 3
        seen += [key for row in answer.info["changes"] for key in row[3]]
    assert seen == keys * 2
    board.cursor = answer.info["cursor"]
    assert [keys for _, _, keys in board.read()] == [["later"], ["later"]]


def test_a_slow_reader_is_told_how_many_changes_it_has_missed(monkeypatch):
    monkeypatch.setattr(story, "MAX_KEYS", 4)
    board = Reader()
    board.read()
    for name in "abc":
        board.send(board.alice, graph(name))
    assert [(change, keys) for change, _, keys in board.read()] == [
        ("queued", ["b"]),
        ("assigned", ["b"]),
        ("queued", ["c"]),
        ("assigned", ["c"]),
    ]
    assert board.n_missed == 2


def test_a_reader_of_another_scheduler_gets_all_that_is_there():
    board = Reader()
    board.send(board.alice, graph("a"))
    board.cursor = "1.999"
    assert [change for change, _, _ in board.read()] == ["queued", "assigned"]


@pytest.mark.parametrize("cursor", [7, None, "7.x", "7.-1", f"7.{'9' * 30}"])
def test_a_wrong_cursor_is_refused(cursor):
    assert isinstance(Reader().ask(after=cursor), m.AskFailed)


def test_changes_take_the_token_of_a_client():
    board = Reader()
    assert isinstance(board.ask(peer=board.connect(Role.VIEWER, Level.VIEW)), m.Denied)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 5), st.integers(1, 4))
def test_pages_of_any_size_have_each_key_once(sizes, n_keys, n_entries):
    board = Reader()
    board.read()
    expected = []
    for i, n in enumerate(sizes):
        keys = [f"k{i}-{j}" for j in range(n)]
        board.state.story.note(0.0, "finished on w" if i % 3 == 2 else "erred", keys)
        expected += keys if i % 3 != 2 else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_changes, "N_KEYS", n_keys)
        patch.setattr(task_changes, "N_ENTRIES", n_entries)
        assert [key for _, _, keys in board.read() for key in keys] == expected


def test_a_text_that_is_not_in_the_table_is_a_change_of_its_own_name():
    assert change_in("assigned to w 1") == ("assigned", "w 1")
    assert change_in("last copy lost") == ("lost", "")
    assert change_in("was moved") == ("noted", "was moved")
