"""What a visitor of the pages may ask: claims that are accepted once, passes, and their end."""

from __future__ import annotations

import pytest

from weft.protocol.trust.page_access import made_text
from weft.protocol.trust.page_claims import CLOCK_SKEW_S, LINK_LIFE_S, Claims, claim
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level, with_user
from weft.protocol.wire.roles import Role
from weft.scheduler.core.actions import LogLine
from weft.scheduler.core.insight.questions import AskShell
from weft.scheduler.core.visitors import visits
from weft.scheduler.core.visitors.visits import FOR_VISITORS, MAX_VISITS, VISIT_LIFE_S, visits_of

from ...builders import Board, graph

TOKEN = b"the token of an admin"
#: The time of the machine's clock at the start of a board.
BEGAN = 1_000_000_000
NUMBER = "0123456789abcdef"
OVER = "visit-over"


def board_of(token: bytes = TOKEN, epoch: int = BEGAN * 10**9) -> Board:
    board = Board(epoch=epoch, epoch_key=b"the key of the schedulers of " + token)
    visits_of(board.state).claims = Claims(token)
    board.tick()
    return board


@pytest.fixture
def board() -> Board:
    return board_of()


@pytest.fixture
def pages(board: Board) -> int:
    """The process of the pages, which has the token of a viewer."""
    return board.connect(Role.VIEWER)


def ask(board, peer, name, visit="", to="", **arguments):
    question = m.Ask(request=9, name=name, arguments=arguments, visit=visit, to=to)
    out = board.send(peer, question)
    return out[peer][0] if peer in out else None


def enter(board, pages, level=Level.ADMIN, *, token=TOKEN, at=BEGAN + 1, number=NUMBER):
    made = made_text(at, number)
    text = claim(token, made, level)
    return ask(board, pages, "enter", made=made, claim=text, address="10.1.2.3")


def pass_for(board, pages, level=Level.ADMIN, **options):
    answer = enter(board, pages, level, **options)
    assert isinstance(answer, m.Answer), answer
    return answer.info["pass"]


@pytest.mark.parametrize("level", [Level.CLIENT, Level.ADMIN])
def test_a_claim_begins_a_visit_of_its_role(board, pages, level):
    info = enter(board, pages, level).info
    assert (info["level"], info["user"]) == (level.label, "")
    assert info["left_s"] == VISIT_LIFE_S
    assert ask(board, pages, "visit", **{"pass": info["pass"]}).info["level"] == level.label
    (line,) = [a for a in enter_again_with_user(board, pages) if isinstance(a, LogLine)]
    assert line.text == "a visitor of the pages, user ann at 10.1.2.3, has come by a link"


def enter_again_with_user(board, pages):
    enter(board, pages, Level.CLIENT, token=with_user(TOKEN, "ann"), number=NUMBER[::-1])
    return board.actions


def test_the_scheduler_of_another_cluster_accepts_no_claim():
    other = board_of(b"another token of an admin")
    answer = enter(other, other.connect(Role.VIEWER))
    assert (answer.kind, answer.text) == (
        "bad-argument",
        "This link was not made by this cluster.",
    )


def test_a_claim_works_once(board, pages):
    given = pass_for(board, pages)
    assert "used before" in enter(board, pages).text
    ask(board, pages, "leave", **{"pass": given})
    assert "used before" in enter(board, pages).text


@pytest.mark.parametrize(
    ("at", "passes", "text"),
    [
        (BEGAN - 1, 0, "before the scheduler was started"),
        (BEGAN, LINK_LIFE_S + 1, "has expired"),
        (BEGAN + CLOCK_SKEW_S + 1, 0, "comes from the future"),
    ],
)
def test_a_claim_is_accepted_for_a_short_time(board, pages, at, passes, text):
    board.tick(float(passes))
    assert text in enter(board, pages, at=at).text


def test_arguments_that_claim_nothing_are_refused(board, pages):
    made = made_text(BEGAN, NUMBER)
    for arguments in (
        {},
        {"made": made, "claim": 1, "address": ""},
        {"made": made, "claim": "", "address": ""},
        {"made": made, "claim": "admin." + "A" * 43, "address": ""},
    ):
        assert isinstance(ask(board, pages, "enter", **arguments), m.AskFailed)
    assert not visits_of(board.state).by_number


def test_without_a_token_there_are_no_visits():
    board = Board(epoch=BEGAN * 10**9)
    board.tick()
    assert isinstance(enter(board, board.connect(Role.VIEWER)), m.AskFailed)


