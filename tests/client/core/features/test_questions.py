"""Questions in the client's core that must not be repeated, or cannot be sent."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Listener
from weft.client.core.events import Disconnected, Unsendable
from weft.client.core.features.questions import AskScheduler, questions_of
from weft.protocol.wire.messages import Ask, AskFailed


@pytest.fixture
def watcher() -> Listener:
    return Listener(wants_data=False)


def test_a_question_that_must_not_be_repeated_fails_with_the_connection(bench, watcher):
    question = AskScheduler(watcher, "run", {}, to="w", blobs=[b"f"], is_repeated=False)
    (message,) = bench.do(question)
    assert (message.to, message.blobs) == ("w", [b"f"])
    (notified,) = bench.acted(Disconnected())
    (failed,) = notified.items
    assert (notified.watcher, failed.kind) == (watcher, "no-answer")
    assert "whether the function has run is not known" in failed.text


def test_a_question_that_was_not_sent_is_sent_with_the_next_connection(bench, watcher):
    bench.handle(Disconnected())
    assert bench.do(AskScheduler(watcher, "run", {}, to="w", is_repeated=False)) == []
    (message,) = bench.connect()
    assert message == Ask(request=1, name="run", to="w")


def test_a_question_that_cannot_be_sent_fails(bench, watcher):
    (message,) = bench.do(AskScheduler(watcher, "a question", {}))
    (notified,) = bench.acted(Unsendable(message, "too long"))
    assert notified.items == [
        AskFailed(request=1, kind="bad-argument", text="it could not be sent: too long")
    ]
    assert not questions_of(bench.core)


def test_a_question_follows_earlier_submissions(bench, watcher):
    submitted, question = bench.do(
        bench.task("a"), AskScheduler(watcher, "holders", {"keys": ["a"]})
    )
    assert submitted.keys == ["a"]
    assert isinstance(question, Ask)
