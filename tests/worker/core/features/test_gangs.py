"""Members of a gang are told who runs with them, and each begins in a slot of its own."""

from __future__ import annotations

from tests.worker.builders import assign

PLACES = ["tcp://a:1", "tcp://a:1", "tcp://b:2"]


def members(*lines: str):
    message = assign(*lines)
    message.gangs = [["run", str(rank), *PLACES] for rank in range(len(lines))]
    return message


def test_each_attempt_has_its_own_rank(worker):
    worker.receive(members("1 a", "2 b"))
    told = [worker.state.by_attempt[attempt].together for attempt in (1, 2)]
    assert told == [["run", "0", *PLACES], ["run", "1", *PLACES]]


def test_other_attempts_of_the_message_are_told_nothing(worker):
    message = members("1 a", "2 b")
    message.gangs[1] = []
    worker.receive(message)
    assert not hasattr(worker.state.by_attempt[2], "together")
