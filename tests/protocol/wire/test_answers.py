"""Pages of answers: their end, and what takes their place."""

from __future__ import annotations

import pytest

from weft.protocol.errors import NoAnswer, NotPermitted, QuestionFailed, UnsupportedRequest
from weft.protocol.wire import answers
from weft.protocol.wire.answers import Pages, answer_in, part_of, reading
from weft.protocol.wire.messages import Answer, AskFailed, Denied, Unsupported
from weft.protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER


def page(next_page: str) -> Answer:
    return Answer(request=1, info={}, next_page=next_page)


def test_pages_are_turned_to_the_last_one():
    pages = Pages()
    assert pages.page == ""
    assert pages.turn(page("a"))
    assert pages.page == "a"
    assert pages.turn(page("b"))
    assert not pages.turn(page(""))


def test_a_page_that_comes_twice_is_an_endless_answer():
    pages = Pages("worker w")
    pages.turn(page("a"))
    pages.turn(page("b"))
    with pytest.raises(QuestionFailed, match="worker w: its answer has no end: after 3 pages"):
        pages.turn(page("a"))


def test_ever_new_pages_are_an_endless_answer(monkeypatch):
    monkeypatch.setattr(answers, "_MAX_PAGES", 5)
    pages = Pages()
    for n in range(4):
        pages.turn(page(str(n)))
    with pytest.raises(QuestionFailed, match="no end"):
        pages.turn(page("4"))


def test_the_last_page_within_the_limit_ends_the_answer(monkeypatch):
    monkeypatch.setattr(answers, "_MAX_PAGES", 2)
    pages = Pages()
    assert pages.turn(page("0"))
    assert not pages.turn(page(""))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (AskFailed(request=1, kind=NO_ANSWER, text="gone"), NoAnswer),
        (AskFailed(request=1, kind=BAD_ARGUMENT, text="wrong"), QuestionFailed),
        (Denied(request=1, needed="client", level="view"), NotPermitted),
        (Unsupported(unknown_code=98, request=1), UnsupportedRequest),
    ],
)
def test_messages_in_the_place_of_an_answer_are_errors(message, error):
    with pytest.raises(error) as caught:
        answer_in(message, "held", "worker w")
    assert type(caught.value) is error


def test_an_answer_is_returned_and_nothing_is_none():
    assert answer_in(page("a"), "held") == page("a")
    assert answer_in(None, "held") is None


@pytest.mark.parametrize("info", [{}, {"rows": 5}])
def test_a_part_that_is_missing_or_of_another_type_is_an_error_of_the_process(info):
    expected = pytest.raises(QuestionFailed, match="worker w: its answer cannot be read")
    with expected, reading("worker w"):
        part_of(info, "rows", list)