@pytest.mark.parametrize("name", FOR_VISITORS)
def test_each_question_takes_the_right_of_the_visitor(board, pages, name):
    ws = board.worker("w")
    board.send(board.client(), graph("a"))
    to = board.state.workers[ws].worker_id if name in ("call_stack", "profile", "scale") else ""
    needed = FOR_VISITORS[name]
    client = pass_for(board, pages, Level.CLIENT)
    admin = pass_for(board, pages, number=NUMBER[::-1])
    # The process of the pages itself may not ask it.
    answer = ask(board, pages, name, to=to)
    assert isinstance(answer, m.Denied)
    answer = ask(board, pages, name, client, to=to)
    assert isinstance(answer, m.Denied) == (needed is Level.ADMIN)
    if needed is Level.ADMIN:
        assert (answer.needed, answer.level) == ("admin", "client")
    answer = ask(board, pages, name, admin, to=to)
    assert not isinstance(answer, m.Denied)
    board.drop_rest()


def test_no_visitor_has_rights_that_are_not_listed(board, pages):
    admin = pass_for(board, pages)
    board.worker("w")
    worker_id = next(iter(board.state.workers_by_id))
    for name, to in (("run", worker_id), ("task_changes", ""), ("leaving_order", "")):
        assert isinstance(ask(board, pages, name, admin, to=to), m.Denied)
    assert isinstance(ask(board, pages, "cluster", admin), m.Answer)


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given[:-1] + ("0" if given[-1] != "0" else "1"),
        lambda given: given.partition(".")[0],
        lambda given: given + "0",
        lambda given: "é" + given,
        lambda given: "." + given,
        lambda given: NUMBER[::-1] + given[len(NUMBER) :],
    ],
)
def test_a_changed_pass_has_no_rights(board, pages, change):
    given = pass_for(board, pages)
    answer = ask(board, pages, "logs", change(given))
    assert (answer.kind, board.actions) == (OVER, [])
    assert isinstance(change(given), str)
    assert ask(board, pages, "visit", **{"pass": change(given)}).info == {}
    assert ask(board, pages, "logs", given) is None
    assert isinstance(board.actions[0], AskShell)


def test_a_pass_of_another_epoch_has_no_rights(board, pages):
    given = pass_for(board, pages)
    other = board_of(epoch=BEGAN * 10**9 + 1)
    peer = other.connect(Role.VIEWER)
    assert ask(other, peer, "logs", given).kind == OVER
    assert pass_for(other, peer) != given
    assert ask(other, peer, "logs", given).kind == OVER


def test_a_visit_ends_after_its_life(board, pages):
    given = pass_for(board, pages)
    board.tick(VISIT_LIFE_S - 1)
    assert ask(board, pages, "visit", **{"pass": given}).info["left_s"] == 1
    board.tick(1.0)
    assert ask(board, pages, "visit", **{"pass": given}).info == {}
    assert ask(board, pages, "logs", given).kind == OVER


def test_a_visitor_who_has_left_has_no_rights(board, pages):
    given, other = pass_for(board, pages), pass_for(board, pages, number=NUMBER[::-1])
    ask(board, pages, "leave", **{"pass": given})
    ask(board, pages, "leave", **{"pass": "nobody's"})
    ask(board, pages, "leave")
    assert ask(board, pages, "logs", given).kind == OVER
    assert ask(board, pages, "visit", **{"pass": other}).info


def test_old_visits_make_room_for_new_ones(board, pages, monkeypatch):
    monkeypatch.setattr(visits, "MAX_VISITS", 2)
    first = pass_for(board, pages, number="1" * 16)
    pass_for(board, pages, number="2" * 16)
    assert "try again later" in enter(board, pages, number="3" * 16).text
    board.tick(LINK_LIFE_S + 2.0 * CLOCK_SKEW_S)
    at = BEGAN + LINK_LIFE_S + 2 * CLOCK_SKEW_S
    assert pass_for(board, pages, at=at, number="3" * 16)
    assert ask(board, pages, "visit", **{"pass": first}).info == {}
    assert MAX_VISITS == 1000


def test_an_order_is_logged_with_its_visitor(board, pages):
    given = pass_for(board, pages)
    ask(board, pages, "cancel_tasks", given, keys=["a\n"])
    (line,) = [a for a in board.actions if isinstance(a, LogLine)]
    assert line.level == "info"
    assert line.text == (
        "a visitor of the pages, admin at 10.1.2.3, orders 'cancel_tasks': {'keys': ['a\\n']}"
    )
