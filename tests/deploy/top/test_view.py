"""The effects of the keys of `weft top`, and which rows are shown in which order."""

from __future__ import annotations

import pytest

from tests.deploy.top.samples import snapshot, worker
from weft.deploy.top.keyboard import keys_in
from weft.deploy.top.view import (
    BROWSING,
    CONFIRMING,
    ENTER,
    ESCAPE,
    FILTERING,
    PAGE_DOWN,
    READING,
    TAB,
    Explain,
    Quit,
    RetireOne,
    View,
)


def press(view: View, keys: list[str], shown=None):
    """Press keys; return the action of the last one."""
    action = None
    for key in keys:
        action = view.press(key, shown or snapshot())
    return action


def names(view: View, shown=None) -> list[str]:
    return [row["name"] for row in view.rows(shown or snapshot())]


def test_workers_are_in_the_order_of_their_numbers():
    assert names(View())[:3] == ["w-0", "w-1", "w-2"]
    assert names(View())[-2:] == ["w-10", "w-11"]


def test_the_order_key_goes_round_all_orders():
    view = View()
    seen = []
    for _ in range(6):
        seen.append(view.order.name)
        press(view, ["s"])
    assert seen == ["name", "memory", "cpu", "tasks", "results", "seen"]
    assert view.order.name == "name"
    press(view, ["s"])
    assert names(view)[0] == "w-11"


def test_a_filter_is_kept_by_enter_and_removed_by_escape():
    view = View()
    press(view, ["/", *"W-1"])
    assert view.mode == FILTERING
    assert names(view) == ["w-1", "w-10", "w-11"]
    press(view, ["<backspace>", "0", ENTER])
    assert (view.mode, names(view)[0], len(names(view))) == (BROWSING, "w-0", 1)
    press(view, ["/"])
    assert view.typed == "W-0"
    press(view, [ESCAPE])
    assert len(names(view)) == 12


def test_a_filter_finds_hosts_and_states():
    shown = snapshot()
    shown.workers["a"] = worker(20, n_processing=1)
    view = View()
    press(view, ["/", *"busy", ENTER], shown)
    assert names(view, shown) == ["w-20"]
    press(view, ["/", *"<", ESCAPE, "/", *"host2", ENTER], shown)
    assert names(view, shown) == ["w-2", "w-5", "w-8", "w-11", "w-20"]


def test_the_cursor_stays_with_its_worker_while_the_order_changes():
    view, shown = View(), snapshot()
    press(view, ["j", "j", "j"], shown)
    assert view.selected == "id2"
    press(view, ["s"], shown)
    assert view.selected == "id2"
    press(view, ["k"], shown)
    assert view.selected == "id3"
    press(view, [PAGE_DOWN], shown)
    assert view.selected == "id0"


def test_a_worker_is_retired_only_after_yes():
    view = View()
    press(view, ["r"])
    assert view.mode == BROWSING
    assert "choose a worker first" in view.message
    press(view, ["j", "r"])
    assert view.mode == CONFIRMING
    assert press(view, ["n"]) is None
    assert view.message == "nothing was changed"
    press(view, ["r"])
    assert press(view, ["y"]) == RetireOne("id0", "w-0")
    assert view.mode == BROWSING


def test_a_task_is_explained_by_its_key_or_from_a_failure():
    view = View()
    assert press(view, ["e", *" inc-1 ", ENTER]) == Explain("inc-1")
    assert press(view, ["e", ENTER]) is None
    assert press(view, ["e", "x", ESCAPE]) is None
    assert press(view, [TAB, TAB, TAB, "j", "e"]) == Explain("train-0a1b")


def test_a_text_is_scrolled_and_left_by_any_other_key():
    view = View()
    view.show("a\nb\nc")
    press(view, ["j", "j", "j", "k"])
    assert (view.mode, view.offset) == (READING, 1)
    press(view, ["x"])
    assert (view.mode, view.page) == (BROWSING, "")
    press(view, ["h"])
    assert "retire the chosen worker" in view.page


def test_quitting_and_the_tables():
    view = View()
    assert press(view, ["q"]) == Quit()
    tabs = []
    for _ in range(4):
        tabs.append(view.tab)
        press(view, [TAB])
    assert tabs == ["workers", "hosts", "functions", "failures"]
    assert view.tab == "workers"


@pytest.mark.parametrize("keys", [["j", "k"], ["r"], ["e"], ["s"], [PAGE_DOWN], [ESCAPE]])
def test_an_empty_cluster_takes_every_key(keys):
    view, empty = View(), snapshot(0, functions=[], failures=[])
    for _ in range(3):
        press(view, keys, empty)
        press(view, [ESCAPE, TAB], empty)
    assert view.rows(empty) == []


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B\x1bOA", ["<up>", "<down>", "<up>"]),
        ("\x1b[5~\x1b[6~", ["<page up>", "<page down>"]),
        ("\x1b", ["<escape>"]),
        ("a\r\t\x7f", ["a", "<enter>", "<tab>", "<backspace>"]),
        ("\x1b[1;5Cx", ["x"]),
        ("\x1b[", []),
        ("é", ["é"]),
    ],
)
def test_keys_are_read_from_what_a_terminal_sends(sent, expected):
    assert keys_in(sent) == expected
