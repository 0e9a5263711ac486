"""The task stream for browsers: read once for all of them, and not at all while none looks."""

from __future__ import annotations

import asyncio

import pytest

from tests.deploy.http.serving import Pages, pages_in_this_loop
from tests.protocol.columns import read
from tests.protocol.test_attempt_columns import report
from weft.deploy.http import stream_watch
from weft.deploy.http.stream_watch import StreamWatch
from weft.protocol.ring import Ring
from weft.scheduler.core.insight.task_stream import stream_of


class Answers:
    """A viewer whose scheduler has some pages."""

    def __init__(self):
        self.pages = []
        self.asked = []
        self.fails = False

    def add(self, *reports, n_missed=0, cursor="1.0"):
        self.pages.append(
            {"reports": reports, "n_missed": n_missed, "cursor": cursor}
            | {"to_unix_s": 1000.0, "now_unix_s": 2000.0}
        )

    async def ask(self, name, arguments):
        self.asked.append((name, arguments["after"]))
        pages, self.pages = self.pages, []
        for page in pages or [
            {"reports": [], "n_missed": 0, "cursor": "1.9", "to_unix_s": 0, "now_unix_s": 0}
        ]:
            yield page
        if self.fails:
            raise TimeoutError


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def watch(answers, monkeypatch):
    monkeypatch.setattr(stream_watch, "READS_S", 0.0)
    return StreamWatch(answers)


async def keys_after(watch, after=""):
    head, rows = read(await watch.answer(after))
    return head, [row["key"] for row in rows]


async def test_a_browser_goes_on_where_it_was_and_a_later_one_begins_with_what_is_kept(
    watch, answers
):
    answers.add(report("a", "b"), cursor="1.2")
    head, keys = await keys_after(watch)
    assert (keys, head["goes_on"], head["is_all"]) == (["a", "b"], False, True)
    answers.add(report("c"), cursor="1.3")
    again, keys = await keys_after(watch, head["next"])
    assert (keys, again["goes_on"], again["n_late"]) == (["c"], True, 0)
    assert (await keys_after(watch))[1] == ["a", "b", "c"]
    assert (await keys_after(watch, again["next"]))[1] == []
    assert answers.asked == [("task_times", cursor) for cursor in ("", "1.2", "1.3", "1.9")]


async def test_a_place_in_the_stream_of_another_process_means_nothing(watch, answers):
    answers.add(report("a"))
    for after in ("other.1", "1", ".", "other.x", "²", f"{watch._name}.{'9' * 5000}"):
        head, keys = await keys_after(watch, after)
        assert (keys, head["goes_on"]) == (["a"], False)


async def test_a_browser_learns_how_many_attempts_are_missing(watch, answers):
    watch._chunks = Ring(max_rows=3)
    answers.add(report("a", "b"), n_missed=7)
    head, _ = await keys_after(watch)
    assert head["n_missed"] == 7
    for key in "cdef":
        answers.add(report(key))
        await watch.answer("")
    late, keys = await keys_after(watch, head["next"])
    assert (keys, late["n_late"], late["n_missed"]) == (["d", "e", "f"], 1, 7)


async def test_a_long_answer_comes_in_several(watch, answers, monkeypatch):
    monkeypatch.setattr(stream_watch, "MAX_ANSWER", 1)
    for key in "abc":
        answers.add(report(key))
        await watch.answer("")
    after, found = "", []
    for is_last in (False, False, True):
        head, keys = await keys_after(watch, after)
        found += keys
        after = head["next"]
        assert head["is_all"] == is_last
    assert found == ["a", "b", "c"]


async def test_one_reading_takes_some_pages_and_the_next_one_goes_on(watch, answers, monkeypatch):
    monkeypatch.setattr(stream_watch, "MAX_PAGES", 2)
    for i, key in enumerate("abc"):
        answers.add(report(key), cursor=f"1.{i + 1}")
    assert (await keys_after(watch))[1] == ["a", "b"]
    await watch.answer("")
    assert answers.asked[-1] == ("task_times", "1.2")


async def test_attempts_that_were_read_before_an_answer_failed_are_kept(watch, answers):
    answers.add(report("a"), cursor="1.1")
    answers.fails = True
    with pytest.raises(TimeoutError):
        await watch.answer("")
    answers.fails = False
    answers.add(report("b"), cursor="1.2")
    assert (await keys_after(watch))[1] == ["a", "b"]
    assert answers.asked[-1] == ("task_times", "1.1")


async def test_times_of_spilling_before_an_attempt_ends_are_those_of_the_last_answer(
    watch, answers
):
    spilled = [["host", "w", "tcp://w", 1.0, 2.0, 100, 0]]
    answers.add(report("a"))
    answers.pages[-1]["disk"] = spilled
    head, _ = await keys_after(watch)
    assert head["disk"] == spilled
    answers.add(report("b"))
    answers.pages[-1]["disk"] = []
    head, _ = await keys_after(watch, head["next"])
    assert head["disk"] == []


@pytest.mark.shares_resources  # threads of the loop
async def test_the_scheduler_is_asked_once_for_all_browsers_and_only_while_one_looks(monkeypatch):
    monkeypatch.setattr(stream_watch, "READS_S", 60.0)
    async with pages_in_this_loop() as (started, port, token):
        pages = Pages(f"http://127.0.0.1:{port}/", token)
        asked = []
        questions = started.state.features.questions
        question = questions["task_times"]

        def answer(state, arguments, page):
            asked.append(arguments)
            return question.answer(state, arguments, page)

        monkeypatch.setitem(questions, "task_times", question._replace(answer=answer))
        await asyncio.to_thread(pages.ask, "/", authorized=True)
        assert not asked
        assert not stream_of(started.state).is_on
        await asyncio.gather(
            *(asyncio.to_thread(pages.ask_bytes, "/stream/data", authorized=True) for _ in range(5))
        )
        assert len(asked) == 1
        assert stream_of(started.state).is_on
        assert stream_of(started.state).due.when - started.state.awake_s <= stream_watch.KEEP_S
